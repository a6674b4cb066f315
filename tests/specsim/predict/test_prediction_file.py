"""What a profile predicts is fixed when it is first asked, and taken as it is from then on."""

from __future__ import annotations

import json
from dataclasses import replace
from math import hypot, log
from pathlib import Path

import msgspec
import numpy as np
import pytest

from specsim.optimizers.workload import Workload
from specsim.predict.measured import MeasuredPrediction
from specsim.predict.prediction_file import PredictionError, fixed, predicted_speedups
from specsim.profiles import BUSY, DRIFT_AT_PLAIN, read_profile
from tests.support.profiles import REPEATED, write

BLIND = Path(__file__).parents[3] / "studies/measured/blind"
AFTERNOON = BLIND / "afternoon" / "small-1.json"
# Of 24 passes.
LONG = BLIND / "three-times" / "small-1.json"


def test_the_recommended_length_is_predicted_as_recommended(tmp_path: Path) -> None:
    profile = write(tmp_path)
    found, path = fixed(profile, 20)
    (workload,) = Workload.all_of(read_profile(profile), profile, None)
    best = workload.best()
    assert [each.gamma for each in found.predictions] == [1, 2, 3, 4]
    (chosen,) = (each for each in found.predictions if each.chosen)
    assert chosen.gamma == best.gamma
    assert chosen.speedup == pytest.approx(best.speedup)
    assert (chosen.low, chosen.high) == pytest.approx((best.low, best.high))
    assert path.name == "p.prediction.json"
    # At the profile's plain step nothing is moved.
    at = chosen.at(chosen.plain_ms)
    assert (at.low, at.best, at.high) == pytest.approx(
        (chosen.known_low, chosen.speedup, chosen.known_high)
    )
    # Nothing was repeated, so that nobody knows what plain decoding would tell.
    assert (chosen.low, chosen.high) == (chosen.known_low, chosen.known_high)
    assert chosen.plain_ms == pytest.approx(1e3 * workload.plain_s)
    assert chosen.elasticity == workload.elasticity(chosen.gamma).best


def test_knowing_how_long_plain_decoding_takes_leaves_less_open() -> None:
    workloads = Workload.all_of(read_profile(REPEATED), REPEATED, None)
    for each in predicted_speedups(REPEATED, workloads, 16).predictions:
        assert each.low < each.known_low < each.speedup < each.known_high < each.high


def test_repeats_that_agree_leave_open_what_calibrations_differ_by() -> None:
    """However many passes there are, an interval is not narrower than that."""
    (greedy,) = Workload.all_of(read_profile(LONG), LONG, 0.0)
    repeats = greedy.predict([1], 0.0)[0].drawn_costs
    said = predicted_speedups(LONG, [greedy], 16).predictions[0]
    open_ = log(said.known_high / said.known_low) / (2 * 1.96)
    assert open_ == pytest.approx(hypot(np.log(repeats).std(), DRIFT_AT_PLAIN), rel=0.1)
    assert open_ > DRIFT_AT_PLAIN


def test_in_half_precision_texts_of_temperature_0_are_not_known() -> None:
    """Ties are broken otherwise now and then, so that acceptance is left open, too."""
    (single,) = Workload.all_of(read_profile(AFTERNOON), AFTERNOON, 0.0)
    software = msgspec.structs.replace(single.profile.software, dtype="bfloat16")
    half = replace(single, profile=msgspec.structs.replace(single.profile, software=software))
    known, unknown = (
        predicted_speedups(AFTERNOON, [each], 16).predictions for each in (single, half)
    )
    for sure, unsure in zip(known, unknown, strict=True):
        assert sure.speedup == unsure.speedup
        assert unsure.high - unsure.low > 1.1 * (sure.high - sure.low)


def test_what_was_predicted_stays(tmp_path: Path) -> None:
    profile = write(tmp_path)
    _, path = fixed(profile, 20)
    content = json.loads(path.read_text())
    content["predictions"][0]["speedup"] = 7.0
    path.write_text(json.dumps(content))
    assert fixed(profile, 20)[0].predictions[0].speedup == 7.0
    # Of another state of the profile it says nothing.
    profile.write_text(profile.read_text() + "\n")
    assert fixed(profile, 20)[0].predictions[0].speedup == pytest.approx(
        Workload.all_of(read_profile(profile), profile, None)[0].predict([1])[0].speedup
    )


def test_what_was_predicted_of_some_requests_stays_when_others_are_asked_for(
    tmp_path: Path,
) -> None:
    profile = write(tmp_path)
    _, path = fixed(profile, 20)
    content = path.read_bytes()
    few, other = fixed(profile, 3)
    assert (few.requests, other.name) == (3, "p.prediction-3.json")
    written = other.read_bytes()
    assert fixed(profile, 20)[1] == path
    assert fixed(profile, 3)[1] == other
    assert (path.read_bytes(), other.read_bytes()) == (content, written)


@pytest.mark.parametrize("state", ["missing", "of another profile"])
def test_what_was_predicted_stays_whatever_is_under_the_first_name(
    tmp_path: Path, state: str
) -> None:
    profile = write(tmp_path)
    _, first = fixed(profile, 20)
    _, second = fixed(profile, 3)
    content = json.loads(second.read_text())
    content["predictions"][0]["speedup"] = 7.0
    second.write_text(json.dumps(content))
    if state == "missing":
        first.unlink()
    else:
        other = json.loads(first.read_text()) | {"profile_sha256": "0"}
        first.write_text(json.dumps(other))
    found, path = fixed(profile, 3)
    assert (path, found.predictions[0].speedup) == (second, 7.0)
    # What is not there yet goes under the first name that is free.
    assert fixed(profile, 20)[1] == first


def test_a_busy_machine_leaves_more_open(tmp_path: Path) -> None:
    """A shift of 5 %, beside what requests leave open; and nothing of plain decoding."""

    def predicted(**changes: list[str]) -> tuple[MeasuredPrediction, ...]:
        path = write(tmp_path, **changes)
        (workload,) = Workload.all_of(read_profile(path), path, None)
        return tuple(workload.predict([0, 2]))

    quiet, busy = predicted(), predicted(notes=[f"{BUSY}other programs used 1.0 of 2 cores"])
    assert [each.speedup for each in busy] == [each.speedup for each in quiet]
    assert (busy[0].low, busy[0].high) == (1.0, 1.0)
    before, after = (log(each[1].high / each[1].low) / 2 for each in (quiet, busy))
    # A thousand draws tell a quantile to a few per cent.
    assert after == pytest.approx(hypot(before, 1.96 * 0.05), rel=0.1)


@pytest.mark.parametrize(("temperature", "same"), [(0.0, False), (1.0, True)])
def test_known_texts_are_predicted_and_drawn_ones_as_all(
    tmp_path: Path, temperature: float, same: bool
) -> None:
    """At temperature 0 the requests that are decoded; above, where texts differ, all of them."""
    content = json.loads(write(tmp_path).read_text())
    content["acceptance"][0]["sampling"]["temperature"] = temperature
    for row in content["overhead"]:
        row["temperature"] = temperature
    profile = tmp_path / "p.json"
    profile.write_text(json.dumps(content))
    few, _ = fixed(profile, 3)
    assert few.requests == 3
    assert (few.predictions == fixed(profile, 20)[0].predictions) is same


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": 3.0, "high": 2.0}, r": low must be <= high = 2, got 3 - at `\$.predictions\[0\]`"),
        ({"known_low": 3.0, "known_high": 2.0}, "known_low must be <= known_high = 2, got 3"),
        ({"speedup": 0}, "> 0"),
        ({"plain_ms": 0}, "> 0"),
        ({"elasticity_error": -1}, ">= 0"),
        ({"low": -0.1}, "> 0"),
        ({"temperature": -1}, ">= 0"),
        ({"gamma": 2}, r"predictions\[1\] is of temperature 1 and gamma 2, as one before"),
        ({"more": 1}, "unknown field `more`"),
    ],
)
def test_a_prediction_that_cannot_be_is_refused(
    tmp_path: Path, change: dict[str, float], message: str
) -> None:
    profile = write(tmp_path)
    _, path = fixed(profile, 20)
    content = json.loads(path.read_text())
    content["predictions"][0] |= change
    path.write_text(json.dumps(content))
    with pytest.raises(PredictionError, match=message) as refused:
        fixed(profile, 20)
    assert "\n" not in str(refused.value)


def test_a_prediction_that_lacks_a_draft_length_is_refused(tmp_path: Path) -> None:
    """Before anything is decoded for it."""
    profile = write(tmp_path)
    _, path = fixed(profile, 20)
    content = json.loads(path.read_text())
    del content["predictions"][-1]
    path.write_text(json.dumps(content))
    with pytest.raises(PredictionError, match=r"lacks temperature 1 and gamma \d of its profile"):
        fixed(profile, 20)
