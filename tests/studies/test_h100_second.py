"""The second visit to an H100: what was put together afterwards, from what it had kept."""

from __future__ import annotations

import json
import re
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
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?")
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
    """Word for word; figures as far as processors agree: rounding leaves another rest of an exact
    fit on each, and fits are flat where a layer takes next to no time of its own.
    """
    kept, made = ((FOLDER / "report.md").read_text().splitlines(), report(FOLDER).splitlines())
    assert len(kept) == len(made)
    names: list[str] = []
    for line, other in zip(kept, made, strict=True):
        cells, others = line.split(" | "), other.split(" | ")
        if line.startswith("| model |"):
            names = cells
        assert len(cells) == len(others)
        for at, (cell, now) in enumerate(zip(cells, others, strict=True)):
            assert NUMBER.sub("", cell) == NUMBER.sub("", now)
            # Microseconds, of which a layer takes dozens.
            in_fits = line.startswith("| ") and len(cells) == len(names)
            near = 0.05 if in_fits and names[at] == "layer_us" else 1e-12
            for said, found in zip(NUMBER.findall(cell), NUMBER.findall(now), strict=True):
                assert float(found) == pytest.approx(float(said), rel=1e-3, abs=near)
