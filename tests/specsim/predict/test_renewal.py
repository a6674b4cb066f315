"""Renewal: stationary and finite figures against slow twins and at their limits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.cost import Cost, LinearVerify
from specsim.laws import BlockLaw, Run
from specsim.predict import renewal
from specsim.schemes import (
    BigLittle,
    FallbackRollback,
    OracleGamma,
    PlainDecoding,
    SequenceCascade,
    SpeculativeDecoding,
)
from tests.support.contract import chances

COST = Cost({"draft": 0.1, "small": 0.1}, LinearVerify(0.02), 0.03, 0.01)


def speculative(alpha: float, gamma: int) -> BlockLaw:
    return SpeculativeDecoding(gamma).law(alpha)


@given(chances, st.integers(0, 6), st.integers(1, 40))
def test_finite_is_its_slow_twin(alpha, gamma, tokens) -> None:
    """Expected cost by first-step recursion: the block, then what is left to do."""
    law = speculative(alpha, gamma)
    prices = renewal.cost_by_outcome(law, COST)

    @cache
    def left(todo: int) -> tuple[float, float]:
        """Expected blocks and cost to produce ``todo`` tokens."""
        if todo <= 0:
            return 0.0, 0.0
        blocks = cost = 0.0
        for chance, n, price in zip(law.probability, law.tokens.tolist(), prices, strict=True):
            more = left(todo - n)
            blocks += chance * (1 + more[0])
            cost += chance * (price + more[1])
        return blocks, cost

    found = renewal.finite(law, COST, tokens)
    blocks, cost = left(tokens)
    assert found.calls == pytest.approx(blocks, rel=1e-12)
    assert found.cost == pytest.approx(cost, rel=1e-12)
    assert found.speedup == pytest.approx(tokens * 1.01 / cost, rel=1e-12)
    assert found.speedup <= tokens * (1 + 1e-12)  # theory, section 2: capped by K


@given(chances, st.integers(0, 6), st.integers(1, 12))
def test_calls_law_is_its_slow_twin(alpha, gamma, tokens) -> None:
    law = speculative(alpha, gamma)

    @cache
    def left(todo: int, calls: int) -> float:
        """P(exactly ``calls`` more calls)."""
        if todo <= 0:
            return float(calls == 0)
        if not calls:
            return 0.0
        return sum(
            chance * left(todo - n, calls - 1)
            for chance, n in zip(law.probability, law.tokens.tolist(), strict=True)
        )

    found = renewal.calls_law(law, tokens)
    wanted = [left(tokens, calls) for calls in range(tokens + 1)]
    np.testing.assert_allclose(found, wanted, atol=1e-13)
    mean = found @ np.arange(tokens + 1)
    assert mean == pytest.approx(renewal.finite(law, COST, tokens).calls, rel=1e-12)


@given(st.floats(0.1, 0.8), st.integers(1, 4))
def test_many_tokens_come_to_the_stationary_speed(alpha, gamma) -> None:
    """blocks(K) - K / E[N] tends to (E[N^2] / E[N] - 1) / (2 E[N]): the renewal theorem."""
    law = speculative(alpha, gamma)
    mean, square = law.tokens_per_call, float(law.probability @ np.square(law.tokens))
    extra = renewal.expected_blocks(law, 400) - 400 / mean
    assert extra == pytest.approx((square / mean - 1) / (2 * mean), abs=1e-10)


def test_a_request_shorter_than_a_block() -> None:
    law = speculative(0.8, 5)
    one = renewal.finite(law, COST, 1)
    assert one.calls == 1
    assert one.cost == pytest.approx(5 * 0.1 + 1 + 5 * 0.02 + 0.03)
    assert renewal.finite(speculative(1.0, 10**6), COST, 1000).calls == 1


def test_a_block_that_drafts_nothing_has_the_overhead_of_a_plain_step() -> None:
    law = OracleGamma(1).law(0.5)
    # Half the blocks draft nothing: 1.01; half draft one token: 0.1 + v(2) + 0.03.
    assert renewal.cost_per_block(law, COST) == pytest.approx((1.01 + 0.1 + 1.02 + 0.03) / 2)
    assert renewal.speedup(speculative(0.8, 0), COST) == 1
    # No draft run, so no price of the draft is asked for.
    assert renewal.speedup(speculative(0.8, 0), Cost()) == 1


def test_tokens_per_call_is_per_target_run() -> None:
    law = BigLittle(rescore=True).law(FallbackRollback(0.1, 0.2))
    assert renewal.tokens_per_call(law) < law.tokens_per_call
    assert renewal.tokens_per_call(SequenceCascade(8).law(0.25)) == 4
    assert renewal.tokens_per_call(SequenceCascade(8).law(0.0)) == np.inf
    with pytest.raises(UnsupportedError, match="one target run in every block"):
        renewal.calls_law(law, 5)


def test_stationary_is_the_three_figures() -> None:
    law = speculative(0.8, 5)
    figures = renewal.stationary(law, COST)
    assert figures.tokens_per_call == law.tokens_per_call
    assert figures.cost_per_block == renewal.cost_per_block(law, COST)
    assert figures.speedup == renewal.speedup(law, COST)
    assert renewal.speedup(PlainDecoding().law(), Cost()) == 1


def test_what_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="tokens must be a whole number >= 1, got 0"):
        renewal.finite(speculative(0.8, 5), COST, 0)
    nothing = BlockLaw(np.array([0.5, 0.5]), np.array([0, 1]), {Run("draft", 1): np.ones(2)})
    with pytest.raises(InvalidArgumentError, match="may emit nothing"):
        renewal.expected_blocks(nothing, 3)
