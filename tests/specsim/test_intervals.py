"""The bootstrap over requests against a loop that draws one request after another, and what two
intervals explain of a difference.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specsim.intervals import (
    FALSE_ALARM,
    Bootstrap,
    Interval,
    apart,
    around,
    chance_limit,
    mean_of,
    over,
    sum_half_width,
    t_quantile,
    wilson_interval,
)


def test_sums_and_ratios_are_a_loop() -> None:
    random = np.random.default_rng(1)
    above, below = random.random(9), random.integers(1, 5, 9)
    bootstrap = Bootstrap(9, seed=4, draws=50)
    draws = np.random.default_rng(4).integers(9, size=(50, 9))
    sums = [sum(above[unit] for unit in draw) for draw in draws]
    totals = [sum(below[unit] for unit in draw) for draw in draws]
    np.testing.assert_allclose(bootstrap.sums(above), sums, rtol=1e-14)
    np.testing.assert_allclose(bootstrap.ratios(above, below), np.divide(sums, totals), rtol=1e-14)
    found = bootstrap.ratio(above, below)
    assert found.best == pytest.approx(above.sum() / below.sum())
    # Logarithms of nine draws deviate by sqrt(9 / 8) t / z.
    wider = np.sqrt(9 / 8) * stats.t.ppf(0.975, 8) / stats.norm.ppf(0.975)
    assert bootstrap.wider == pytest.approx(wider)
    end = np.quantile(np.divide(sums, totals), 0.025)
    assert found.low == pytest.approx(found.best * (end / found.best) ** wider)


def test_weights_of_positions_give_the_same_means() -> None:
    random = np.random.default_rng(2)
    sizes = random.integers(1, 6, 7)
    values, starts = random.random(sizes.sum()), np.cumsum(sizes) - sizes
    bootstrap = Bootstrap(7, draws=30)
    means = [np.average(values, weights=weights) for weights in bootstrap.weights(sizes)]
    ratios = bootstrap.ratios(np.add.reduceat(values, starts), sizes)
    np.testing.assert_allclose(means, ratios, rtol=1e-13)


def test_draws_without_a_value_are_left_out() -> None:
    drawn = over(np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(drawn, [1.0, np.nan, 3.0])
    assert around(2.0, drawn).high == pytest.approx(2.95)


def test_the_bootstrap_covers_at_its_level() -> None:
    # 400 workloads of 40 requests, where an interval covers some 0.94 (costs are skewed); the share
    # has a standard deviation of 0.012, so outside of 0.89 to 0.985 by chance: 1e-4.
    random, inside = np.random.default_rng(3), 0
    ones = np.ones(40)
    for number in range(400):
        found = Bootstrap(40, seed=number, draws=400).ratio(random.exponential(size=40) + 1, ones)
        inside += found.low <= 2 <= found.high
    assert 0.89 < inside / 400 <= 0.985


@pytest.mark.parametrize(("units", "percentiles"), [(3, 0.75), (6, 0.87), (16, 0.92)])
def test_the_bootstrap_covers_at_its_level_of_few_units(units: int, percentiles: float) -> None:
    """Of normal figures, where percentiles alone cover less, by Student's t; the share of 2,000
    workloads has a standard deviation of 0.005, or 0.01 where it is 0.75, so it is 0.02, or 0.04,
    off by chance once in 10,000.
    """
    student = stats.t(units - 1)
    level = 2 * student.cdf(1.96 * np.sqrt((units - 1) / units)) - 1
    assert level == pytest.approx(percentiles, abs=6e-3)
    random, inside, ones = np.random.default_rng(5), np.zeros(2), np.ones(units)
    bootstrap = Bootstrap(units)
    for _ in range(2000):
        values = random.normal(10.0, 1.0, units)
        drawn = bootstrap.ratios(values, ones)
        for at, found in enumerate((bootstrap.ratio(values, ones), around(10.0, drawn))):
            inside[at] += found.low <= 10 <= found.high
    assert inside / 2000 == pytest.approx([0.95, percentiles], abs=0.04)


def test_ends_are_further_away_of_few_units() -> None:
    """As logarithms where all is above 0, and else as they are; one unit tells nothing."""
    drawn = np.linspace(0.8, 1.2, 41)
    low, high = np.quantile(drawn, [0.025, 0.975])
    bootstrap = Bootstrap(2)
    assert bootstrap.wider == pytest.approx(2**0.5 * stats.t.ppf(0.975, 1) / 1.959964, rel=1e-6)
    found = bootstrap.around(1.0, drawn)
    assert (found.low, found.high) == pytest.approx((low**bootstrap.wider, high**bootstrap.wider))
    found = bootstrap.around(0.0, drawn - 1)
    assert (found.low, found.high) == pytest.approx(
        (bootstrap.wider * (low - 1), bootstrap.wider * (high - 1))
    )
    assert Bootstrap(1).around(1.0, drawn) == around(1.0, drawn)


def test_wilson_is_exact_at_the_ends() -> None:
    found = wilson_interval(np.array([0.0, 1.0]), np.array([10.0, 10.0]), 0.95)
    assert (found.low[0], found.high[1]) == (0.0, 1.0)
    # The other end at x = 0 is z^2 / (n + z^2), z = 1.959964.
    assert found.high[0] == pytest.approx(3.841459 / 13.841459, rel=1e-6)


REACH = st.floats(1.001, 3.0)
INTERVALS = st.builds(
    lambda best, down, up: Interval(best / down, best, best * up),
    st.floats(0.01, 100.0),
    REACH,
    REACH,
)


@given(INTERVALS, INTERVALS, st.floats(0.1, 10.0))
def test_how_far_apart_has_no_order_and_no_unit(
    first: Interval[float], second: Interval[float], unit: float
) -> None:
    scaled = [Interval(*(unit * end for end in vars(each).values())) for each in (first, second)]
    found = apart(first, second)
    assert apart(second, first) == found
    assert apart(*scaled) == pytest.approx(found, rel=1e-6, abs=1e-9)


def test_a_mean_is_as_sure_as_its_parts_are_by_hand() -> None:
    one = Interval(1.0, 4.0, 8.0)
    assert mean_of([one]) == one
    # Half of the roots of 3^2 + 4^2 and of 4^2 + 3^2.
    assert mean_of([one, Interval(6.0, 10.0, 13.0)]) == Interval(4.5, 7.0, 9.5)


def test_two_figures_apart_by_hand() -> None:
    # ln 2 between them, and sqrt(2) (ln 4) / 2 explained.
    found = apart(Interval(0.5, 1.0, 2.0), Interval(1.0, 2.0, 4.0))
    assert found == pytest.approx(np.sqrt(0.5))
    # A rate that was never seen: the difference itself, 0.3 of sqrt(0.1^2 + 0.2^2).
    found = apart(Interval(0.0, 0.0, 0.2), Interval(0.1, 0.3, 0.5))
    assert found == pytest.approx(0.3 / np.hypot(0.1, 0.2))


def test_certain_figures_are_equal_or_infinitely_far_apart() -> None:
    one, two = Interval(1.0, 1.0, 1.0), Interval(2.0, 2.0, 2.0)
    assert (apart(one, one), apart(one, two)) == (0.0, np.inf)
    assert np.isnan(apart(one, Interval(np.nan, 1.0, np.nan)))


def test_a_sum_of_errors_has_the_degrees_of_freedom_of_its_parts() -> None:
    """Of one part its own, of two equal ones twice as many; what is known for sure adds none."""
    assert sum_half_width([(4.0, 5)]) == pytest.approx(2 * stats.t.ppf(0.975, 5))
    both = sum_half_width([(1.0, 5), (1.0, 5)])
    assert both == pytest.approx(2**0.5 * stats.t.ppf(0.975, 10))
    assert sum_half_width([(1.0, 0)]) == pytest.approx(stats.norm.ppf(0.975))
    assert sum_half_width([(1.0, 2), (1.0, 0)]) == pytest.approx(2**0.5 * stats.t.ppf(0.975, 8))
    assert sum_half_width([(0.0, 3), (0.0, 0)]) == 0
    assert sum_half_width([]) == 0


def test_the_limit_of_chance_is_that_of_a_table() -> None:
    """1,000 tables of 20 equal pairs: a share of 5 % has a pair beyond the limit, expected 4.9 %.

    False-alarm chance 3 in 10^5 (4.2 standard errors of a share of 5 % in 1,000); a limit for
    a single pair would find 64 %.
    """
    random = np.random.default_rng(11)
    spread = 0.1
    drawn = np.exp(random.normal(0.0, spread, (1000, 20, 2)))
    reach = np.exp(1.959964 * spread)
    limit = chance_limit(20, 0.95)
    beyond = [
        any(
            apart(*(Interval(each / reach, each, each * reach) for each in pair)) > limit
            for pair in table
        )
        for table in drawn.tolist()
    ]
    assert 0.02 < np.mean(beyond) < 0.08
    # Of one pair it is what the intervals explain.
    assert chance_limit(1, 0.95) == pytest.approx(1.0)


@pytest.mark.parametrize(("passes", "share"), [(3, 0.15), (5, 0.05), (8, 0.015)])
def test_a_mean_of_few_passes_fails_more_often_than_normal_errors(
    passes: int, share: float
) -> None:
    """Sixteen means with intervals of Student's t, against predictions that are right."""
    limit = chance_limit(16, 1 - FALSE_ALARM)
    beyond = 2 * stats.t.sf(limit * t_quantile(0.95, passes - 1), passes - 1)
    assert 1 - (1 - beyond) ** 16 == pytest.approx(share, rel=0.06)
