"""The committed blind checks: what the pages say of them is what the tables hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

MEASURED = Path(__file__).parents[2] / "studies" / "measured"


def test_what_other_programs_do_to_a_prediction() -> None:
    """The share of speedups that both intervals hold, with what a busy machine adds."""
    cells = pd.read_csv(MEASURED / "blind" / "busy.csv")
    off = np.log(cells["predicted_speedup"] / cells["measured_speedup"]).abs()
    halves = [np.log(cells[f"{name}high"] / cells[f"{name}low"]) / 2 for name in ("", "measured_")]
    held = {
        disturbed: int((off <= np.hypot(np.hypot(*halves), 1.96 * disturbed)).sum())
        for disturbed in (0.0, 0.04, 0.05)
    }
    assert held == {0.0: 39, 0.04: 46, 0.05: 48}


def test_errors_and_intervals_of_the_embedded_pairs() -> None:
    cells = pd.read_csv(MEASURED / "blind" / "cells.csv")
    found = cells["predicted_speedup"] / cells["measured_speedup"] - 1
    np.testing.assert_allclose(cells["relative_error"], found, atol=1e-12)
    assert set(cells["gamma"]) == set(range(1, 9))
    assert len(cells) == 3 * 2 * 8
    estimators = pd.read_csv(MEASURED / "blind" / "estimators.csv").set_index("estimator")
    smoothed = estimators.loc["smoothed"]
    np.testing.assert_allclose(smoothed["median"], cells["relative_error"].abs().median())
    np.testing.assert_allclose(smoothed["inside"], cells["inside"].mean())
