"""Results of the calls that run models, and their JSON; the models themselves run elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim.api.by_profile import optimize_profile
from specsim.api.demo import Demonstration, demonstrate
from specsim.api.progress import quiet, steps
from specsim.checks import InvalidArgumentError
from specsim.frontier import read_positions
from specsim.intervals import Interval
from specsim.profiles import read_profile
from specsim.report.tables import show
from tests.support.positions import write_positions
from tests.support.profiles import write

ROW = {"temperature": 1.0, "prompts": "unseen", "gamma": 3, "exact": None, "z": -0.5}
ROW |= {"predicted_tokens_per_call": 2.5, "measured_tokens_per_call": 2.4}
ROW |= {"predicted_calls": 40.0, "measured_calls": 41, "formula_speedup": 1.8}
ROW |= {"predicted_speedup": 1.5, "measured_speedup": 1.4, "relative_error": 1.5 / 1.4 - 1}
ROW |= {"measured_low": 1.3, "measured_high": 1.5, "error_acceptance": 0.04}
ROW |= {"error_draft": 0.01, "error_verify": 0.02, "error_overhead": 0.0, "error_drift": 0.03}


def document(result: Any, schema: str) -> dict[str, Any]:
    """The JSON of a result, checked for what all of them have."""
    found: dict[str, Any] = json.loads(result.to_json())
    assert (found["schema"], found["version"]) == (f"specsim.{schema}", 1)
    assert found["warnings"] == list(result.warnings)
    assert len(found["answer"]["rows"]) == len(result.frame())
    return found


@pytest.fixture
def positions(tmp_path: Path) -> Path:
    return write_positions(tmp_path)


def calibration(folder: Path, **changes: Any) -> specsim.Calibration:
    path = write(folder)
    best = optimize_profile(path)
    return specsim.Calibration(path=path, profile=read_profile(path), best=best, **changes)


def test_a_calibration_says_what_pays_best(tmp_path: Path) -> None:
    found = calibration(tmp_path, left_out=(specsim.LeftOut("batch 8, context 64", "memory"),))
    answer = document(found, "calibrate")
    (row,) = answer["answer"]["rows"]
    assert answer["answer"]["rows"] == specsim.optimize(profile=found.path).rows()
    assert row["speedup"] > 1
    assert answer["answer"]["profile"] == str(found.path)
    assert answer["left_out"] == [{"what": "batch 8, context 64", "why": "memory"}]


def test_a_validation_says_whether_it_passed(capsys: pytest.CaptureFixture[str]) -> None:
    check = specsim.SpeedupCheck(gamma=(3,))
    failed = specsim.Validation(
        check=check,
        measured=(ROW, {**ROW, "temperature": 0.0}),
        errors=("relative error of the speedup: median 7.1%",),
        failures=("the median error is over the tolerance of 0.05",),
        inputs={"profile": "p.json", "check": check},
    )
    answer = document(failed, "validate")
    assert answer["answer"]["passed"] is failed.passed is False
    assert answer["answer"]["failures"] == list(failed.failures)
    assert answer["inputs"]["check"] | {"gamma": [3]} == answer["inputs"]["check"]
    assert "requests" in answer["inputs"]["check"]
    assert answer["answer"]["rows"][0] == ROW
    # A person sees some of the columns, and one temperature goes without saying.
    assert "measured_calls" not in failed.table()[0]
    assert "temperature" in failed.table()[0]
    assert "temperature" not in replace(failed, measured=(ROW,)).table()[0]
    show(failed, "table")
    assert "failed: the median error" in capsys.readouterr().err


def test_runs_of_every_model_are_one_cell(capsys: pytest.CaptureFixture[str]) -> None:
    runs = {"target": 40.0, "draft": 120.0}
    names = ("scheme", "setting", "law_tokens_per_call", "log_loss", "accuracy", "agreement")
    row = {**ROW, **dict.fromkeys(names), "runs_z": {"target": 0.1, "draft": 0.2}}
    row |= {"predicted_runs": runs, "measured_runs": {**runs, "target": 41.0}}
    found = specsim.Validation(check=specsim.SchemeCheck(), measured=(row,), errors=(), failures=())
    assert found.passed
    assert found.table()[0]["runs"] == "target 40 / 41, draft 120 / 120"
    show(found, "csv")
    assert "target=40.0 draft=120.0" in capsys.readouterr().out


def test_scores_are_of_both_models_alone(positions: Path) -> None:
    found = specsim.Scores(path=positions, positions=read_positions(positions))
    (row,) = document(found, "score")["answer"]["rows"]
    assert row["positions"] == 600
    assert 0 < row["mean_tv"] < 1


def test_deferral_has_intervals_and_its_inputs(
    positions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = specsim.defer(positions, quality="target", c=0.1, gamma=3)
    answer = document(found, "defer")
    assert answer["inputs"] | {"quality": "target", "c": 0.1, "gamma": 3} == answer["inputs"]
    assert answer["inputs"]["about"]["draft"] == "small"
    assert answer["answer"]["target_quality"] == found.target_quality
    granted = [row for row in answer["answer"]["rows"][1:] if "quality" in row]
    for row in granted:
        assert row["quality_low"] <= row["quality"] <= row["quality_high"]
    assert isinstance(found.table()[1]["quality"], Interval)
    show(found, "markdown")
    assert " to " in capsys.readouterr().out
    with pytest.raises(InvalidArgumentError, match="temperature needs a profile"):
        specsim.defer(positions, temperature=1.0)


def test_a_demonstration_says_how_the_decision_turned_out(tmp_path: Path) -> None:
    validation = specsim.Validation(
        check=specsim.SpeedupCheck(), measured=(ROW,), errors=(), failures=()
    )
    chosen = {"temperature": 1.0, "gamma": 3, "speedup": 1.55}
    chosen |= {"speedup_low": 1.5, "speedup_high": 1.6}
    found = Demonstration(
        draft="small",
        profile=tmp_path / "p.json",
        chosen=(chosen, {"temperature": 0.0, "gamma": 0, "speedup": 1.0}),
        validation=validation,
    )
    answer = document(found, "demo")["answer"]
    assert answer["chosen"][0] == chosen
    first, second = answer["verdict"]
    assert "let small draft 3; predicted 1.55" in first
    assert "leave speculation off" in second


def test_a_demonstration_that_was_killed_goes_on_with_its_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = specsim.Validation(
        check=specsim.SpeedupCheck(), measured=(ROW,), errors=(), failures=(), warnings=("busy",)
    )
    calibrated: list[Path] = []
    checks = iter((KeyboardInterrupt(), KeyboardInterrupt(), found, found))

    def calibrate(path: Path, *_: Any, **__: Any) -> None:
        calibrated.append(path)
        write(tmp_path).replace(path)

    def validate(*_: Any, **__: Any) -> specsim.Validation:
        outcome = next(checks)
        if isinstance(outcome, KeyboardInterrupt):
            raise outcome
        return outcome

    monkeypatch.setattr("specsim.api.demo.calibrate", calibrate)
    monkeypatch.setattr("specsim.api.demo.validate", validate)
    path = tmp_path / "profile.json"
    with pytest.raises(KeyboardInterrupt):
        demonstrate(tmp_path)
    # Written by somebody else meanwhile: not what was being checked.
    path.write_text(path.read_text() + "\n")
    with pytest.raises(KeyboardInterrupt):
        demonstrate(tmp_path)
    assert len(calibrated) == 2
    gone_on = demonstrate(tmp_path)
    assert len(calibrated) == 2
    assert gone_on.warnings == (
        f"went on with the profile that was measured before, {path}",
        "busy",
    )
    # One that came to its end is no other's beginning.
    assert demonstrate(tmp_path).warnings == ("busy",)
    assert len(calibrated) == 3
    assert not list(tmp_path.glob(".demo.*"))


def test_steps_are_counted_from_nothing_to_all() -> None:
    heard: list[tuple[str, int, int]] = []
    advance = steps(lambda *said: heard.append(said), "decoding", 2)
    advance()
    advance()
    assert heard == [("decoding", 0, 2), ("decoding", 1, 2), ("decoding", 2, 2)]
    quiet("decoding", 1, 2)


def test_wrong_descriptions_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="threads"):
        specsim.Models(threads=0)
    with pytest.raises(InvalidArgumentError, match="one for each of the 2 temperatures, got 3"):
        specsim.Measurement(requests=(4, 5, 6))
    with pytest.raises(InvalidArgumentError, match="gamma_max"):
        specsim.Measurement(gamma_max=0)
    with pytest.raises(InvalidArgumentError, match="requests must be"):
        specsim.SpeedupCheck(requests=1)
