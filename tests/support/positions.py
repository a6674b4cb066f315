"""Scored positions of invented models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def frame(requests: int = 20, length: int = 30, seed: int = 0) -> pd.DataFrame:
    """Positions of invented models; the target is the better one, and knows when it is."""
    random = np.random.default_rng(seed)
    size = requests * length
    skill = random.uniform(0, 1, (2, size))
    target = np.clip(0.3 + 0.7 * skill[0], 0, 1)
    draft = target * skill[1]
    columns = {
        "request": np.repeat(np.arange(requests), length),
        "logp_target": np.log(target),
        "logp_draft": np.log(draft),
        "tv": (target - draft) * random.uniform(0.5, 1, size),
        "target_top_is_label": (target > 0.5).astype(int),
        "draft_top_is_label": (draft > 0.5).astype(int),
        "unscaled_target_max": target,
        "unscaled_draft_max": draft,
        "Lossy(looseness=0.5).rejection": (target - draft) / 3,
        "Lossy(looseness=0.5).logp": np.log(target) - 0.01,
        "Lossy(looseness=0.5).top": (target > 0.45).astype(int),
        "Lossy(looseness=0.9).rejection": (target - draft) / 9,
        "Lossy(looseness=0.9).logp": np.full(size, -np.inf),
        "Lossy(looseness=0.9).top": (draft > 0.45).astype(int),
    }
    return pd.DataFrame(columns)


def write_positions(folder: Path) -> Path:
    """The file that ``specsim score`` would write of them."""
    path = folder / "positions.parquet"
    given = frame()
    given.attrs = {"draft": "small", "target": "large", "temperature": 1.0}
    given.to_parquet(path)
    return path
