"""Replay of adaptive policies against fixed gammas, counting and the long run."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import specsim
from specsim.predict.replay import policy as policy_module
from specsim.predict.replay.fixed_gamma import replay
from specsim.predict.replay.policy import draw_policy, exact_work, replay_policy
from specsim.schemes.policies import EstimateAlpha, FixedGamma, GammaPolicy, GrowShrink
from tests.support.traces import trace_of

rates = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0]))


@given(
    st.lists(st.lists(rates, min_size=1, max_size=20), min_size=1, max_size=4), st.integers(0, 9)
)
def test_a_fixed_gamma_is_a_policy(texts: list[list[float]], gamma: int) -> None:
    trace = trace_of(*texts)
    result = replay_policy(trace, FixedGamma(gamma))
    assert result.calls == pytest.approx(replay(trace, [gamma])[0].calls, rel=1e-12)
    assert result.blocks[gamma] == pytest.approx(result.calls.sum())


@pytest.mark.parametrize("policy", [GrowShrink(3, 12), EstimateAlpha(c=0.1, gamma_max=8)])
@given(agree=st.lists(st.booleans(), min_size=1, max_size=50))
def test_greedy_text_replays_as_counting_does(policy: Any, agree: list[bool]) -> None:
    state, gamma = policy.start()
    at = calls = 0
    while at < len(agree):
        accepted = 0
        while accepted < gamma and at + accepted < len(agree) and agree[at + accepted]:
            accepted += 1
        at, calls = at + accepted + 1, calls + 1
        state, gamma = policy.next_gamma(state, accepted, gamma)
        gamma = int(gamma)
    result = replay_policy(trace_of([float(a) for a in agree]), policy)
    assert result.calls[0] == pytest.approx(calls)


def test_long_text_approaches_the_stationary_law() -> None:
    from specsim.schemes.adaptive import AdaptiveHeuristic

    scheme = AdaptiveHeuristic(gamma_start=4, gamma_max=16)
    result = replay_policy(trace_of([0.7] * 3000), scheme.policy())
    # The start and the cut-off last block move the ratio by about 16 tokens in 3000.
    assert result.tokens_per_call == pytest.approx(
        scheme.stationary_law(0.7).tokens_per_call, rel=16 / 3000
    )


@pytest.mark.parametrize(
    "policy", [FixedGamma(3), GrowShrink(3, 12), EstimateAlpha(c=0.1, gamma_max=8)]
)
def test_drawn_chains_find_what_the_exact_replay_does(policy: GammaPolicy) -> None:
    """Twelve requests of different lengths; a false alarm has a chance of 6e-5 for each policy, and
    the seeds are fixed.
    """
    random = np.random.default_rng(5)
    trace = trace_of(*(random.beta(2, 1, length).tolist() for length in range(20, 80, 5)))
    exact, drawn = replay_policy(trace, policy), draw_policy(trace, policy)
    assert exact.error == 0.0
    assert 0 < drawn.error < 0.01
    off = drawn.calls.sum() / exact.calls.sum() - 1
    assert abs(off) < 4 * drawn.error
    assert drawn.blocks.sum() == pytest.approx(drawn.calls.sum())
    assert drawn.blocks == pytest.approx(exact.blocks, abs=0.05 * exact.blocks.sum())


@given(agree=st.lists(st.booleans(), min_size=1, max_size=50))
def test_chains_of_greedy_text_are_all_the_same(agree: list[bool]) -> None:
    trace = trace_of([float(a) for a in agree], [1.0, 0.0, 1.0])
    policy = EstimateAlpha(c=0.1, gamma_max=8)
    drawn = draw_policy(trace, policy)
    assert drawn.calls.tolist() == replay_policy(trace, policy).calls.tolist()
    assert drawn.error == 0.0


def test_many_requests_are_drawn_in_groups() -> None:
    random = np.random.default_rng(6)
    lengths = random.integers(1, 30, 5000)
    trace = trace_of(*(random.uniform(0, 1, length).tolist() for length in lengths))
    exact = replay_policy(trace, GrowShrink(2, 6))
    drawn = draw_policy(trace, GrowShrink(2, 6))
    assert drawn.calls.shape == (5000,)
    # One in 16,000 by chance; the seed is fixed.
    assert abs(drawn.calls.sum() / exact.calls.sum() - 1) < 4 * drawn.error


def test_the_error_of_drawn_chains_is_that_of_other_seeds() -> None:
    """The spread of 60 seeds against the error that each says: their ratio has a standard deviation
    of 0.09, so that a false alarm is beyond four of them; the seeds are fixed.
    """
    trace = trace_of([0.6] * 30, [0.3] * 10)
    drawn = [draw_policy(trace, FixedGamma(3), seed) for seed in range(60)]
    calls = np.array([each.calls.sum() for each in drawn])
    assert calls.std(ddof=1) / calls.mean() == pytest.approx(
        np.mean([each.error for each in drawn]), rel=0.36
    )
    (exact,) = replay(trace, [3])
    assert calls.mean() == pytest.approx(exact.total_calls, abs=4 * calls.std() / 60**0.5)
    assert drawn[0].tokens == 40
    assert drawn[0].tokens_per_call == pytest.approx(40 / calls[0])
    assert {each.calls.shape for each in drawn} == {(2,)}
    assert len(set(calls)) > 30


@pytest.mark.parametrize(("chains", "positions"), [(4096, 2**24), (4, 10**6), (8, 50), (1, 1)])
def test_requests_go_together_as_far_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch, chains: int, positions: int
) -> None:
    """However they are grouped, each request is drawn once; a group is of one at least."""
    lengths = [1, 20, 3, 7, 7, 2, 12]
    trace = trace_of(*([0.5] * length for length in lengths))
    monkeypatch.setattr(policy_module, "_CHAINS", chains)
    monkeypatch.setattr(policy_module, "_POSITIONS", positions)
    groups = list(policy_module._groups(trace, 2))
    assert [number for each in groups for number in range(each.start, each.stop)] == [*range(7)]
    for each in groups:
        size = each.stop - each.start
        assert size == 1 or (2 * size <= chains and 2 * size * max(lengths[each]) <= positions)
    for one, other in pairwise(groups):
        # One more would have been too many.
        size = one.stop - one.start + 1
        longest = max(lengths[one.start : one.stop + 1])
        assert 2 * size > chains or 2 * size * longest > positions
        assert other.start == one.stop
    drawn = draw_policy(trace, GrowShrink(2, 6))
    exact = replay_policy(trace, GrowShrink(2, 6))
    # Two chains of a request at least, which are far off by chance; the seed is fixed.
    assert (drawn.calls >= 1).all()
    assert drawn.calls.sum() == pytest.approx(exact.calls.sum(), rel=0.35)


def test_the_work_of_an_exact_replay_is_that_of_what_is_open() -> None:
    assert exact_work(trace_of([1.0, 0.0, 1.0], [0.0])) == 4.0
    assert exact_work(trace_of([0.5, 0.5, 1.0])) == 3 * (1 + 2**2)


def test_long_texts_are_drawn_and_said_to_be() -> None:
    random = np.random.default_rng(7)
    trace = trace_of(random.beta(2, 1, 1000).tolist())
    found = specsim.replay(trace, [4], policies=["grow-shrink", "estimate"], c=0.1)
    exact = replay_policy(trace, GrowShrink(4, 4))
    drawn = draw_policy(trace, EstimateAlpha(0.1, gamma_max=4))
    (said,) = found.warnings
    assert said.startswith("policy estimate is drawn")
    assert f"known to {1.96 * drawn.error:.2%} (95 %)" in said
    for replayed, policy in zip(found.lengths[1:], (exact, drawn), strict=True):
        assert replayed.calls == policy.calls.sum()
        assert replayed.tokens_per_call == policy.tokens_per_call
    assert found.lengths[1].calls != found.lengths[2].calls
