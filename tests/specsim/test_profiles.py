"""Profile files at the door, and what is read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specsim import profiles
from specsim.checks import Floats, InvalidArgumentError, UnsupportedError
from specsim.files import FileError
from specsim.optimizers.workload import Workload
from specsim.predict.measured import MeasuredCost, MeasuredPrediction, choose, predict
from specsim.predict.replay.fixed_gamma import replay
from specsim.traces import TraceError
from tests.support.profiles import write


@pytest.fixture
def load(tmp_path: Path) -> Workload:
    path = write(tmp_path)
    return Workload.all_of(profiles.read_profile(path), path, None)[0]


def test_round_trip(tmp_path: Path) -> None:
    path = write(tmp_path)
    profile = profiles.read_profile(path)
    profiles.write_profile(profile, tmp_path / "again.json")
    assert profiles.read_profile(tmp_path / "again.json") == profile
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.json", "p.json", "p.trace.parquet"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"surprise": 1}, "unknown field `surprise`"),
        ({"version": 1}, "has version 1, this specsim reads version 3"),
        ({"schema": "other"}, "not a specsim profile"),
        ({"gamma_max": "four"}, r"Expected `int`, got `str` - at `\$.gamma_max`"),
        ({"gamma_max": 0}, r"Expected `int` >= 1 - at `\$.gamma_max`"),
        ({"grid": [{"model": "target"}]}, r"missing required field `follows` - at `\$.grid"),
    ],
)
def test_bad_profiles_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(profiles.ProfileError, match=message):
        profiles.read_profile(path)


def test_costs_alone_say_nothing_of_acceptance(tmp_path: Path) -> None:
    profile = profiles.read_profile(write(tmp_path, acceptance=[]))
    with pytest.raises(profiles.ProfileError, match="no acceptance, only costs"):
        profile.sampled(None)


def test_not_even_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    for content in (b"\xff\xfe", b"[" * 100_000, b"[1, 2]", b""):
        path.write_bytes(content)
        with pytest.raises(profiles.ProfileError):
            profiles.read_profile(path)


def test_truncated_and_missing_profiles_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(profiles.ProfileError, match="not complete JSON"):
        profiles.read_profile(path)
    with pytest.raises(profiles.ProfileError, match="no such file"):
        profiles.read_profile(tmp_path / "none.json")


def test_a_changed_trace_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    profile = profiles.read_profile(path)
    (tmp_path / "p.trace.parquet").write_bytes(b"other")
    with pytest.raises(profiles.ProfileError, match="its hash differs"):
        Workload.all_of(profile, path, None)


def test_a_link_leads_to_the_traces_too(tmp_path: Path) -> None:
    """Unless they lie beside the link, as older versions wrote them."""
    (tmp_path / "runs").mkdir()
    path, link = write(tmp_path / "runs"), tmp_path / "latest.json"
    link.symlink_to(path)
    profile = profiles.read_profile(link)
    (measured,) = profile.acceptance
    assert profile.trace(link, measured).requests == 20
    path.with_name("p.trace.parquet").rename(tmp_path / "p.trace.parquet")
    assert profile.trace(link, measured).requests == 20
    (tmp_path / "p.trace.parquet").unlink()
    with pytest.raises(TraceError, match=r"p\.trace\.parquet: no such file"):
        profile.trace(link, measured)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    profile = profiles.read_profile(write(tmp_path))
    with pytest.raises(FileError, match="cannot be written"):
        profiles.write_profile(profile, tmp_path / "none" / "p.json")


def test_prediction_prices_the_replay(load: Workload) -> None:
    """Against the sum written out: every block start times what its block costs."""
    gamma = 3
    replayed = replay(load.trace, [gamma])[0]
    total = 0.0
    for request in range(20):
        for position in range(50):
            start = replayed.starts[50 * request + position]
            length = min(gamma, 50 - position - 1)
            total += start * 0.01 * (1 + 0.1 * length)
            if length:
                total += start * (0.002 + (length - 1) * 0.001)
                # After a bonus token the draft reads two tokens first.
                total += replayed.bonus[50 * request + position] * 0.0002
    expected = 20 * 50 * 0.01 / total
    assert load.predict([gamma])[0].speedup == pytest.approx(expected, rel=1e-12)
    assert load.predict([0])[0].speedup == 1


def test_best_gamma_is_the_best_of_all(load: Workload) -> None:
    best = load.best()
    fastest = max(load.predict(range(5)), key=lambda each: each.speedup)
    assert best.gamma == fastest.gamma
    # Run times were not repeated, so nothing says that it is flattered.
    assert best.speedup == pytest.approx(fastest.speedup)
    assert best.low < best.speedup < best.high
    assert load.draft_cost == pytest.approx(0.1)


def test_gamma_beyond_the_profile_is_refused(load: Workload) -> None:
    with pytest.raises(InvalidArgumentError, match="calibrate with a larger --gamma-max"):
        load.predict([5])


def test_missing_run_times_are_refused(tmp_path: Path) -> None:
    profile = profiles.read_profile(write(tmp_path))
    wide = [row for row in profile.run_times if row.tokens > 1]
    with pytest.raises(UnsupportedError, match="run times of the target are incomplete"):
        MeasuredCost.of(wide, profile.overhead, 1.0)
    with pytest.raises(UnsupportedError, match="no overhead"):
        MeasuredCost.of(profile.run_times, profile.overhead, 0.0)


def test_context_changes_the_price(tmp_path: Path) -> None:
    """Run times that double with the context: later positions cost more."""
    path = write(tmp_path)
    profile = profiles.read_profile(path)
    import msgspec

    steep = [
        msgspec.structs.replace(
            row,
            seconds=[each * row.context / 10 for each in row.seconds],
            plain=[each * row.context / 10 for each in row.plain],
        )
        for row in profile.run_times
    ]
    cost = MeasuredCost.of(steep, profile.overhead, 1.0)
    trace = profile.trace(path, profile.acceptance[0])
    # Position s reads one token with 10 + s - 1 in the cache.
    expected = sum(0.01 * (9 + s) / 10 for s in range(50))
    assert cost.plain_seconds(trace) == pytest.approx([expected] * 20)
    assert predict(trace, cost, [1], max_new_tokens=50)[0].speedup > 0


def test_requests_that_end_early_still_draft(load: Workload) -> None:
    """The decoder cannot know where end-of-text falls: only the limit shortens drafts."""
    replayed = replay(load.trace, [4])[0]
    at_limit, early = (load.cost.seconds(load.trace, replayed, limit) for limit in (50, 500))
    assert (early > at_limit).all()
    whole_blocks = replayed.starts.sum() * (0.01 * 1.4 + 0.002 + 3 * 0.001)
    assert early.sum() == pytest.approx(whole_blocks + replayed.bonus.sum() * 0.0002)


def test_oracle_is_faster_than_every_gamma(load: Workload) -> None:
    assert load.oracle_speedup() > load.best().speedup


def test_the_best_of_several_is_not_flattered() -> None:
    """Four lengths that are all 1.2 times as fast, each measured with an error of 3 %: the fastest
    estimate is 1.237 in the mean.  Mean of 400; its standard error is 0.001.
    """
    random = np.random.default_rng(1)
    chosen, fastest = [], []
    for _ in range(400):
        estimates = 1.2 + 0.036 * random.standard_normal(4)
        found = [
            MeasuredPrediction(
                gamma=gamma,
                tokens=1,
                calls=1.0,
                tokens_per_call=2.0,
                speedup=estimate,
                low=estimate - 0.07,
                high=estimate + 0.07,
                drawn=(drawn := estimate + 0.036 * random.standard_normal(1000)),
                drawn_costs=drawn,
            )
            for gamma, estimate in enumerate(estimates.tolist(), 1)
        ]
        chosen.append(choose(found).speedup)
        fastest.append(max(estimates))
    assert np.mean(fastest) > 1.235
    # What is left is a third of it: draws around estimates that differ already flatter less.
    assert 1.195 < np.mean(chosen) < 1.215


def test_what_is_slower_than_plain_decoding_is_not_chosen() -> None:
    """Drafts that gain nothing, whose speedup is known to 4 %: it is above 1 in the mean, by the
    mean of a ratio, and below when what flatters it is taken off.
    """
    off = 0.04 * np.random.default_rng(0).standard_normal(500)
    ratio = np.exp(np.concatenate([off, -off]))

    def predicted(gamma: int, low: float, drawn: Floats) -> MeasuredPrediction:
        return MeasuredPrediction(
            gamma=gamma,
            tokens=1,
            calls=1.0,
            tokens_per_call=1.0,
            speedup=1.0,
            low=low,
            high=2 - low,
            drawn=drawn,
            drawn_costs=drawn,
        )

    plain, drafts = predicted(0, 1.0, np.ones(1000)), predicted(1, 0.92, ratio)
    assert ratio.mean() > 1
    assert choose([plain, drafts]) is plain
    assert choose([drafts]).gamma == 1


def test_version_2_is_read_as_it_was(tmp_path: Path) -> None:
    """Medians alone: the same figures, and nothing known of how sure run times are."""
    path = write(tmp_path)
    now = json.loads(path.read_text())
    before = {**now, "version": 2}
    before["run_times"] = [
        {name: row[name] for name in ("model", "follows", "tokens", "context", "batch")}
        | {"repeats": 5, "median_s": row["seconds"][0], "low_s": 0.0, "high_s": 1.0}
        for row in now["run_times"]
    ]
    before["overhead"] = [
        {"temperature": 1.0, "gamma": row["gamma"], "requests": 3, "blocks": 9}
        | {"median_s": 0.0, "low_s": 0.0, "high_s": 0.0}
        for row in now["overhead"]
    ]
    old = tmp_path / "old.json"
    old.write_text(json.dumps(before))
    found, expected = (
        Workload.all_of(profiles.read_profile(each), each, None)[0].predict([2])[0]
        for each in (old, path)
    )
    assert found.speedup == pytest.approx(expected.speedup, rel=1e-12)
    assert found.low == pytest.approx(expected.low, rel=1e-12)
    del before["run_times"][0]["median_s"]
    old.write_text(json.dumps(before))
    with pytest.raises(profiles.ProfileError, match="not as version 2 is"):
        profiles.read_profile(old)
