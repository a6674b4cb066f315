"""Mixtures over tokens: what they say of draft lengths, how they are fitted, and their bounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.acceptance import Acceptance
from specsim.checks import Floats
from specsim.counts.drafts import DraftCounts
from specsim.extrapolation import fits
from specsim.extrapolation.bounds import mixture_bounds, tokens_per_call_bounds
from specsim.extrapolation.counted import counted_rates, tokens_deviation
from specsim.extrapolation.fits import fit_mixture, misfit
from specsim.extrapolation.mixtures import TokenMixture
from tests.support.refusals import refuses
from tests.support.two_states import two_state_curve

rate = st.floats(0.0, 1.0)
mixtures = st.lists(st.tuples(rate, st.floats(0.01, 1.0)), min_size=1, max_size=6).map(
    lambda pairs: TokenMixture(*np.array(pairs).T)
)


def formula(alpha: Floats, gamma: int) -> Floats:
    """1 + alpha + ... + alpha^gamma, Leviathan23 eq 1."""
    total = np.zeros_like(alpha)
    for power in range(gamma + 1):
        total = total + alpha**power
    return total


def counted(curve: Floats, rounds: float) -> DraftCounts:
    """Counts whose rates are S_1..S_K exactly."""
    reached = rounds * np.asarray(curve)
    gamma = reached.size
    total = float(reached.sum())
    return DraftCounts(gamma, rounds, total, rounds * gamma, tuple(reached.tolist()))


# --- what a mixture says -----------------------------------------------------------------------


@given(mixtures, st.integers(0, 10))
def test_tokens_per_call_are_a_harmonic_mean_over_tokens(mixture: TokenMixture, gamma: int) -> None:
    wanted = 1 / (mixture.shares / formula(mixture.rates, gamma)).sum()
    assert mixture.tokens_per_call(gamma)[-1] == pytest.approx(wanted, rel=1e-12)
    curve = mixture.survival(gamma)
    assert curve.sum() == pytest.approx(wanted, rel=1e-9)
    np.testing.assert_allclose(np.cumprod(mixture.conditional(gamma)), curve[1:], atol=1e-12)
    assert isinstance(mixture, Acceptance)


@given(mixtures, st.integers(1, 10))
def test_longer_blocks_start_in_harder_text(mixture: TokenMixture, gamma: int) -> None:
    assert mixture.survival(gamma + 1)[1] <= mixture.survival(gamma)[1] + 1e-12


@given(mixtures, st.integers(1, 10))
def test_a_mixture_yields_less_at_its_mean_over_tokens_and_more_at_that_over_calls(
    mixture: TokenMixture, gamma: int
) -> None:
    tokens = mixture.tokens_per_call(gamma)[-1]
    over_tokens = mixture.shares @ mixture.rates
    over_calls = mixture.survival(gamma)[1]
    assert tokens <= formula(over_tokens, gamma) + 1e-9
    assert tokens >= formula(over_calls, gamma) - 1e-9


@given(rate, st.integers(0, 12))
def test_one_rate_is_the_papers_formula(alpha: float, gamma: int) -> None:
    mixture = TokenMixture(np.array([alpha]), np.ones(1))
    assert mixture.tokens_per_call(gamma)[-1] == pytest.approx(formula(np.array(alpha), gamma))
    np.testing.assert_allclose(mixture.survival(gamma), alpha ** np.arange(gamma + 1.0), atol=1e-15)


# --- bounds ------------------------------------------------------------------------------------


def test_text_of_two_kinds_lies_within_its_bounds() -> None:
    # The text of tests/support/two_states.py, its own figures solved exactly there.
    exact = {gamma: float(two_state_curve(gamma).sum()) for gamma in (1, 2, 3, 8)}
    for known, asked, low, high in (
        ((8,), 1, 1.762, 1.814),
        ((3,), 8, 4.17, 4.55),
        ((1, 2, 3), 8, 4.27, 4.34),
    ):
        found = tokens_per_call_bounds({gamma: exact[gamma] for gamma in known}, asked)
        assert found.low == pytest.approx(low, abs=6e-3)
        assert found.high == pytest.approx(high, abs=6e-3)
        assert found.low < exact[asked] < found.high


@settings(max_examples=15)
@given(mixtures, st.integers(1, 6), st.integers(1, 6))
def test_every_mixture_lies_within_the_bounds_of_its_own_figures(
    mixture: TokenMixture, known: int, asked: int
) -> None:
    tokens = mixture.tokens_per_call(max(known, asked))
    found = tokens_per_call_bounds({known: float(tokens[known])}, asked)
    assert found.low - 1e-4 <= tokens[asked] <= found.high + 1e-4


@pytest.mark.parametrize(("known", "tokens", "asked"), [(3, 2.9, 8), (8, 4.3, 1), (1, 1.5, 4)])
def test_bounds_against_all_pairs_of_rates(known: int, tokens: float, asked: int) -> None:
    # One equation: the extremes have two rates at most.  Tried on a grid of pairs.
    grid = np.linspace(0, 1, 301)
    price, other = 1 / formula(grid, known), 1 / formula(grid, asked)
    ends = []
    for low, high in combinations(range(grid.size), 2):
        if price[high] <= 1 / tokens <= price[low]:
            share = (1 / tokens - price[high]) / (price[low] - price[high])
            ends.append(1 / (share * other[low] + (1 - share) * other[high]))
    found = tokens_per_call_bounds({known: tokens}, asked)
    assert found.low == pytest.approx(min(ends), rel=1e-3)
    assert found.high == pytest.approx(max(ends), rel=1e-3)


test_what_no_mixture_has_is_refused = refuses(
    (lambda: tokens_per_call_bounds({1: 1.5, 8: 5.0}, 3), "no mixture over tokens has these"),
    (
        lambda: tokens_per_call_bounds({3: 4.5}, 1),
        r"tokens per call at gamma 3 must be in \[1, 4\]",
    ),
    (lambda: tokens_per_call_bounds({3: 2.9}, 2.5), "gamma must be a whole number >= 0, got 2.5"),
    (lambda: tokens_per_call_bounds({3: 2.9}, -1), "gamma must be a whole number >= 0, got -1"),
    (
        lambda: tokens_per_call_bounds({2.5: 2.0}, 3),
        "a draft length of measured must be a whole number >= 0, got 2.5",
    ),
    (lambda: TokenMixture(np.array([0.5]), np.zeros(1)), "shares must be one for each rate"),
    (lambda: TokenMixture(np.array([0.5]), np.ones(2)), "shares must be one for each rate"),
)


# --- fits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [(5,), (8,), (1, 2, 3), (2, 6)])
@pytest.mark.parametrize(
    ("rates", "shares"),
    [([0.8], [1.0]), ([0.45, 0.95], [0.25, 0.75]), ([0.0, 0.5, 0.9, 1.0], [0.1, 0.3, 0.4, 0.2])],
)
def test_a_fit_finds_what_it_was_counted_from(
    known: tuple[int, ...], rates: list[float], shares: list[float]
) -> None:
    truth = TokenMixture(np.array(rates), np.array(shares))
    counts = [counted(truth.survival(gamma)[1:], 1e5) for gamma in known]
    found = fit_mixture(counts)
    off, number = misfit(found, counts)
    assert off < 2 * number
    wanted, tokens = truth.tokens_per_call(8), found.tokens_per_call(8)
    np.testing.assert_allclose(tokens[: max(known) + 1], wanted[: max(known) + 1], rtol=0.005)
    np.testing.assert_allclose(tokens, wanted, rtol=0.03)
    for gamma in range(1, 9):
        bounds = mixture_bounds(found, counts, gamma, 0.9)
        assert bounds.low <= wanted[gamma] <= bounds.high


def test_totals_alone_are_fitted() -> None:
    found = fit_mixture([DraftCounts(5, 1000, 1800)])
    assert found.tokens_per_call(5)[-1] == pytest.approx(2.8, rel=0.01)


@given(mixtures, st.integers(0, 5))
def test_equations_hold_of_the_mixture_that_was_counted(mixture: TokenMixture, known: int) -> None:
    whole = counted(mixture.survival(5)[1:], 1e4)
    for each in counted_rates(replace(whole, reached=whole.reached[:known])):
        assert each.value(mixture) == pytest.approx(each.rate, rel=1e-6)
        assert each.row(mixture.rates, each.rate) @ mixture.shares == pytest.approx(0, abs=1e-9)


def test_tokens_behind_the_counted_positions_are_those_of_rounds_that_got_there() -> None:
    """Of 1,000 rounds 800 had a first draft accepted, and 600 more drafts in all."""
    first, behind = counted_rates(DraftCounts(5, 1000, 1400, None, (800.0,)))
    assert (first.position, first.rate, first.trials) == (1, 0.8, 1000)
    assert (behind.position, behind.rate, behind.trials) == (1, 1.75, 800)
    # With nothing behind it, or nothing that got there, no more is said.
    assert len(list(counted_rates(DraftCounts(1, 1000, 800, None, (800.0,))))) == 1
    assert len(list(counted_rates(DraftCounts(5, 1000, 0, None, (0.0,))))) == 1


@pytest.mark.parametrize("reached", [(), (150.0,), (150.0, 80.0)])
def test_the_likelihood_of_a_mean_is_a_density(reached: tuple[float, ...]) -> None:
    """Over all means that 200 rounds may have, up to a root of 2 pi that all laws share."""
    mixture = TokenMixture(np.array([0.4, 0.8]), np.array([0.5, 0.5]))
    curve = mixture.survival(5)
    stopped = -np.diff([200.0, *reached, 0.0])
    by_position = stopped @ np.log(-np.diff([*curve[: len(reached) + 1], 0.0]))
    rounds = reached[-1] if reached else 200.0
    least, most = sum(reached), sum(reached) + (5 - len(reached)) * rounds
    likelihoods = [
        fits._log_likelihood(mixture, DraftCounts(5, 200, accepted, None, reached)) - by_position
        for accepted in np.arange(least, most + 1)
    ]
    assert np.exp(likelihoods).sum() / rounds == pytest.approx(np.sqrt(2 * np.pi), rel=1e-3)


def test_fewer_rounds_bound_less() -> None:
    curve = two_state_curve(5)[1:]
    widths = []
    for rounds in (300, 3000, 30_000):
        counts = [counted(curve, rounds)]
        bounds = mixture_bounds(fit_mixture(counts), counts, 1, 0.9)
        widths.append(bounds.high - bounds.low)
    assert widths[0] > widths[1] > widths[2]


@given(st.lists(rate, min_size=1, max_size=6), st.integers(0, 10**6))
@settings(max_examples=20)
def test_deviation_against_the_law_written_out(rates: list[float], rounds: int) -> None:
    curve = np.cumprod([1.0, *rates])
    law = -np.diff(np.append(curve, 0.0))
    tokens = np.arange(1.0, curve.size + 1)
    variance = law @ tokens**2 - (law @ tokens) ** 2
    found = tokens_deviation(curve[1:], rounds + 1.0)
    assert found**2 * (rounds + 1) == pytest.approx(max(variance, 0.5 / (rounds + 1)), abs=1e-9)
