"""The committed predictions of vLLM's speedups, and what was measured afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from specsim.files import file_digest

MEASURED = Path(__file__).parents[2] / "studies" / "measured"


@pytest.mark.parametrize("name", ["blind", "blind-t1", "blind-generate"])
def test_speedups_of_vllm_are_within_what_was_to_be_reached(name: str) -> None:
    """Wanted were 5 % in the median and 12 % at worst."""
    folder = MEASURED / "vllm"
    rows = pd.read_csv(folder / f"{name}.csv")
    assert len(rows) == 15
    off = rows["predicted_speedup"] / rows["measured_speedup"] - 1
    np.testing.assert_allclose(rows["relative_error"], off, atol=1e-12)
    assert off.abs().median() < 0.05
    assert off.abs().max() < 0.12
    assert rows["inside"].all()
    # As it was written down before, from the steps that stand beside it.
    before = json.loads((folder / f"{name}-predicted.json").read_text())
    assert before["timed_sha256"] == file_digest(folder / f"{name}-timed.json")
    known = {(each["gamma"], each["batch"]): each["speedup"] for each in before["speedups"]}
    columns = ["predicted_low", "predicted_speedup", "predicted_high"]
    expected = [known[key] for key in zip(rows["gamma"], rows["batch"], strict=True)]
    np.testing.assert_allclose(rows[columns], expected)
    # And what is said of it.
    words = (
        f"{off.abs().median():.1%} off in the median, {off.mean():+.1%} in the mean, "
        f"{off.abs().max():.1%} at worst"
    )
    text = " ".join((MEASURED / "README.md").read_text().split())
    assert words.replace("%", " %") in text
