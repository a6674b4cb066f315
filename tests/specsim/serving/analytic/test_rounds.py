"""How many rounds some tokens take: exact moments and quantiles against all sequences of rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.checks import InvalidArgumentError
from specsim.laws import BlockLaw, Run
from specsim.predict.renewal import calls_law
from specsim.serving.analytic.rounds import RoundCounts


def laws(largest: int = 5) -> st.SearchStrategy[RoundCounts]:
    weights = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=largest)
    return weights.map(lambda each: RoundCounts(np.array(each) / sum(each)))


def slow_law(counts: RoundCounts, tokens: int) -> np.ndarray:
    """P(J(m) = j), j = 0..m, by the law of blocks that decoding has elsewhere."""
    n = np.arange(1, counts.token_law.size + 1)
    return calls_law(BlockLaw(counts.token_law, n, {Run("target", 1): np.ones(n.size)}), tokens)


@given(laws(), st.integers(1, 40))
def test_moments_are_those_of_the_law(counts: RoundCounts, tokens: int) -> None:
    law, j = slow_law(counts, tokens), np.arange(tokens + 1)
    at = np.array([tokens])
    assert counts.mean(at)[0] == pytest.approx(law @ j, rel=1e-9)
    assert counts.variance(at)[0] == pytest.approx(law @ j**2 - (law @ j) ** 2, abs=1e-6)


@given(laws(), st.integers(1, 40), st.floats(0.001, 0.999))
def test_quantiles_are_those_of_the_law(counts: RoundCounts, tokens: int, level: float) -> None:
    reached = np.cumsum(slow_law(counts, tokens))
    if np.abs(reached - level).min() < 1e-9:
        return  # between two, by rounding
    wanted = int(np.searchsorted(reached, level))
    assert counts.quantile(np.array([tokens]), np.array([level]))[0] == wanted


def test_beyond_the_table_a_normal_law_has_the_same_middle() -> None:
    counts = RoundCounts.of_survival([0.8, 0.6, 0.5], 3)
    levels = np.array([0.01, 0.5, 0.99])
    exact = counts.quantile(np.full(3, 512), levels)
    normal = counts.quantile(np.full(3, 513), levels)
    assert np.abs(exact - normal).max() < 2.0


def test_plain_decoding_takes_a_round_a_token() -> None:
    counts = RoundCounts.of_survival([0.8], 0)
    assert counts.mean(np.array([0, 7])).tolist() == [0.0, 7.0]
    assert counts.quantile(np.array([7]), np.array([0.3])).tolist() == [7.0]


def test_a_sure_draft_doubles() -> None:
    counts = RoundCounts.of_survival([1.0], 1)
    assert counts.mean(np.array([1, 2, 3, 4])).tolist() == pytest.approx([1, 1, 2, 2])


def test_a_law_must_sum_to_one() -> None:
    with pytest.raises(InvalidArgumentError, match="sum to one"):
        RoundCounts(np.array([0.5, 0.4]))
