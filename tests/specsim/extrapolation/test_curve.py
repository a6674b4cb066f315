"""The extrapolated curve is a survival curve, keeps what was measured, and errs little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import specsim
from benchmarks import extrapolation_accuracy as benchmark
from specsim.acceptance import DecayingAcceptance, SurvivalAcceptance
from specsim.checks import Floats
from specsim.extrapolation.curve import NOISE, curve_of_tokens, extrapolate
from specsim.extrapolation.trends import (
    FALLING,
    TRENDS,
    Trend,
    empirical_logits,
    forecast,
)
from tests.support.refusals import refuses

conditional = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6)
noise = st.lists(st.floats(-0.04, 0.04), min_size=6, max_size=6)
counts = st.one_of(st.none(), st.integers(1, 10**6))
positions = st.integers(0, 20)
trends = st.sampled_from(sorted(TRENDS))


# --- properties --------------------------------------------------------------------------------


@given(conditional, noise, positions, counts, trends)
def test_always_a_survival_curve_between_its_bounds(
    rates: list[float], errors: list[float], k: int, drafts: int | None, trend: str
) -> None:
    marginal = np.cumprod(rates) + errors[: len(rates)]
    found = extrapolate(marginal, k, drafts, trend)
    for curve in (found.survival, found.low, found.high):
        assert curve.shape == (k,)
        assert ((curve >= 0) & (curve <= 1)).all()
        assert (np.diff(curve) <= 0).all()
    assert (found.low <= found.survival).all()
    assert (found.survival <= found.high).all()
    assert found.model == ("measured" if k <= len(rates) else "log-odds trend")
    assert found.inputs["trend"] == trend


@given(conditional, positions, counts, trends)
def test_rates_without_noise_come_back(
    rates: list[float], k: int, drafts: int | None, trend: str
) -> None:
    marginal = np.cumprod(rates)
    found = extrapolate(marginal, k, drafts, trend)
    np.testing.assert_array_equal(found.survival[: len(rates)], marginal[:k])


@given(conditional, noise)
def test_cleaning_keeps_the_mean_acceptance_length(rates: list[float], errors: list[float]) -> None:
    marginal = np.cumprod(rates) + errors[: len(rates)]
    assume(marginal.min() >= 0 and marginal.max() <= 1)
    found = extrapolate(marginal, len(rates), 500)
    assert found.tokens_per_call == pytest.approx(1 + marginal.sum())


@given(conditional, st.integers(1, 10**4), st.integers(2, 100))
def test_fewer_drafts_are_less_sure(rates: list[float], drafts: int, times: int) -> None:
    k = len(rates) + 4
    few, many = (extrapolate(np.cumprod(rates), k, n) for n in (drafts, drafts * times))
    measured = slice(0, len(rates))
    assert ((few.high - few.low)[measured] >= (many.high - many.low)[measured] - 1e-12).all()


@given(conditional, st.integers(1, 1000), trends)
def test_one_count_stands_for_one_per_position(rates: list[float], drafts: int, trend: str) -> None:
    marginal, k = np.cumprod(rates), len(rates) + 3
    one = extrapolate(marginal, k, drafts, trend)
    each = extrapolate(marginal, k, [drafts] * len(rates), trend)
    for name in ("survival", "low", "high"):
        np.testing.assert_array_equal(getattr(one, name), getattr(each, name))


@given(st.lists(st.floats(0.05, 0.95), min_size=1, max_size=6), st.integers(10, 10**5), trends)
def test_intervals_widen_with_distance(rates: list[float], drafts: int, trend: str) -> None:
    known = len(rates)
    found = extrapolate(np.cumprod(rates), known + 10, drafts, trend)
    # Of a rate the share that is left open grows, though the rate itself shrinks.
    assert (np.diff((found.high / found.low)[known - 1 :]) >= -1e-9).all()
    further = forecast(np.cumprod(rates), np.full(known, float(drafts)), 10, TRENDS[trend])
    assert (np.diff(further.deviation) > 0).all()


@given(st.floats(0.05, 0.95), st.integers(10, 10**5), st.integers(1, 12))
def test_of_one_rate_the_kind_decides(rate: float, drafts: int, ahead: int) -> None:
    falling, level, rising = (
        extrapolate(rate, 1 + ahead, drafts, trend) for trend in ("falling", "level", "rising")
    )
    assert (falling.survival[1:] < level.survival[1:]).all()
    assert (level.survival[1:] < rising.survival[1:]).all()
    by_position = np.diff(np.log(np.concatenate([[1.0], level.survival])))
    np.testing.assert_allclose(by_position[1:], by_position[1], rtol=1e-9)  # it is held


@given(st.floats(0.05, 0.95), st.integers(10, 10**5), trends)
def test_rates_go_one_way_from_the_first(rate: float, drafts: int, trend: str) -> None:
    found = forecast(np.array([rate]), np.array([float(drafts)]), 12, TRENDS[trend])
    steps = np.diff(found.log_odds)
    assert (steps >= -1e-9).all() or (steps <= 1e-9).all()
    assert (np.abs(steps[1:]) <= np.abs(steps[:-1]) + 1e-9).all()  # and never faster


@given(st.lists(st.floats(0.05, 0.95), min_size=1, max_size=6), st.integers(10, 10**5))
def test_falling_rates_never_rise(rates: list[float], drafts: int) -> None:
    trials = np.full(len(rates), float(drafts))
    found = forecast(np.cumprod(rates), trials, 12, FALLING)
    assert (np.diff(found.log_odds) <= 1e-9).all()


# --- the filter against its obvious slow twin --------------------------------------------------


@st.composite
def any_trend(draw: st.DrawFn) -> Trend:
    slope, spread = draw(st.floats(-0.5, 1.0)), draw(st.floats(0.05, 0.6))
    turn, irregular, walk = (draw(st.floats(0.02, 0.4)) for _ in range(3))
    return Trend("any", slope, spread, draw(st.sampled_from([-1, 0, 1])), turn, irregular, walk)


@given(
    st.lists(st.floats(0.05, 0.95), min_size=1, max_size=6),
    st.lists(st.integers(20, 10**5), min_size=6, max_size=6),
    st.integers(1, 8),
    any_trend(),
)
def test_forecast_against_penalised_least_squares(
    rates: list[float], drafts: list[int], ahead: int, trend: Trend
) -> None:
    known, trials = len(rates), np.array(drafts[: len(rates)], dtype=np.float64)
    curve = np.cumprod(rates, dtype=np.float64)
    logits, noise = empirical_logits(curve, trials)
    # Unknowns: the trend m at every position, v at every position, the departures e, and b.  One
    # equation for each observation, step, turn and departure and for b, each divided by its
    # standard deviation.
    size = known + ahead
    places = np.arange(1.0, size + 1)
    depth = {-1: 1 - 1 / places, 0: np.log(places), 1: places}[int(trend.power)]
    rows, right = [], []

    def equation(terms: dict[int, float], value: float, deviation: float) -> None:
        row = np.zeros(3 * size + 1)
        row[list(terms)] = list(terms.values())
        rows.append(row / deviation)
        right.append(value / deviation)

    for i in range(known):
        equation({i: 1.0, 2 * size + i: 1.0}, float(logits[i]), float(np.sqrt(noise[i])))
    for i in range(size):
        equation({2 * size + i: 1.0}, 0.0, trend.irregular)
    equation({size: 1.0}, 0.0, 1e-9)  # the trend has not turned yet
    for i in range(size - 1):
        step = depth[i + 1] - depth[i]
        equation({i: -1.0, i + 1: 1.0, size + i: -1.0, 3 * size: -step}, 0.0, trend.walk)
        equation({size + i: -1.0, size + i + 1: 1.0}, 0.0, trend.turn)
    equation({3 * size: 1.0}, trend.slope, trend.spread)
    design = np.array(rows)
    covariance = np.linalg.inv(design.T @ design)
    solution = covariance @ design.T @ np.array(right)
    steps = np.arange(1, ahead + 1)
    rise = (depth[known:] - depth[known - 1]) * solution[-1] + steps * solution[size + known - 1]
    mean = solution[known - 1] + (np.minimum(rise, 0.0) if trend.power == 1 else rise)
    found = forecast(curve, trials, ahead, trend)
    np.testing.assert_allclose(found.log_odds, mean, rtol=1e-5, atol=1e-5)

    # log(S_k / S_n) is off by the sum of (1 - alpha) times what its log odds are; the counted log
    # S_n by that of the counted rates, whose errors the estimates take up by their weights.
    left = np.tril(np.ones((ahead, ahead))) / (1 + np.exp(mean))
    later = covariance[known:size] + covariance[2 * size + known : 3 * size]
    of_odds = later[:, known:size] + later[:, 2 * size + known : 3 * size]
    variance = np.diag(left @ of_odds @ left.T)
    np.testing.assert_allclose(found.deviation, np.sqrt(variance), rtol=1e-4)
    taken = later @ design[:known].T / np.sqrt(noise)
    counted = noise / (1 + np.exp(logits))
    off = np.sqrt(counted @ (counted / noise))
    wanted = left @ taken @ counted / (off * np.sqrt(variance))
    np.testing.assert_allclose(found.correlation, np.clip(wanted, 0, 1), rtol=1e-4, atol=1e-5)


def test_falling_rates_that_rose_do_not_go_on_rising() -> None:
    known = np.cumprod([0.76, 0.81, 0.84, 0.87])
    found = extrapolate(known, 60, 10**6, "falling")
    rates = found.survival[1:] / found.survival[:-1]
    np.testing.assert_allclose(rates[4:], rates[4], rtol=1e-9)
    rising = extrapolate(known, 60, 10**6, "rising")
    assert rising.survival[-1] > found.survival[-1]


# --- edges -------------------------------------------------------------------------------------


def test_edges() -> None:
    np.testing.assert_array_equal(extrapolate([1, 1, 1], 6).survival, np.ones(6))
    assert extrapolate([1, 1, 1], 6, 20).low[5] < 0.9
    np.testing.assert_array_equal(extrapolate([0, 0, 0], 6).survival, np.zeros(6))
    assert extrapolate([0, 0, 0], 6, 20).high[0] > 0.05
    assert extrapolate([0.5, 0.2], 0).survival.shape == (0,)
    assert extrapolate([0.5, 0.2], 0).tokens_per_call == 1
    np.testing.assert_array_equal(extrapolate([0.5, 0.2, 0.1], 2).survival, [0.5, 0.2])
    single = extrapolate(0.6, 4, trend="falling")
    assert single.survival[0] == 0.6
    assert 0.6**2 > single.survival[1] > 0.5**2
    assert extrapolate([0.9], 10**6).survival[-1] < 1e-300


@pytest.mark.parametrize(
    ("noisy", "cleaned"),
    [
        ([0.5, 0.3, 0.32], [0.5, 0.31, 0.31]),
        ([0.69, 0.2, -0.01], [0.69, 0.2, 0.0]),
        ([1.02, 0.9, 0.8], [1.0, 0.9, 0.8]),
        ([0.1, 0.0, 0.0], [0.1, 0.0, 0.0]),
    ],
)
def test_noise_is_cleaned(noisy: list[float], cleaned: list[float]) -> None:
    found = extrapolate(noisy, 7)
    np.testing.assert_allclose(found.survival[:3], cleaned, atol=1e-12)


def test_noise_is_cleaned_by_weight() -> None:
    found = extrapolate([0.5, 0.3, 0.32], 3, [100, 300, 100])
    np.testing.assert_allclose(found.survival, [0.5, 0.305, 0.305], rtol=1e-12)


def test_pooled_rates_do_not_pass_for_certain_acceptance() -> None:
    # Equal neighbours look like a conditional rate of one; they weigh next to nothing.
    assert extrapolate([0.5, 0.31, 0.31], 4, trend="falling").survival[3] < 0.9 * 0.31


def test_behaves_as_the_array_of_survival() -> None:
    found = specsim.extrapolate([0.7, 0.45, 0.3], 7)
    assert isinstance(np.asarray(found), np.ndarray)
    np.testing.assert_array_equal(np.asarray(found), found.survival)
    assert np.asarray(found, dtype=np.float32).dtype == np.float32
    assert len(found) == 7
    assert found[0] == 0.7
    np.testing.assert_array_equal(found[1:3], [0.45, 0.3])
    assert list(found) == found.survival.tolist()
    np.testing.assert_array_equal(1 - np.asarray(found), 1 - found.survival)
    acceptance = SurvivalAcceptance(tuple(found))
    assert acceptance.survival(7).sum() == pytest.approx(found.tokens_per_call)


@pytest.mark.parametrize("tokens", [1.0, 2.5, 450.0, 601.0, 1000.0, 1001.0])
def test_totals_of_long_drafts_are_shared_out(tokens: float) -> None:
    """At 1,000 positions the log odds fall by 140 from the first to the last."""
    curve = curve_of_tokens(tokens, 1000)
    assert 1 + curve.sum() == pytest.approx(tokens)
    assert (np.diff(curve) <= 0).all()


test_bad_input_is_named = refuses(
    (lambda: extrapolate([1.3], 3), r"marginal rates must be in \[-0.1, 1.1\], got 1.3"),
    (lambda: extrapolate([0.5, float("nan")], 3), "marginal rates must be in .*, got nan"),
    (lambda: extrapolate([-0.2], 3), "marginal rates must be in .*, got -0.2"),
    (lambda: extrapolate([], 3), "marginal rates is empty"),
    (lambda: extrapolate([[0.5, 0.3]], 3), "marginal rates must be one row, got 2 dimensions"),
    (
        lambda: extrapolate([0.5, 0.7], 3),
        "marginal rates must fall .* got a rise of 0.2; conditional rates",
    ),
    (lambda: extrapolate([0.5], -1), "k must be a whole number >= 0, got -1"),
    (lambda: extrapolate([0.5], 2.5), "k must be a whole number >= 0, got 2.5"),
    (lambda: extrapolate([0.5], 3, 0), "counts must be >= 1, got 0"),
    (lambda: extrapolate([0.5], 3, trend="down"), "trend must be .* got .down"),
    (
        lambda: extrapolate([0.5, 0.4], 3, [10] * 3),
        r"counts must be one number or one per rate \(2\), got 3",
    ),
)


def test_the_allowed_noise_is_the_documented_one() -> None:
    assert NOISE == 0.1
    extrapolate([0.5, 0.6, -0.1], 3)


# --- accuracy on public curves -----------------------------------------------------------------


def test_error_from_three_positions() -> None:
    cases, _ = benchmark.read()
    assert len({case.group for case in cases}) >= 10

    def errors(model: object) -> Floats:
        found: Floats = benchmark.by_group(
            cases, [benchmark.error(model, c, FALLING.slope) for c in cases]
        )
        return found

    # The goal is 4.5 % on unseen curves.  benchmarks/extrapolation_accuracy.py prints 1.9 % for
    # these sources, 3.3 % for holding the third rate and 8.8 % for alpha read at K = 1.
    assert errors(benchmark.chosen).mean() < 0.02
    assert errors(benchmark.chosen).mean() < 0.7 * errors(benchmark.hold_third).mean()
    assert errors(benchmark.chosen).mean() < 0.3 * errors(benchmark.iid_from_first).mean()


def test_the_pooled_slope_is_the_one_that_the_lengths_give() -> None:
    _, chains = benchmark.read()
    assert len(chains) == 81
    assert benchmark.fit_slope(chains) == pytest.approx(FALLING.slope)
    pooled, none = (
        np.abs([benchmark.slope_error(chain, slope) for chain in chains]).mean()
        for slope in (FALLING.slope, 0.0)
    )
    assert pooled < 0.02
    assert none > 0.06


def test_intervals_hold_the_public_curves() -> None:
    cases, _ = benchmark.read()
    inside: list[bool] = []
    for case in cases:
        found = extrapolate(case.rates, case.k, case.counts, "falling")
        for position, value in enumerate(case.curve[3:], start=3):
            inside.append(bool(found.low[position] <= value <= found.high[position]))
    assert len(inside) == 47
    assert 0.8 <= np.mean(inside) <= 0.98


def test_intervals_hold_simulated_chains() -> None:
    # 300 chains drawn from a decaying law that is not the fitted model, 500 drafts each.  Nearly
    # all intervals hold S_7 here (0.99 of 10,000); under 0.9 of 300 by chance: below 1e-9.
    generator, inside = np.random.default_rng(11), 0
    truth = DecayingAcceptance(0.82, decay=0.8, floor=0.6).survival(7)[1:]
    law = -np.diff(np.concatenate([[1.0], truth, [0.0]]))
    for _ in range(300):
        blocks = generator.multinomial(500, law)
        seen = np.cumsum(blocks[::-1])[::-1][1:] / 500
        found = extrapolate(seen[:3], 7, 500, "falling")
        inside += found.low[6] <= truth[6] <= found.high[6]
    assert inside / 300 > 0.9
