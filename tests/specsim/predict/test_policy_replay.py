"""Replay of adaptive policies against fixed gammas, counting and the long run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.predict.replay.fixed_gamma import replay
from specsim.predict.replay.policy import replay_policy
from specsim.schemes.policies import EstimateAlpha, FixedGamma, GrowShrink
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
def test_greedy_text_replays_as_counting_does(policy: object, agree: list[bool]) -> None:
    state, gamma = policy.start()  # type: ignore[attr-defined]
    at = calls = 0
    while at < len(agree):
        accepted = 0
        while accepted < gamma and at + accepted < len(agree) and agree[at + accepted]:
            accepted += 1
        at, calls = at + accepted + 1, calls + 1
        state, gamma = policy.next_gamma(state, accepted, gamma)  # type: ignore[attr-defined]
        gamma = int(gamma)
    result = replay_policy(trace_of([float(a) for a in agree]), policy)  # type: ignore[arg-type]
    assert result.calls[0] == pytest.approx(calls)


def test_long_text_approaches_the_stationary_law() -> None:
    from specsim.schemes.adaptive import AdaptiveHeuristic

    scheme = AdaptiveHeuristic(gamma_start=4, gamma_max=16)
    result = replay_policy(trace_of([0.7] * 3000), scheme.policy())
    # The start and the cut-off last block move the ratio by about 16 tokens in 3000.
    assert result.tokens_per_call == pytest.approx(
        scheme.stationary_law(0.7).tokens_per_call, rel=16 / 3000
    )
