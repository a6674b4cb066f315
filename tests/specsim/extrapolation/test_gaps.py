"""The gap law is the exact replay at every draft length, and agrees with walking along the text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import specsim
from specsim.acceptance import Acceptance
from specsim.checks import UnsupportedError
from specsim.extrapolation.gaps import GapLaw
from specsim.predict.replay.fixed_gamma import replay
from specsim.traces import Trace
from tests.support.refusals import refuses
from tests.support.traces import trace_of
from tests.support.two_states import two_state_curve, two_state_gaps, two_state_text

chance = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))
texts = st.lists(st.lists(chance, min_size=1, max_size=12), min_size=1, max_size=4)
coins = st.lists(
    st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=30), min_size=1, max_size=4
)
lengths = st.integers(0, 8)


def walked(requests: list[list[float]], gamma: int) -> tuple[list[list[int]], int]:
    """Tokens of every block of every request, block by block, and all tokens: the slow twin."""
    blocks = []
    for accepted in requests:
        place, mine = 0, []
        while place < len(accepted):
            tokens = 1
            while (
                tokens <= gamma and accepted[place + tokens - 1] and place + tokens < len(accepted)
            ):
                tokens += 1
            mine.append(tokens)
            place += tokens
        blocks.append(mine)
    return blocks, sum(map(len, requests))


# --- against replay and the slow twin ----------------------------------------------------------


@given(texts, lengths)
def test_tokens_per_call_are_those_of_the_replay(requests: list[list[float]], longest: int) -> None:
    # Of fractional acceptances and of requests however short, the cut-off last block included.
    trace = trace_of(*requests)
    wanted = [each.tokens_per_call for each in replay(trace, range(longest + 1))]
    found = GapLaw.of_trace(trace).tokens_per_call(longest)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@given(texts, lengths)
def test_survival_is_that_of_the_replay(requests: list[list[float]], gamma: int) -> None:
    trace = trace_of(*requests)
    starts = replay(trace, [gamma])[0].starts
    reached = np.zeros(gamma + 1)
    for first, end in zip(trace.starts[:-1], trace.starts[1:], strict=True):
        for place in range(first, end):
            for j in range(min(gamma, end - 1 - place) + 1):
                reached[j] += starts[place] * trace.acceptance[place : place + j].prod()
    found = GapLaw.of_trace(trace).survival(gamma)
    np.testing.assert_allclose(found, reached / reached[0], rtol=1e-9, atol=1e-12)


@given(coins, lengths)
def test_a_long_zero_one_text_is_walked(requests: list[list[float]], gamma: int) -> None:
    blocks, tokens = walked(requests, gamma)
    law = GapLaw.of_trace(trace_of(*requests))
    flat = [each for mine in blocks for each in mine]
    assert law.tokens_per_call(gamma)[-1] == pytest.approx(tokens / len(flat), rel=1e-12)
    reached = [np.mean([each > j for each in flat]) for j in range(gamma + 1)]
    np.testing.assert_allclose(law.survival(gamma), reached, rtol=1e-12)


@given(coins)
def test_a_histogram_of_gaps_is_the_same_law(requests: list[list[float]]) -> None:
    gaps: list[int] = []
    for accepted in requests:
        ends = [place + 1 for place, each in enumerate(accepted) if not each]
        ends += [len(accepted)] if not ends or ends[-1] < len(accepted) else []
        gaps += np.diff([0, *ends]).tolist()
    found = GapLaw.of_lengths(np.bincount(gaps)[1:])
    np.testing.assert_allclose(
        found.tokens_per_call(6), GapLaw.of_trace(trace_of(*requests)).tokens_per_call(6)
    )


def test_the_stationary_law_does_not_see_where_text_was_cut() -> None:
    rates = two_state_text(24_000, seed=6)

    def tokens(requests: int, stationary: bool) -> float:
        trace = trace_of(*rates.reshape(requests, -1).tolist())
        return float(GapLaw.of_trace(trace, stationary=stationary).tokens_per_call(8)[-1])

    whole = tokens(1, stationary=True)
    assert tokens(1, stationary=False) == pytest.approx(whole, rel=1e-3)
    # In requests of 60 tokens one call in fourteen is the last one, which yields fewer tokens.
    assert tokens(400, stationary=False) < 0.98 * whole
    assert tokens(400, stationary=True) == pytest.approx(whole, rel=0.01)


# --- properties --------------------------------------------------------------------------------


@given(st.floats(0.0, 0.99), st.integers(0, 40))
def test_equal_gaps_are_the_papers_formula(alpha: float, gamma: int) -> None:
    law = GapLaw(np.ones(1), tail=alpha)
    wanted = (1 - alpha ** (gamma + 1)) / (1 - alpha)  # Leviathan23 eq 1
    assert law.tokens_per_call(gamma)[-1] == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(law.survival(gamma), alpha ** np.arange(gamma + 1.0), atol=1e-14)
    written = GapLaw(alpha ** np.arange(7.0), tail=alpha)
    np.testing.assert_allclose(written.tokens_per_call(9), law.tokens_per_call(9), rtol=1e-12)


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20),
    st.floats(0.0, 0.95),
    st.integers(0, 12),
)
def test_the_two_forms_agree(steps: list[float], tail: float, gamma: int) -> None:
    law = GapLaw(np.cumprod([1.0, *steps]), tail)
    curve = law.survival(gamma)
    assert curve[0] == 1
    assert (np.diff(curve) <= 1e-12).all()
    assert law.tokens_per_call(gamma)[-1] == pytest.approx(curve.sum(), rel=1e-12)
    np.testing.assert_allclose(
        np.cumprod(law.conditional(gamma)), curve[1:], rtol=1e-9, atol=1e-300
    )
    assert isinstance(law, Acceptance)


@given(st.floats(0.0, 1.0))
def test_no_tail_follows_where_nothing_is_longer(tail: float) -> None:
    ends, same = GapLaw(np.array([1.0, 0.5, 0.0])), GapLaw(np.array([1.0, 0.5, 0.0]), tail)
    np.testing.assert_array_equal(same.tokens_per_call(4), ends.tokens_per_call(4))
    np.testing.assert_array_equal(same.survival(4), ends.survival(4))


def test_the_first_rate_falls_with_the_draft_length_on_text_of_two_kinds() -> None:
    law = GapLaw(two_state_gaps(4000))
    first = [law.survival(gamma)[1] for gamma in range(1, 20)]
    assert (np.diff(first) < 0).all()
    assert first[0] - first[-1] > 0.1
    for gamma in range(12):
        np.testing.assert_allclose(law.survival(gamma), two_state_curve(gamma), rtol=1e-10)


def test_text_of_two_kinds() -> None:
    # From the stationary law of the states that blocks start in, see tests/support/two_states.py.
    wanted = {1: 1.799, 2: 2.429, 3: 2.925, 5: 3.644, 8: 4.324, 16: 5.160}
    found = GapLaw(two_state_gaps(4000)).tokens_per_call(16)
    for gamma, tokens in wanted.items():
        assert found[gamma] == pytest.approx(tokens, abs=5e-4)


# --- from an engine's rounds -------------------------------------------------------------------


@given(coins, st.integers(1, 5))
def test_rounds_come_back_at_their_own_length(requests: list[list[float]], gamma: int) -> None:
    rounds = [[tokens - 1 for tokens in mine] for mine in walked(requests, gamma)[0]]
    flat = [each for mine in rounds for each in mine]
    found = GapLaw.of_rounds(rounds, gamma)
    behind = [
        each
        for mine in rounds
        for before, each in zip([0, *mine], mine, strict=False)
        if before < gamma
    ]
    counted = [sum(each >= n for each in behind) for n in range(gamma + 1)]
    np.testing.assert_array_equal(found.longer, counted)
    if 0 < found.tail < 0.999:
        wanted = 1 + np.mean(flat)
        assert found.tokens_per_call(gamma)[-1] == pytest.approx(wanted, rel=1e-6)


def test_rounds_say_what_other_lengths_give() -> None:
    text = two_state_text(60_000, seed=3)
    accepted = (np.random.default_rng(4).random(text.size) < text).astype(float).tolist()
    rounds = [[tokens - 1 for tokens in mine] for mine in walked([accepted], 5)[0]]
    found = GapLaw.of_rounds(rounds, 5).tokens_per_call(8)
    for gamma in range(1, 9):
        # 15,000 rounds: chance alone moves the mean by 1 %; beyond 5 the tail's one rate does too.
        assert found[gamma] == pytest.approx(two_state_curve(gamma).sum(), rel=0.03)
    assert found[5] == pytest.approx(1 + np.mean(rounds[0]), rel=1e-9)


def test_the_public_name_plans_with_it() -> None:
    law = GapLaw(two_state_gaps(4000))
    found = specsim.evaluate(law, 0.05, 3)
    assert found.tokens_per_call == pytest.approx(two_state_curve(3).sum())


test_bad_input_is_named = refuses(
    (lambda: GapLaw(np.array([0.0, 0.0])), r"longer must be one row that starts with G\(0\) > 0"),
    (lambda: GapLaw(np.array([1.0, 1.1])), "longer must be non-increasing"),
    (lambda: GapLaw(np.ones(2), 1.0), "tail must be < 1, or gaps would never end, got 1"),
    (lambda: GapLaw.of_rounds([[3, 6]], 5), r"accepted must be a whole number .*, got 6"),
    (lambda: GapLaw.of_lengths([]), "counts is empty"),
)

LOOKUP = Trace(np.array([1.0, 0.0]), np.array([0, 2]), {"matched": np.array([1, 0])})

test_what_has_no_gaps_is_refused = refuses(
    (lambda: GapLaw.of_trace(LOOKUP), "the gap law needs the trace of a draft model"),
    (lambda: GapLaw.of_rounds([], 5), "no round was drafted"),
    (
        lambda: GapLaw.of_trace(trace_of([1.0, 1.0]), stationary=True),
        "no draft token of the trace was ever rejected",
    ),
    error=UnsupportedError,
)
