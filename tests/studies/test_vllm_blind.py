"""The committed predictions of vLLM's speedups, and what was measured afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.vllm_blind import recommended
from specsim.counts.file import read_acceptance
from specsim.files import file_digest
from specsim.predict.engine_sets import SERVERS_APART, StepRepeats, residuals

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


def test_three_calibrations_of_vllm_that_one_check_judges() -> None:
    """Wanted were 5 % in the median and 12 % at worst, and intervals that hold."""
    folder = MEASURED / "vllm" / "three"
    cells = pd.read_csv(folder / "blind-cells.csv")
    measured = pd.read_csv(folder / "blind.csv").set_index(["gamma", "batch"])
    assert len(cells) == 45
    off = cells["predicted_speedup"] / cells["measured_speedup"] - 1
    np.testing.assert_allclose(cells["relative_error"], off, atol=1e-12)
    assert off.abs().median() == pytest.approx(0.041, abs=5e-4)
    assert off.abs().max() == pytest.approx(0.160, abs=5e-4)
    assert off.mean() == pytest.approx(-0.037, abs=5e-4)
    assert cells["inside"].all()
    for number, part in cells.groupby("calibration"):
        calibration = f"-{number}" if number > 1 else ""
        said = json.loads((folder / f"blind{calibration}-predicted.json").read_text())["speedups"]
        known = {(each["gamma"], each["batch"]): each["speedup"] for each in said}
        for row in part.itertuples():
            predicted = row.predicted_low, row.predicted_speedup, row.predicted_high
            np.testing.assert_allclose(known[row.gamma, row.batch], predicted)
            seen = measured.loc[(row.gamma, row.batch), "measured_speedup"]
            assert seen == pytest.approx(row.measured_speedup)
    spread = []
    for name in ("blind", "blind-2", "blind-3"):
        steps = StepRepeats.of(read_acceptance(folder / f"{name}-timed.json").step_times()).steps
        spread += np.log(steps).std(axis=0, ddof=1).ravel().tolist()
    assert [min(spread), max(spread)] == pytest.approx([0.019, 0.346], abs=5e-4)
    chosen = recommended(cells)
    assert len(chosen) == 8
    assert (chosen["loss"] <= 0.02).sum() == 6


def test_how_far_servers_of_vllm_are_apart() -> None:
    """What steps of the three timings are off their lines by, beyond what repeats explain."""
    squares, freedom = 0.0, 0
    for name in ("blind", "blind-t1", "blind-generate"):
        timed = read_acceptance(MEASURED / "vllm" / f"{name}-timed.json")
        repeats = StepRepeats.of(timed.step_times())
        off = residuals(repeats.gammas, repeats.steps.mean(axis=0))
        chance = residuals(repeats.gammas, repeats.steps).var(axis=0, ddof=1) / len(repeats.steps)
        squares += float(np.square(off).sum() - chance.sum())
        freedom += len(repeats.batches) * (len(repeats.gammas) - 2)
    assert freedom == 9
    assert (squares / freedom) ** 0.5 == pytest.approx(SERVERS_APART, abs=5e-4)
