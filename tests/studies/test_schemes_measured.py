"""Every scheme at temperature 0, predicted beside decoded, as committed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

MEASURED = Path(__file__).parents[2] / "studies" / "measured" / "schemes" / "greedy.json"
_SIDES = ("predicted", "measured")


def test_speedups_are_as_near_as_the_documents_say() -> None:
    rows = json.loads(MEASURED.read_text())["answer"]["rows"]
    off = np.array([row["relative_error"] for row in rows])
    assert len(rows) == 38
    assert np.median(abs(off)) < 0.0075
    assert abs(off).max() < 0.023
    assert abs(off.mean()) < 0.001
    apart = [abs(np.log(row["predicted_speedup"] / row["measured_speedup"])) for row in rows]
    halves = [
        np.hypot(*(np.log(row[f"{side}_high"] / row[f"{side}_low"]) / 2 for side in _SIDES))
        for row in rows
    ]
    assert (np.array(apart) <= np.array(halves)).all()
    assert all(row["counts_as_predicted"] for row in rows)
