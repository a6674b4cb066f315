"""A speedup where plain decoding takes another time than in the calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import specsim
from specsim.checks import InvalidArgumentError
from specsim.intervals import Interval
from specsim.optimizers.workload import Workload
from specsim.predict.elasticity import PRIOR, Elasticities, Elasticity, PassSlope, pass_slopes
from specsim.predict.measured import MeasuredCost
from specsim.predict.replay.fixed_gamma import replay
from specsim.profiles import Overhead, RunTime, read_profile
from tests.support.profiles import write
from tests.support.traces import trace_of

PASSES, RUNS = 16, 4
UNKNOWN = Elasticity(1.0, PRIOR)
# By kind of run: how many per cent longer where a plain step takes 1 % longer.
TRUE = {"target": 0.5, "draft": 0.9, "host": 0.2}


def rows(
    spread: float, moment: float = 0.0, noise: float = 0.0, seed: int = 0
) -> tuple[list[RunTime], list[Overhead]]:
    """Passes whose plain steps differ by ``spread``, which lasts from one to the next, and what
    else runs in them.

    moment : what the plain steps of a pass differ by besides, and its runs do not
    noise : what runs differ by besides
    """
    random = np.random.default_rng(seed)
    state = spread * 2**0.5 * np.sin(2 * np.pi * np.arange(PASSES) / PASSES)
    passes = np.repeat(np.arange(PASSES), RUNS)

    def seconds(level: float, elasticity: float) -> list[float]:
        drawn = random.normal(0.0, noise, passes.size)
        return (level * np.exp(elasticity * state[passes] + drawn)).tolist()

    beside_runs = state + random.normal(0.0, moment, PASSES)
    plain = (1e-3 * np.exp(beside_runs[passes])).tolist()
    beside = {"batch": 1, "context": 64, "mode": "eager", "plain": plain}
    beside["passes"] = passes.tolist()
    found = [RunTime("target", "target", 1, seconds=seconds(1e-3, 1.0), **beside)]
    for tokens in (2, 3, 4, 5):
        wide = seconds(1e-3 * (1 + 0.1 * tokens), TRUE["target"])
        found.append(RunTime("target", "draft", tokens, seconds=wide, **beside))
    for follows, level in (("target", 2e-4), ("draft", 1e-4)):
        found.append(RunTime("draft", follows, 1, seconds=seconds(level, TRUE["draft"]), **beside))
    found.append(RunTime("draft", "target", 2, seconds=seconds(2e-4, TRUE["draft"]), **beside))
    host = [
        Overhead(0.0, gamma, seconds=seconds(1e-5 * (1 + gamma), TRUE["host"]), **beside)
        for gamma in range(5)
    ]
    return found, host


def test_passes_that_differ_much_tell_the_elasticities() -> None:
    run_times, overhead = rows(spread=0.5)
    found = Elasticities.of(run_times, overhead, 0.0)
    for slope, true in zip(pass_slopes(run_times, overhead, 0.0), TRUE.values(), strict=True):
        # Held means are off where runs differ by half.
        assert slope.best == pytest.approx(true, abs=0.1)
        assert slope.error < 0.05
        assert slope.by_chance < 0.02
    for kind, true in TRUE.items():
        told: Elasticity = getattr(found, kind)
        assert told.best == pytest.approx(true, abs=0.1)
        assert told.error < 0.1


def calibrations(**differ: float) -> tuple[list[PassSlope], np.ndarray]:
    """What 200 of them say of the target, and the slopes of least squares."""
    slopes, least_squares = [], []
    for seed in range(200):
        run_times, overhead = rows(**differ, seed=seed)
        slopes.append(pass_slopes(run_times, overhead, 0.0)[0])
        wide = run_times[1]
        x, y = (np.log(each).reshape(PASSES, RUNS).mean(1) for each in (wide.plain, wide.seconds))
        least_squares.append(np.polyfit(x, y, 1)[0])
    return slopes, np.array(least_squares)


def covers(found: Sequence[Elasticity], true: float) -> float:
    """How often 95 % intervals hold it."""
    return float(np.mean([abs(each.best - true) < 1.96 * each.error for each in found]))


def test_what_lasts_for_a_moment_does_not_flatten_the_slope() -> None:
    slopes, least_squares = calibrations(spread=0.1, moment=0.06, noise=0.01)
    assert np.median(least_squares) < 0.4
    assert np.median([each.best for each in slopes]) == pytest.approx(TRUE["target"], abs=0.05)
    assert covers([Elasticity(each.best, each.widened) for each in slopes], TRUE["target"]) > 0.9
    # 95 % intervals of so many passes are 9 % wider than if the error were known.
    assert slopes[0].freedom == PASSES - 2
    assert slopes[0].widened == pytest.approx(2.144787 / 1.959964 * slopes[0].error, rel=1e-6)
    assert covers([each.elasticity for each in slopes], TRUE["target"]) > 0.9


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.05])
def test_where_nothing_lasts_passes_tell_little(noise: float) -> None:
    """Plain steps are longer for a moment, and runs are not: least squares would say 0, and be sure
    of it.
    """
    slopes, least_squares = calibrations(spread=0.0, moment=0.06, noise=noise)
    assert abs(np.median(least_squares)) < 0.1
    found = [each.elasticity for each in slopes]
    assert np.mean([each.best for each in found]) > 0.8
    assert covers(found, 1.0) > 0.9


def test_runs_that_wander_by_themselves_are_hardly_taken_for_the_machine() -> None:
    """A walk of the runs that plain steps do not follow, as far as a quarter of what they do.  The
    error of the slope does not know of it: 95 % intervals hold 83 %.
    """
    random = np.random.default_rng(5)
    found = []
    for seed in range(200):
        run_times, overhead = rows(spread=0.1, moment=0.03, noise=0.01, seed=seed)
        walk = np.cumsum(random.normal(0.0, 0.01, PASSES))
        wandering = [
            msgspec.structs.replace(
                row,
                seconds=[
                    seconds * exp(walk[number])
                    for seconds, number in zip(row.seconds, row.passes, strict=True)
                ],
            )
            for row in run_times
        ]
        found.append(Elasticities.of(wandering, overhead, 0.0).target)
    assert covers(found, TRUE["target"]) == pytest.approx(0.83)
    assert np.mean([each.best for each in found]) == pytest.approx(TRUE["target"], abs=0.1)


def test_passes_that_are_alike_tell_nothing() -> None:
    run_times, overhead = rows(spread=0.002, noise=0.1)
    found = Elasticities.of(run_times, overhead, 0.0)
    for kind in (found.target, found.draft, found.host):
        assert kind.best == pytest.approx(1.0, abs=0.05)
        assert kind.error == pytest.approx(UNKNOWN.error, abs=0.02)
    assert Elasticities.of(run_times, overhead, 1.0).host == UNKNOWN
    alone = [msgspec.structs.replace(row, passes=[]) for row in run_times]
    assert Elasticities.of(alone, overhead, 0.0) == Elasticities(UNKNOWN, UNKNOWN, UNKNOWN)
    # Every other pass: none has a neighbour.
    apart = [
        msgspec.structs.replace(row, passes=[2 * each for each in row.passes]) for row in run_times
    ]
    assert Elasticities.of(apart, [], 0.0) == Elasticities(UNKNOWN, UNKNOWN, UNKNOWN)


def test_contexts_that_passes_have_by_turns_are_no_states() -> None:
    """Longer contexts take longer by nature."""
    run_times, overhead = rows(spread=0.1)
    by_turns = []
    for row in run_times:
        for context, longer in ((64, 1.0), (512, 1.3)):
            kept = [at for at, each in enumerate(row.passes) if (each % 4 < 2) == (context == 64)]
            by_turns.append(
                msgspec.structs.replace(
                    row,
                    context=context,
                    passes=[row.passes[at] for at in kept],
                    plain=[longer * row.plain[at] for at in kept],
                    seconds=[longer * row.seconds[at] for at in kept],
                )
            )
    found = Elasticities.of(by_turns, overhead, 0.0)
    assert found.host.best == pytest.approx(TRUE["host"], abs=0.15)


@pytest.mark.parametrize(("factor", "off"), [(0.8, 0.05), (1.001, 0.005), (1.25, 0.05)])
@pytest.mark.parametrize("by_lookup", [False, True])
def test_a_moved_speedup_is_that_of_moved_costs(factor: float, off: float, by_lookup: bool) -> None:
    """Where every run is as long as its elasticity says, to first order in the change.  A lookup
    finds nothing two times in three, and the target's run is a plain step then.

    off : how far off the first order is, as a share; however small the change, 0.3 % are left by
        widths of the target's runs that are smoothed together
    """
    run_times, overhead = rows(spread=0.1)
    if by_lookup:
        run_times = [row for row in run_times if row.model == "target"]
    found = Elasticities.of(run_times, overhead, 0.0)
    drawn = trace_of(*np.random.default_rng(0).uniform(0.3, 1.0, (20, 50)).tolist())
    columns = {"context": np.full(drawn.tokens, 64)}
    if by_lookup:
        columns["found"] = np.where(np.arange(drawn.tokens) % 3, 0, 3)
        columns["matched"] = np.minimum(columns["found"], np.arange(drawn.tokens) % 4)
    trace = replace(drawn, columns=columns)

    def moved(row: RunTime | Overhead) -> RunTime | Overhead:
        if isinstance(row, Overhead):
            kind = found.host
        elif row.model == "draft":
            kind = found.draft
        else:
            kind = found.target if row.tokens > 1 else Elasticity(1.0, 0.0)
        seconds = [each * factor**kind.best for each in row.seconds]
        plain = [each * factor for each in row.plain]
        return msgspec.structs.replace(row, seconds=seconds, plain=plain)

    def speedups(run_times: list[RunTime], overhead: list[Overhead]) -> tuple[float, float, float]:
        cost = MeasuredCost.of(run_times, overhead, 0.0, by_lookup)
        plain = cost.price(cost.plain_spent(trace)).sum(axis=1)
        (replayed,) = replay(trace, [3])
        spent = cost.spent(trace, replayed, 64)
        parts = cost.price(spent).sum(axis=1)
        moves = found.speedup(plain, parts, cost.undrafted_s(spent).sum())
        return plain.sum(), plain.sum() / parts.sum(), moves.best

    before_s, before, slope = speedups(run_times, overhead)
    after_s, after, _ = speedups(list(map(moved, run_times)), list(map(moved, overhead)))
    assert 0.1 < slope < 0.5
    told = slope * log(after_s / before_s)
    assert log(after / before) == pytest.approx(told, rel=off)


@given(
    speedup=st.floats(0.2, 5.0),
    best=st.floats(-1.0, 1.0),
    error=st.floats(0.0, 1.0),
    plain=st.floats(0.2, 5.0),
)
def test_intervals_of_moved_speedups(
    speedup: float, best: float, error: float, plain: float
) -> None:
    """They hold the speedup, are wider the further it is moved, and go back as they came."""
    figure = Interval(0.9 * speedup, speedup, 1.2 * speedup)
    moved = Elasticity(best, error).moved(figure, plain)
    assert moved.best == pytest.approx(speedup * plain**best)
    assert moved.low <= moved.best <= moved.high
    assert moved.best / moved.low >= figure.best / figure.low * (1 - 1e-12)
    assert moved.high / moved.best >= figure.high / figure.best * (1 - 1e-12)
    still = Elasticity(best, error).moved(figure, 1.0)
    ends = (figure.low, figure.best, figure.high)
    assert (still.low, still.best, still.high) == pytest.approx(ends)


def test_a_plain_step_must_last() -> None:
    figure = Interval(1.0, 1.1, 1.2)
    with pytest.raises(InvalidArgumentError, match="plain must be > 0, got 0"):
        Elasticity(0.3, 0.1).moved(figure, 0.0)
    wide = Elasticity(0.0, 0.1).moved(figure, exp(1))
    assert log(wide.best / wide.low) == pytest.approx(np.hypot(log(1.1), 1.959964 * 0.1), rel=1e-6)


def test_a_forecast_says_how_it_moves(tmp_path: Path) -> None:
    path = write(tmp_path)
    found = specsim.optimize(profile=path)
    (workload,) = Workload.all_of(read_profile(path), path, None)
    (forecast,) = found.rows()
    assert forecast["plain_ms_per_token"] == pytest.approx(1e3 * workload.plain_s)
    assert forecast["elasticity"] == workload.elasticity(forecast["gamma"]).best
    moved = replace(
        found, forecasts=(replace(found.forecasts[0], plain_ms_per_token=3.2, elasticity=0.5),)
    )
    assert (
        "temperature 1: plain decoding took 3.2 ms a token in the calibration; where it takes 10% "
        "longer, the speedup is 4.9% higher"
    ) in moved.sentences()
    # Plain decoding is 1 everywhere.
    assert workload.elasticity(0) == Elasticity(0.0, 0.0)
    plain = replace(found, forecasts=(replace(found.forecasts[0], gamma=0),))
    assert not any("10% longer" in each for each in plain.sentences())
