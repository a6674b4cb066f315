"""Profiles of invented numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specsim import profiles

# Run times of shapes at two contexts: batches 1 to 16, and 1 to 64 four times apart.
_MEASURED = Path(__file__).parents[2] / "studies" / "measured"
ON_H100 = _MEASURED / "h100" / "costs-8b-1b-compiled.json"
ON_H200 = _MEASURED / "h200" / "costs-8b-1b-compiled.json"
EMBEDDED = _MEASURED / "embedded-cpu" / "profile.json"
# Of sixteen passes.
REPEATED = _MEASURED / "blind" / "quiet-blocks" / "small-1.json"


def rate(best: float) -> dict[str, float]:
    return {"low": best, "best": best, "high": best}


def write(folder: Path, **changes: Any) -> Path:
    """A profile of invented numbers with its trace: v(n) = 1 + 0.1 (n - 1), c = 0.1.

    The first draft run of a block costs twice the others.
    """
    random = np.random.default_rng(7)
    requests, length = 20, 50
    draft = np.log(random.uniform(0.2, 1.0, requests * length))
    trace = folder / "p.trace.parquet"
    pd.DataFrame(
        {
            "request": np.repeat(np.arange(requests), length),
            "position": np.tile(np.arange(length), requests),
            "context": np.tile(10 + np.arange(length), requests),
            # The target says 0.9 of every token, and the draft a share of that.
            "logp_target": np.full(requests * length, np.log(0.9)),
            "logp_draft": draft + np.log(0.9),
            "draft_rank": np.where(draft > np.log(0.5), 1, 2),
        }
    ).to_parquet(trace)
    alpha = float(np.exp(draft).mean())
    content: dict[str, Any] = {
        "schema": "specsim-profile",
        "version": 3,
        "created": "2026-01-01T00:00:00+00:00",
        "command": "specsim calibrate",
        "target": {"name": "t", "parameters": 1000, "context": 512, "sha256": "0"},
        "draft": {"name": "d", "parameters": 100, "context": 512, "sha256": "1"},
        "hardware": {
            "device": "cpu",
            "device_name": "cpu",
            "processor": "p",
            "cores": 2,
            "threads": 1,
        },
        "software": {
            "specsim": "0",
            "python": "3",
            "torch": "2",
            "transformers": "5",
            "dtype": "float32",
        },
        "gamma_max": 4,
        "acceptance": [
            {
                "sampling": {"temperature": 1.0},
                "requests": requests,
                "prompt_tokens": 10,
                "prompts_sha256": "2",
                "max_new_tokens": length,
                "tokens": requests * length,
                "seed": 0,
                "alpha": rate(alpha),
                "survival": [rate(alpha**i) for i in range(1, 5)],
                "conditional": [rate(alpha)] * 4,
                "trace": {"file": trace.name, "sha256": profiles.file_digest(trace)},
            }
        ],
        "run_times": [
            {"model": model, "follows": follows, "tokens": tokens, "context": context}
            | {"batch": 1, "mode": "eager"}
            | {"seconds": [scale * (1 + 0.1 * (tokens - 1))], "plain": [0.01]}
            for model, follows, scale in (
                ("target", "draft", 0.01),
                ("draft", "target", 0.002),
                ("draft", "draft", 0.001),
            )
            for tokens in range(1, 6)
            for context in (10, 60)
        ],
        "overhead": [
            {"temperature": 1.0, "gamma": gamma, "batch": 1, "context": 0, "mode": "eager"}
            | {"seconds": [0.0]}
            for gamma in (0, 1, 4)
        ],
        "notes": [],
        **changes,
    }
    path = folder / "p.json"
    path.write_text(json.dumps(content))
    return path


def grid(mode: str = "eager", scale: float = 1.0) -> list[dict[str, Any]]:
    """Runs that take 1 + n B / 32 times as long over n tokens of B requests as over none."""
    return [
        {
            "model": model,
            "follows": follows,
            "tokens": tokens,
            "batch": batch,
            "context": context,
            "mode": mode,
            "seconds": [seconds * scale * (1 + batch * tokens / 32) * spread for spread in spreads],
            "plain": [0.01 * scale * (1 + batch / 32)] * len(spreads),
        }
        for model, follows, seconds, spreads in (
            ("target", "draft", 0.01, (1, 1, 9)),
            ("draft", "target", 0.001, (1, 1.2)),
            ("draft", "draft", 0.001, (0.8, 1)),
        )
        for tokens in range(1, 6)
        for batch in (1, 4, 16, 64)
        for context in (64, 256)
    ]


def overhead(mode: str = "eager", temperature: float = 1.0) -> list[dict[str, Any]]:
    return [
        {"temperature": temperature, "gamma": gamma, "batch": batch, "context": 64, "mode": mode}
        | {"seconds": [1e-4 * (1 + gamma) * batch] * 3}
        for gamma in (0, 2, 4)
        for batch in (1, 64)
    ]


def write_grid(folder: Path, **changes: Any) -> Path:
    """A profile of invented numbers that has run times of batches."""
    return write(folder, **{"grid": grid(), "batch_overhead": overhead(), **changes})
