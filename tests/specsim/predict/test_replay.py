"""The replay against its obvious slow twin, and against facts that hold by definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.predict.replay import fixed_gamma as module
from specsim.predict.replay.fixed_gamma import block_survival, replay, replay_calls_law
from tests.support.traces import slow_calls, trace_of

rates = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0]))
requests = st.lists(st.lists(rates, min_size=1, max_size=25), min_size=1, max_size=6)


@given(requests, st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 40))
def test_equals_slow_twin_whatever_the_chunks(
    texts: list[list[float]], gammas: list[int], chunk: int
) -> None:
    usual = module.CHUNK_TOKENS
    module.CHUNK_TOKENS = chunk
    try:
        results = replay(trace_of(*texts), gammas)
    finally:
        module.CHUNK_TOKENS = usual
    assert [result.gamma for result in results] == gammas
    for result in results:
        expected = [slow_calls(text, result.gamma) for text in texts]
        assert result.calls == pytest.approx(expected, rel=1e-12)


@given(st.lists(rates, min_size=1, max_size=30), st.integers(0, 35))
def test_law_of_calls_has_the_replayed_mean(text: list[float], gamma: int) -> None:
    law = replay_calls_law(np.array(text), gamma)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    mean = law @ np.arange(len(law))
    assert mean == pytest.approx(slow_calls(text, gamma), rel=1e-11)


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 9))
def test_greedy_text_replays_as_counting_does(agree: list[bool], gamma: int) -> None:
    calls, at = 0, 0
    while at < len(agree):
        accepted = 0
        while accepted < gamma and at + accepted < len(agree) and agree[at + accepted]:
            accepted += 1
        at += accepted + 1
        calls += 1
    result = replay(trace_of([float(a) for a in agree]), [gamma])[0]
    assert result.calls[0] == calls
    assert replay_calls_law(np.array(agree, dtype=float), gamma)[calls] == 1


@given(requests, st.integers(0, 9))
def test_survival_of_blocks_is_that_of_every_start(texts: list[list[float]], gamma: int) -> None:
    """Weighed by how probably a block starts there; behind the end of a request no draft stands."""
    trace = trace_of(*texts)
    (found,) = replay(trace, [gamma])
    expected = np.zeros(gamma + 1)
    for first, text in zip(trace.starts, texts, strict=False):
        for at in range(len(text)):
            stands = found.starts[first + at]
            for length in range(gamma + 1):
                expected[length] += stands
                stands *= text[at + length] if at + length < len(text) else 0.0
    expected /= found.total_calls
    np.testing.assert_allclose(block_survival(trace, found), expected, atol=1e-12)


def test_bonus_blocks_are_those_after_full_acceptance() -> None:
    result = replay(trace_of([1, 1, 1, 0, 1, 1, 1]), [2])[0]
    # Blocks: [0 1 bonus 2], [3 rejected], [4 5 bonus 6].
    assert result.starts.tolist() == [1, 0, 0, 1, 1, 0, 0]
    assert result.bonus.tolist() == [0, 0, 0, 1, 0, 0, 0]


@given(requests, st.integers(0, 6), st.integers(1, 40))
def test_a_bonus_comes_after_as_many_acceptances_as_there_are_drafts(
    texts: list[list[float]], gamma: int, chunk: int
) -> None:
    """Block starts times the chance that all drafts stand, in the same request."""
    usual = module.CHUNK_TOKENS
    module.CHUNK_TOKENS = chunk
    try:
        (result,) = replay(trace_of(*texts), [gamma])
    finally:
        module.CHUNK_TOKENS = usual
    expected, first = [], 0
    for text in texts:
        for at in range(len(text)):
            begin = at - gamma - 1
            stood = 0.0
            if begin >= 0:
                stood = result.starts[first + begin] * np.prod(text[begin : at - 1])
            expected.append(stood)
        first += len(text)
    np.testing.assert_allclose(result.bonus, expected, rtol=1e-12, atol=1e-15)
    assert result.tokens_per_call == pytest.approx(len(result.starts) / result.total_calls)
    assert result.lengths.tolist() == [len(text) for text in texts]
