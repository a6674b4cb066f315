"""What a block gains, from a survival curve and from a trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.acceptance import DecayingAcceptance
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.checks import InvalidArgumentError
from specsim.extrapolation import GapLaw
from tests.support.traces import slow_calls, trace_of


@given(st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_a_long_text_of_one_acceptance_is_its_survival_curve(alpha: float) -> None:
    size, gamma_max = 20_000, 6
    of_trace = TokensPerBlock.of_trace(trace_of([alpha] * size), gamma_max)
    of_curve = TokensPerBlock.of_survival(alpha ** np.arange(1, gamma_max + 1))
    # A text ends in the middle of its last block, which is one call however little it gains.
    assert of_trace.tokens == pytest.approx(of_curve.tokens, rel=2 * gamma_max / size)
    assert of_trace.bonus == pytest.approx(of_curve.bonus, abs=2 * gamma_max / size)
    assert of_trace.longest == of_curve.longest == gamma_max


def test_blocks_start_where_drafts_fail() -> None:
    """Runs of three good drafts behind one bad: over all text S_1 is 3/4, where blocks start 1."""
    text = [1.0, 1.0, 1.0, 0.0] * 1000
    found = TokensPerBlock.of_trace(trace_of(text), 3)
    # A block of gamma 3 starts with the three good ones, and its bonus token is the bad one; the
    # first of 1000 comes after none.
    assert found.tokens[3] == pytest.approx(4)
    assert found.bonus[3] == pytest.approx(0.999)
    # One of gamma 2 gains the three good ones, and the next starts at the bad one: 4 in two calls.
    assert found.tokens[2] == pytest.approx(2)
    assert found.bonus[2] == pytest.approx(0.5)
    # Over all text the curve is 3/4, 2/4, 1/4.
    assert TokensPerBlock.of_survival([0.75, 0.5, 0.25]).tokens[2:] == pytest.approx([2.25, 2.5])


def test_tokens_are_the_replayed_ones() -> None:
    texts = [0.3, 0.9, 0.5, 1.0, 0.0], [0.7, 0.2]
    found = TokensPerBlock.of_trace(trace_of(*texts), 3).tokens
    expected = [7 / sum(slow_calls(text, gamma) for text in texts) for gamma in range(4)]
    assert found == pytest.approx(expected, rel=1e-12)
    assert found[0] == 1


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=9), min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_gaps_of_a_trace_gain_what_its_replay_gains(texts: list[list[float]]) -> None:
    trace = trace_of(*texts)
    found = TokensPerBlock.of_acceptance(GapLaw.of_trace(trace), 4)
    np.testing.assert_allclose(found.tokens, TokensPerBlock.of_trace(trace, 4).tokens, rtol=1e-12)


def test_one_curve_for_every_length_is_its_sums() -> None:
    decaying = DecayingAcceptance(0.9, 0.8, 0.5)
    found = TokensPerBlock.of_acceptance(decaying, 4)
    of_curve = TokensPerBlock.of_survival(decaying.survival(4)[1:])
    np.testing.assert_array_equal(found.tokens, of_curve.tokens)
    np.testing.assert_array_equal(found.bonus, of_curve.bonus)


def test_what_is_not_a_curve_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="non-increasing"):
        TokensPerBlock.of_survival([0.5, 0.6])
    known = TokensPerBlock.of_survival([0.5])
    assert TokensPerBlock.of(known) is known
