"""The second visit to an H100: what was put together afterwards, from what it had kept."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from calibrate.gpu_report import report
from calibrate.models.sampling import Sampling
from calibrate.validate.blind import Decoded, compare_passes, turns
from specsim.optimizers.workload import Workload
from specsim.predict.prediction_file import Predictions
from specsim.profiles import read_profile

FOLDER = Path(__file__).parents[2] / "studies" / "measured" / "h100-second"
GAMMAS, REQUESTS, WHOLE = tuple(range(1, 9)), 2, 2


def checked() -> list[Any]:
    """The profile's workloads as a check has them, without the models that stayed behind."""
    path = FOLDER / "pair.json"
    return [
        SimpleNamespace(
            workload=each,
            paired=True,
            certain=each.measured.sampling.temperature == 0,
            prompts=[[]] * each.measured.requests,
            name="calibration",
            trace=each.trace,
            sampling=Sampling(each.measured.sampling.temperature),
        )
        for each in Workload.all_of(read_profile(path), path, None)
    ]


def test_the_answer_is_that_of_the_two_passes_that_are_whole() -> None:
    decoded = json.loads((FOLDER / "pair.decoded.json").read_text())
    checks, found = checked(), Decoded()
    for number in range(WHOLE):
        for turn in turns(checks, GAMMAS, REQUESTS, number, seed=0):
            name = f"{number}-{turn.check}-{turn.request}-{turn.gamma}-{turn.time}"
            cell = found.setdefault((turn.check, turn.gamma), [{} for _ in range(WHOLE)])
            cell[number].setdefault(turn.request, []).append(decoded[name])
    document = (FOLDER / "pair.prediction.json").read_bytes()
    predictions = msgspec.json.decode(document, type=Predictions).by_temperature()
    rows = compare_passes(checks, predictions, GAMMAS, found)
    answers = json.loads((FOLDER / "checks-pair.json").read_text())
    kept = answers["predicted before"]["answer"]["rows"]
    assert len(rows) == len(kept) == 16
    for row, other in zip(rows, kept, strict=True):
        for name, value in other.items():
            near = value if value is None or isinstance(value, str) else pytest.approx(value)
            assert row[name] == near, name
    assert len(decoded) == 109


def test_the_report_is_that_of_the_folder() -> None:
    assert (FOLDER / "report.md").read_text() == report(FOLDER)
