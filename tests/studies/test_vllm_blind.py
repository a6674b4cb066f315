"""The committed predictions of vLLM's speedups, and what was measured afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from benchmarks.vllm_blind import recommended
from benchmarks.vllm_laws import CHECKS, STARTS, held
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


class Three(NamedTuple):
    """What is said of three calibrations: median, worst and mean error, intervals that hold of 45,
    least and largest spread of a step's ratio over repeats, recommendations, plain decoding among
    them, and how many of them are within 2 % of the fastest.
    """

    median: float
    worst: float
    mean: float
    inside: int
    spread: tuple[float, float]
    chosen: int
    within: int


THREE = {
    "three": Three(0.019, 0.084, -0.011, 44, (0.011, 0.096), 9, 9),
    "three-starts": Three(0.019, 0.055, -0.007, 45, (0.013, 0.087), 9, 9),
    "three-morning": Three(0.016, 0.056, -0.003, 45, (0.0025, 0.0345), 9, 9),
    "three-warm": Three(0.0153, 0.061, 0.003, 45, (0.0131, 0.0558), 9, 9),
    "three-restless": Three(0.041, 0.160, -0.037, 45, (0.019, 0.346), 9, 6),
}


def test_three_calibrations_of_today_are_within_what_was_to_be_reached() -> None:
    """5 % in the median and 12 % at worst, and intervals that hold 90 to 99 %: those of the first,
    and those of both together, since all 45 of the second hold.
    """
    inside: list[bool] = []
    for name in ("three", "three-starts"):
        cells = pd.read_csv(MEASURED / "vllm" / name / "blind-cells.csv")
        off = (cells["predicted_speedup"] / cells["measured_speedup"] - 1).abs()
        assert off.median() < 0.05
        assert off.max() < 0.12
        inside += cells["inside"].tolist()
        assert 0.90 <= np.mean(inside) <= 0.99
    assert len(inside) == 90


@pytest.mark.parametrize("name", ["three-morning", "three-warm"])
def test_the_last_calibrations_hold_more_than_they_were_to(name: str) -> None:
    """5 % in the median and 12 % at worst as wanted; intervals were to hold 90 to 99 %, and hold
    all.
    """
    cells = pd.read_csv(MEASURED / "vllm" / name / "blind-cells.csv")
    off = (cells["predicted_speedup"] / cells["measured_speedup"] - 1).abs()
    assert off.median() < 0.05
    assert off.max() < 0.12
    assert cells["inside"].sum() == len(cells) == 45


def test_intervals_of_the_mean_over_servers_hold_as_many_as_they_were_to() -> None:
    """Of the four checks on quick machines, whose intervals were written for servers that are
    started once and hold 179 of 180.
    """
    found = [held(*each) for each in CHECKS if each[0] in STARTS and each[0] != "three-restless"]
    count = sum(each["speedups"] for each in found)
    before, now = (
        sum(each[name] for each in found) for name in ("hold", "hold_of_the_mean_over_starts")
    )
    assert (count, before, now) == (180, 179, 178)
    assert 0.90 <= now / count <= 0.99


@pytest.mark.parametrize("name", THREE)
def test_three_calibrations_of_vllm_that_one_check_judges(name: str) -> None:
    folder, said_of = MEASURED / "vllm" / name, THREE[name]
    cells = pd.read_csv(folder / "blind-cells.csv")
    measured = pd.read_csv(folder / "blind.csv").set_index(["gamma", "batch"])
    assert len(cells) == 45
    off = cells["predicted_speedup"] / cells["measured_speedup"] - 1
    np.testing.assert_allclose(cells["relative_error"], off, atol=1e-12)
    found = off.abs().median(), off.abs().max(), off.mean()
    assert found == pytest.approx(said_of[:3], abs=5e-4)
    assert cells["inside"].sum() == said_of.inside
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
    for timed in ("blind-timed.json", "blind-2-timed.json", "blind-3-timed.json"):
        steps = StepRepeats.of(read_acceptance(folder / timed).step_times()).steps
        spread += np.log(steps).std(axis=0, ddof=1).ravel().tolist()
    assert (min(spread), max(spread)) == pytest.approx(said_of.spread, abs=5e-4)
    chosen = recommended(cells)
    assert len(chosen) == said_of.chosen
    assert (chosen["loss"] <= 0.02).sum() == said_of.within


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
