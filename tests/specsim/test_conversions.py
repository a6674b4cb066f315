"""Conversions invert each other, agree with enumeration, and refuse what they cannot know."""

from __future__ import annotations

import math
from dataclasses import astuple
from itertools import product

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specsim import conversions as convert
from specsim.checks import UnsupportedError
from tests.support.refusals import refuses

rate = st.floats(0.0, 1.0)
gamma = st.integers(1, 64)
histogram = st.lists(st.integers(0, 1000), min_size=2, max_size=9).filter(sum)


@pytest.mark.parametrize(("block", "published"), [(3, 0.65), (8, 0.42)])
def test_published_acceptance_rates(block: int, published: float) -> None:
    # docs/errata.md, "Words that are mixed up": alpha = .8 is not the
    # draft acceptance rate, which is .65 for gamma = 3 and .42 for gamma = 8.
    assert round(convert.acceptance_rate_from_alpha(0.8, block), 2) == published
    found = convert.acceptance_rate_from_alpha(0.8, block)
    assert convert.alpha_from_acceptance_rate(found, block) == pytest.approx(0.8, rel=1e-14)


@pytest.mark.parametrize(
    ("line", "length", "rates"),
    [
        # vllm-project/vllm-ascend#13664: Mean acceptance length: 2.93, Accepted: 106 tokens,
        # Drafted: 385 tokens, Avg Draft acceptance rate: 27.5%, per-position as here.
        ((106, 385, 7), 2.93, (0.691, 0.418, 0.382, 0.182, 0.127, 0.073, 0.055)),
        # vllm-project/vllm#19254: Mean acceptance length: 2.16, Accepted: 150 tokens,
        # Drafted: 387 tokens, Draft acceptance rate: 38.8%, per-position as here.
        ((150, 387, 3), 2.16, (0.543, 0.357, 0.264)),
    ],
)
def test_engine_log_lines_are_consistent(
    line: tuple[int, int, int], length: float, rates: tuple[float, ...]
) -> None:
    accepted, drafted, block = line
    found = convert.acceptance_length_from_acceptance_rate(accepted / drafted, block)
    assert found == pytest.approx(length, abs=0.005)
    assert convert.acceptance_length_from_marginal(rates) == pytest.approx(length, abs=0.006)


# --- alpha -------------------------------------------------------------------------------------


@given(rate, st.integers(0, 7))
def test_length_against_enumeration_of_blocks(alpha: float, block: int) -> None:
    expected = 0.0
    for accepted in product((True, False), repeat=block):
        weight = math.prod(alpha if ok else 1 - alpha for ok in accepted)
        run = next((i for i, ok in enumerate(accepted) if not ok), block)
        expected += weight * (run + 1)
    assert convert.acceptance_length_from_alpha(alpha, block) == pytest.approx(expected, rel=1e-12)


edges = st.one_of(
    rate,
    st.floats(-15, -0.3).map(lambda power: 1 - 10**power),
    st.floats(-15, -0.3).map(lambda power: 10**power),
)


@given(edges, st.integers(1, 10**6))
def test_accuracy_against_fifty_digits(alpha: float, block: int) -> None:
    with mpmath.workdps(50):
        exact = mpmath.mpf(alpha)
        length = (1 - exact ** (block + 1)) / (1 - exact) if alpha < 1 else mpmath.mpf(block + 1)
        assert abs(convert.acceptance_length_from_alpha(alpha, block) / length - 1) < 1e-13
        accepted = float((length - 1) / block)
    assert convert.acceptance_rate_from_alpha(alpha, block) == pytest.approx(accepted, rel=1e-12)


@given(edges, gamma)
def test_alpha_from_rate_inverts(alpha: float, block: int) -> None:
    found = convert.alpha_from_acceptance_rate(
        convert.acceptance_rate_from_alpha(alpha, block), block
    )
    assert found == pytest.approx(alpha, rel=1e-12, abs=1e-300)


@given(rate, gamma)
def test_alpha_from_length_inverts(alpha: float, block: int) -> None:
    length = convert.acceptance_length_from_alpha(alpha, block)
    assert convert.alpha_from_acceptance_length(length, block) == pytest.approx(alpha, abs=1e-12)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), gamma)
def test_inversion_is_monotone(one: float, other: float, block: int) -> None:
    low, high = sorted((one, other))
    alphas = [convert.alpha_from_acceptance_rate(value, block) for value in (low, high)]
    # Two roots found apart may differ by their rounding.
    assert alphas[0] <= alphas[1] * (1 + 4e-15)


@given(gamma)
def test_inversion_at_its_ends(block: int) -> None:
    assert convert.alpha_from_acceptance_length(1.0, block) == 0
    assert convert.alpha_from_acceptance_length(block + 1.0, block) == 1
    assert convert.alpha_from_acceptance_rate(0.0, block) == 0
    assert convert.alpha_from_acceptance_rate(1.0, block) == 1


@given(st.floats(1.0, 9.0))
def test_length_tokens_and_rate_invert(length: float) -> None:
    tokens = convert.accepted_tokens_from_acceptance_length(length)
    assert convert.acceptance_length_from_accepted_tokens(tokens) == pytest.approx(length)
    share = convert.acceptance_rate_from_acceptance_length(length, 8)
    assert convert.acceptance_length_from_acceptance_rate(share, 8) == pytest.approx(length)


# --- per position ------------------------------------------------------------------------------


@given(st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=12))
def test_conditional_and_marginal_invert(conditional: list[float]) -> None:
    marginal = convert.marginal_from_conditional(conditional)
    np.testing.assert_allclose(convert.conditional_from_marginal(marginal), conditional, rtol=1e-14)


@given(histogram)
def test_histogram_against_a_list_of_blocks(blocks: list[int]) -> None:
    accepted = np.repeat(np.arange(len(blocks)), blocks)
    marginal = convert.marginal_from_histogram(blocks)
    np.testing.assert_allclose(
        marginal, [(accepted >= i).mean() for i in range(1, len(blocks))], rtol=1e-12
    )
    assert convert.acceptance_length_from_histogram(blocks) == pytest.approx(accepted.mean() + 1)
    assert convert.acceptance_length_from_marginal(marginal) == pytest.approx(accepted.mean() + 1)
    np.testing.assert_allclose(
        convert.accepted_law_from_marginal(marginal), np.array(blocks) / sum(blocks), atol=1e-12
    )


def test_a_per_request_histogram() -> None:
    # vLLM per-request metrics as documented: {"mean_acceptance_length": 1.23,
    # "draft_acceptance_rate": 0.078, "acceptance_histogram": [39, 1, 0, 3], 129 drafted}
    assert convert.acceptance_length_from_histogram([39, 1, 0, 3]) == pytest.approx(1.23, abs=0.005)
    length = convert.acceptance_length_from_histogram([39, 1, 0, 3])
    share = convert.acceptance_rate_from_acceptance_length(length, 3)
    assert share == pytest.approx(0.078, abs=5e-4)


# --- intervals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe 1998 (Statistics in Medicine 17, 857-872), Table I, method 3 (score).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval(successes: int, trials: int, low: float, high: float) -> None:
    found = convert.rate_from_counts(successes, trials)
    assert found.best == successes / trials
    assert found.low == pytest.approx(low, abs=5e-5)
    assert found.high == pytest.approx(high, abs=5e-5)


def test_wilson_interval_covers_at_its_level() -> None:
    # Exact: the average over p of P(p inside the interval), by enumeration of the binomial law.
    probabilities = np.linspace(0.02, 0.98, 97)
    covered = np.zeros_like(probabilities)
    for successes in range(41):
        found = convert.rate_from_counts(successes, 40, level=0.9)
        inside = (found.low <= probabilities) & (probabilities <= found.high)
        covered += inside * stats.binom.pmf(successes, 40, probabilities)
    assert covered.mean() == pytest.approx(0.9, abs=0.01)
    assert covered.min() > 0.8


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.5, 0.999))
def test_alpha_from_counts_is_wilson_at_gamma_one(
    accepted: int, drafted: int, level: float
) -> None:
    accepted = min(accepted, drafted)
    found = convert.alpha_from_counts(accepted, drafted, 1, level)
    expected = convert.rate_from_counts(accepted, drafted, level)
    np.testing.assert_allclose(astuple(found), astuple(expected), rtol=1e-9, atol=1e-9)


@given(st.integers(1, 40), st.integers(1, 8), st.data())
def test_alpha_interval_narrows_and_contains(blocks: int, block: int, data: st.DataObject) -> None:
    accepted = data.draw(st.integers(0, blocks * block))
    wide = convert.alpha_from_counts(accepted, blocks * block, block, 0.95)
    narrow = convert.alpha_from_counts(accepted, blocks * block, block, 0.5)
    assert 0 <= wide.low <= narrow.low <= narrow.best <= narrow.high <= wide.high <= 1
    assert wide.low < wide.high


@pytest.mark.parametrize("alpha", [0.3, 0.8, 0.97])
def test_alpha_intervals_cover_at_their_level(alpha: float) -> None:
    # 600 runs of 100 blocks each: coverage is 0.95 +- 0.009; outside 0.95 +- 0.04 (4.5 standard
    # deviations, for the six comparisons of this test) by chance: about 4e-5.
    generator, block, inside = np.random.default_rng(3), 4, np.zeros(2)
    for _ in range(600):
        accepted = np.minimum(generator.geometric(1 - alpha, size=100) - 1, block)
        counted = convert.alpha_from_counts(int(accepted.sum()), 100 * block, block)
        listed = convert.alpha_from_histogram(np.bincount(accepted, minlength=block + 1))
        inside += [found.low <= alpha <= found.high for found in (counted, listed)]
    np.testing.assert_allclose(inside / 600, 0.95, atol=0.04)


def test_alpha_from_histogram_counts_examined_drafts() -> None:
    # Blocks with 0, 1, 2 of 2 accepted: 5 x 1, 3 x 2, 2 x 2 drafts examined, 7 accepted.
    found = convert.alpha_from_histogram([5, 3, 2])
    assert found == convert.rate_from_counts(7, 15)


@given(histogram, st.floats(0.5, 0.99))
def test_marginal_intervals(blocks: list[int], level: float) -> None:
    curve = convert.marginal_estimate_from_histogram(blocks, level)
    assert curve.best.shape == (len(blocks) - 1,)
    for low, best, high in zip(*astuple(curve), strict=True):
        assert 0 <= low <= best <= high <= 1
    for bound in astuple(curve):
        assert (np.diff(bound) <= 0).all()
    first = convert.rate_from_counts(sum(blocks[1:]), sum(blocks), level)
    assert (curve.low[0], curve.best[0], curve.high[0]) == pytest.approx(astuple(first))


# --- what is refused ---------------------------------------------------------------------------


test_refused = refuses(
    (
        lambda: convert.alpha_from_acceptance_length(4.5, 3),
        r"acceptance length must be in \[1, 4\], got 4.5",
    ),
    (
        lambda: convert.alpha_from_acceptance_length(0.9, 3),
        r"acceptance length must be in \[1, 4\], got 0.9",
    ),
    (
        lambda: convert.alpha_from_acceptance_rate(1.01, 3),
        r"acceptance rate must be in \[0, 1\], got 1.01",
    ),
    (
        lambda: convert.acceptance_length_from_marginal([0.7, 0.75]),
        "non-increasing, got 0.7 and then 0.75",
    ),
    (lambda: convert.marginal_from_histogram([0, 0]), "histogram must count at least one block"),
    (lambda: convert.marginal_from_histogram([1.5, 2]), "histogram must be a whole number"),
    (
        lambda: convert.alpha_from_counts(3, 10, 4),
        "drafted must be a multiple of gamma = 4, got 10",
    ),
    (
        lambda: convert.rate_from_counts(5, 4),
        r"successes must be a whole number in \[0, 4\], got 5",
    ),
    (lambda: convert.rate_from_counts(1, 4, level=1.0), r"level must be inside \(0, 1\), got 1"),
)

test_unknowable = refuses(
    (
        lambda: convert.alpha_from_acceptance_length(1.0, 0),
        "gamma must be >= 1, got 0: the acceptance length is 1 whatever alpha is",
    ),
    (
        lambda: convert.acceptance_rate_from_alpha(0.5, 0),
        "gamma must be >= 1, got 0: .* no drafted tokens",
    ),
    (lambda: convert.alpha_from_histogram([7]), "gamma must be >= 1"),
    (
        lambda: convert.conditional_from_marginal([0.5, 0.0, 0.0]),
        "conditional rates end at position 2: .* rate at position 3 is 0/0",
    ),
    error=UnsupportedError,
)
