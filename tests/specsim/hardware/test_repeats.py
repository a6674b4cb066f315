"""Repeats of a measured ratio: what their mean is, how sure it is, and what the law makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specsim.hardware.host_times import HostTimes
from specsim.hardware.repeats import PassDraws, Repeats, spread_of_means
from specsim.hardware.run_time_fit import FittedRunTimes, GridPoint, fits, pass_draws
from specsim.predict.measured import RunTimes
from specsim.profiles import Overhead, RunTime


def test_an_interruption_counts_and_does_not_ruin() -> None:
    calm = [1.0, 1.1, 0.9, 1.05, 0.95]
    assert Repeats.of(calm).mean == pytest.approx(1.0)
    held = Repeats.of([*calm, 50.0]).mean
    # Three spreads: the median distance from the median 1.025 is 0.075.
    assert held == pytest.approx((5.0 + 1.025 + 3 * 0.075 / 0.6745) / 6)


def test_a_value_with_half_of_the_weight_hides_no_other() -> None:
    """It is the median, and its distance from the median is none."""
    found = Repeats.of([1.14, 1.20], [1, 3], [20, 16])
    assert found.mean == pytest.approx((20 * 1.14 + 16 * 1.20) / 36)
    # What is farther away than the others are from it is held as ever.
    assert Repeats.of([1.0, 1.01, 0.99, 9.0], weights=[30, 5, 5, 1]).mean == pytest.approx(
        (30 + 5.05 + 4.95 + 1 + 3 * 0.01 / 0.6745) / 41
    )


def test_contexts_count_as_often_as_they_were_timed() -> None:
    """The first run of a decoding is a slow one, and alone at its context."""
    contexts, runs = np.array([32.0, 96.0, 160.0]), np.array([1.0, 63.0, 40.0])
    seconds = np.array([1.17, 1.0, 1.01])
    level, slope = RunTimes(np.ones(1), contexts, seconds[None], runs).line(1)
    expected = np.polyfit(contexts, seconds, 1, w=np.sqrt(runs))
    assert (slope, level) == pytest.approx(tuple(expected))
    assert slope > 0 > RunTimes(np.ones(1), contexts, seconds[None]).line(1)[1]


def test_a_width_that_was_timed_once_is_no_surer_than_the_others() -> None:
    measured = points(0.1)
    once = replace(
        measured[4],
        seconds=1.15 * line(5),
        repeats=Repeats(np.ones(1), np.array([2]), np.ones(1)),
    )
    draws = PassDraws((0, 1, 2, 3))
    alone, exact = (
        FittedRunTimes.of([*measured[:4], each, *measured[5:]])
        for each in (once, replace(once, exact=True))
    )
    assert exact(5, 1, 64) == pytest.approx(1.15 * line(5))
    assert abs(alone(5, 1, 64) / line(5) - 1) < 0.12
    # A standard error of a single pass is twice that of four.
    spread = {
        tokens: float(np.log(alone.drawn(tokens, 1, 64, draws)).std()) for tokens in range(1, 10)
    }
    assert spread[5] > np.median(list(spread.values()))


def test_spreads_within_and_between_passes_are_told_apart() -> None:
    """Of 400 means of 3 passes with 5 repeats; the seed gives an error below 5 %."""
    random = np.random.default_rng(3)
    passes = np.repeat([0, 1, 2], 5)
    repeats = [
        Repeats(
            1 + 0.02 * random.standard_normal(3)[passes] + 0.05 * random.standard_normal(15),
            passes,
            np.ones(15),
        )
        for _ in range(400)
    ]
    expected = np.sqrt(0.02**2 / 3 + 0.05**2 / 15)
    assert spread_of_means(repeats) == pytest.approx(np.full(400, expected), rel=0.05)
    assert (spread_of_means([Repeats.of([1.0]), Repeats.of([2.0])]) == 0).all()


def test_repeats_count_as_often_as_they_weigh() -> None:
    """One that weighs three is three that agree, for the mean and what is held of it."""
    weighed = Repeats.of([1.0, 1.2, 9.0], [0, 0, 1], [3, 2, 1])
    counted = Repeats.of([1.0, 1.0, 1.0, 1.2, 1.2, 9.0], [0, 0, 0, 0, 0, 1])
    assert weighed.mean == pytest.approx(counted.mean)
    draws = PassDraws((0, 1))
    assert weighed.drawn(draws) == pytest.approx(counted.drawn(draws))


def test_spreads_of_weighted_means_are_those_that_they_have() -> None:
    """Of 400 means of 4 passes with 5 repeats; the seed gives an error below 5 %.

    Repeats scatter alike however many runs they are of: it is the machine that drifts.
    """
    random = np.random.default_rng(5)
    passes = np.repeat([0, 1, 2, 3], 5)
    weights = np.tile([12.0, 1, 2, 1, 4], 4)
    repeats = [
        Repeats(
            1 + 0.02 * random.standard_normal(4)[passes] + 0.05 * random.standard_normal(20),
            passes,
            weights,
        )
        for _ in range(400)
    ]
    (found,) = set(spread_of_means(repeats).tolist())
    seen = np.std([each.mean for each in repeats])
    expected = np.sqrt(0.02**2 / 4 + 0.05**2 * (weights**2).sum() / weights.sum() ** 2)
    assert found == pytest.approx(expected, rel=0.05)
    assert seen == pytest.approx(expected, rel=0.1)


def test_passes_count_alike_for_what_they_differ_by() -> None:
    """Of 4,000 means of 2 passes, one with 9 repeats and one with a single one; the seed gives an
    error below 5 %.
    """
    random = np.random.default_rng(7)
    passes = np.repeat([0, 1], [9, 1])
    repeats = [
        Repeats(
            1 + 0.03 * random.standard_normal(2)[passes] + 0.02 * random.standard_normal(10),
            passes,
            np.ones(10),
        )
        for _ in range(4000)
    ]
    (found,) = set(spread_of_means(repeats).tolist())
    expected = np.sqrt(0.03**2 * (0.9**2 + 0.1**2) + 0.02**2 / 10)
    assert found == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("passes", "every"), [(3, 1), (6, 1), (16, 1), (4, 2), (8, 2)])
def test_the_interval_of_a_mean_holds(passes: int, every: int) -> None:
    """95 % of 1,000 made-up measurements; a coverage of 0.92 to 0.98 fails once in 10,000.

    every : passes of which one has the mean's repeats, as host times have one temperature's
    """
    random = np.random.default_rng(passes)
    draws = PassDraws(tuple(range(every * passes)))
    number = np.repeat(np.arange(passes), 4)
    hits = 0
    for _ in range(1000):
        values = 0.05 * random.standard_normal(passes)[number] + 0.02 * random.standard_normal(
            4 * passes
        )
        found = Repeats(1 + values, every * number, np.ones(values.size))
        low, high = np.quantile(found.mean + found.drawn(draws), [0.025, 0.975])
        hits += low <= 1.0 <= high
    assert 0.92 <= hits / 1000 <= 0.98


def test_one_pass_says_nothing_of_drift() -> None:
    assert (Repeats.of([1.0, 2.0]).drawn(PassDraws((0,))) == 0).all()


def line(tokens: int) -> float:
    return 1.0 + 0.05 * (tokens - 1)


def points(noise: float, jump: float = 0.0, seed: int = 0) -> list[GridPoint]:
    """Widths 1 to 9 in 4 passes; from 5 on a run takes so much longer."""
    random = np.random.default_rng(seed)
    found = []
    for tokens in range(1, 10):
        values = 1 + noise * random.standard_normal(4)
        seconds = line(tokens) * (1 + jump * (tokens >= 5)) * values.mean()
        found.append(
            GridPoint(
                tokens, 1, 64, seconds, Repeats(values / values.mean(), np.arange(4), np.ones(4))
            )
        )
    return found


def test_widths_whose_repeats_scatter_follow_their_neighbours() -> None:
    """Over 20 made-up measurements with 5 % of noise a repeat, against means by width."""
    raw, smooth = [], []
    for seed in range(20):
        measured = points(0.05, seed=seed)
        times = FittedRunTimes.of(measured)
        raw += [p.seconds / line(p.tokens) - 1 for p in measured]
        smooth += [times(p.tokens, 1, 64) / line(p.tokens) - 1 for p in measured]
    assert np.std(smooth) < 0.75 * np.std(raw)


def test_a_jump_that_repeats_agree_on_stays() -> None:
    times = FittedRunTimes.of(points(0.002, jump=0.3))
    assert times(5, 1, 64) / times(4, 1, 64) == pytest.approx(1.3 * line(5) / line(4), rel=0.01)


def test_draws_lie_around_the_law_and_are_shared_by_all_runs_of_a_pass() -> None:
    """All runs are 5 % slower than plain ones in odd passes, so their draws move together."""
    drift = [1.0, 1.05] * 4
    rows = [
        RunTime(
            "target",
            "draft",
            n,
            1,
            64,
            "eager",
            [line(n) * d for d in drift],
            [1.0] * 8,
            list(range(8)),
        )
        for n in range(1, 10)
    ]
    times = fits(rows)["eager", "target"]
    draws = pass_draws(rows)
    assert draws.passes == tuple(range(8))
    narrow, wide = (times.drawn(n, 1, 64, draws) for n in (2, 9))
    assert np.median(narrow) == pytest.approx(times(2, 1, 64), rel=0.01)
    assert 0.005 < narrow.std() / narrow.mean() < 0.05
    assert np.corrcoef(narrow, wide)[0, 1] > 0.95


def test_host_time_is_a_ratio_to_plain_runs_too() -> None:
    """Its second stretch was measured while everything took twice as long."""
    rows = [
        Overhead(1.0, 0, 1, 0, "eager", [0.1, 0.2], [1.0, 2.0], [0, 1]),
        Overhead(1.0, 3, 1, 0, "eager", [0.3, 0.6], [1.0, 2.0], [0, 1]),
    ]
    host = HostTimes.of(rows, 1.0)
    assert [host(0), host(3)] == pytest.approx([0.15, 0.45])
    assert host.drawn(3, PassDraws((0, 1))) == pytest.approx(np.full(1000, 0.45))


def test_host_times_of_a_longer_context_are_no_slower_machine() -> None:
    """Plain steps tell of drift among those of one context."""
    rows = [
        Overhead(1.0, gamma, 4, context, "eager", [1e-3], [plain], [0])
        for gamma in (0, 2)
        for context, plain in ((128, 0.01), (2048, 0.05))
    ]
    assert HostTimes.of(rows, 1.0)(2) == pytest.approx(1e-3)
