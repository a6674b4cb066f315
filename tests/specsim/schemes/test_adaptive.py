"""Adaptive gamma: policies, and the long run of the heuristic."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.acceptance import acceptance_of
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.cost import Cost, LinearVerify
from specsim.laws import TARGET
from specsim.predict import monte_carlo, renewal
from specsim.schemes import SCHEMES, AdaptiveEstimate, AdaptiveHeuristic, SpeculativeDecoding
from specsim.schemes.policies import EstimateAlpha, FixedGamma, GrowShrink
from tests.support.contract import EDGES, geometric
from tests.support.traces import trace_of


class TestAdaptive:
    @pytest.mark.parametrize("alpha", EDGES)
    @pytest.mark.parametrize("gamma_max", [1, 2, 3, 64])
    def test_stationary_law(self, alpha, gamma_max) -> None:
        """The share of each gamma against a long walk of its exact distribution."""
        law = AdaptiveHeuristic(1, gamma_max).stationary_law(alpha)
        share = np.zeros(gamma_max + 1)
        for run, count in law.expected_runs().items():
            if run.model == TARGET:
                share[run.positions - 1] = count
        assert share.sum() == pytest.approx(1)
        walked = share.copy()
        for _ in range(3):
            after = np.zeros_like(walked)
            for gamma in range(1, gamma_max + 1):
                kept = walked[gamma] * alpha**gamma
                after[min(gamma + 2, gamma_max)] += kept
                after[max(gamma - 1, 1)] += walked[gamma] - kept
            walked = after
        np.testing.assert_allclose(walked, share, atol=1e-12)

    def test_the_walk_comes_to_the_stationary_law(self) -> None:
        # Four intervals at level 1 - 1e-6: a false alarm in 2.5e5 runs, were the seed random.
        cost = Cost({"draft": 0.05}, LinearVerify(0.01), 0.02, 0.01)
        for alpha in (0.6, 0.85):
            scheme = AdaptiveHeuristic()
            rng = np.random.default_rng(5)
            drawn = monte_carlo.simulate(scheme.source(alpha), cost, rng, 300_000, level=1 - 1e-6)
            wanted = renewal.stationary(scheme.stationary_law(alpha), cost)
            assert drawn.speedup.low < wanted.speedup < drawn.speedup.high
            tokens = drawn.tokens_per_call
            assert tokens.low < wanted.tokens_per_call < tokens.high

    def test_the_first_length_is_at_most_the_longest(self) -> None:
        assert AdaptiveHeuristic(gamma_max=16).gamma_start == 16
        assert AdaptiveHeuristic().gamma_start == 20
        with pytest.raises(InvalidArgumentError, match="gamma_start must be"):
            AdaptiveHeuristic(gamma_start=20, gamma_max=16)

    def test_a_trace_has_no_one_curve_for_blocks_of_several_lengths(self) -> None:
        """Long blocks start in harder text: the law of a long run would promise too little."""
        known = acceptance_of(trace_of([0.95] * 60 + [0.3] * 60))
        with pytest.raises(UnsupportedError, match="depends on the length"):
            AdaptiveHeuristic().stationary_law(known)
        for scheme in (AdaptiveHeuristic(), AdaptiveEstimate(0.1)):
            with pytest.raises(UnsupportedError, match="depends on the length"):
                scheme.source(known)
        assert SpeculativeDecoding(3).law(known).tokens_per_call > 1

    def test_there_is_no_law_of_one_block(self) -> None:
        for scheme in (AdaptiveHeuristic(), AdaptiveEstimate(0.1)):
            with pytest.raises(UnsupportedError, match=type(scheme).__name__):
                scheme.law(0.8)
        with pytest.raises(UnsupportedError, match="AdaptiveEstimate"):
            AdaptiveEstimate(0.1).stationary_law(0.8)
        scheme = SpeculativeDecoding(3)
        law = scheme.law(0.8)
        assert scheme.stationary_law(0.8).tokens_per_call == law.tokens_per_call
        assert {AdaptiveHeuristic, AdaptiveEstimate} < set(SCHEMES.values())

    @pytest.mark.parametrize("policy", [FixedGamma(4), GrowShrink(), EstimateAlpha(0.1)])
    def test_policies_take_numbers_and_arrays_alike(self, policy) -> None:
        rng = np.random.default_rng(6)
        state, gamma = policy.start()
        states, gammas = tuple(np.full(50, part) for part in state), np.full(50, gamma)
        one_by_one = [(state, gamma)] * 50
        for _ in range(20):
            accepted = (rng.random(50) * (gammas + 1)).astype(int)
            states, gammas = policy.next_gamma(states, accepted, gammas)
            one_by_one = [
                policy.next_gamma(s, int(a), int(g))
                for (s, g), a in zip(one_by_one, accepted, strict=True)
            ]
            assert [g for _, g in one_by_one] == gammas.tolist()
            assert gammas.min() >= 0
            assert gammas.max() <= policy.gamma_max

    def test_the_heuristic(self) -> None:
        # transformers: +2 after a block accepted whole, else -1, at least 1.
        policy = GrowShrink(5, 8)
        assert policy.start() == ((), 5)
        assert policy.next_gamma((), 5, 5) == ((), 7)
        assert policy.next_gamma((), 7, 7) == ((), 8)
        assert policy.next_gamma((), 4, 5) == ((), 4)
        assert policy.next_gamma((), 0, 1) == ((), 1)

    def test_the_estimate_settles_at_the_best_gamma(self) -> None:
        """After many blocks at alpha = 0.8, c = 0.05 gamma is 8 (Leviathan23 Thm 3.8, argmax)."""
        policy = EstimateAlpha(0.05)
        _, gamma = policy.next_gamma((800_000, 1_000_000), 0, 0)
        speeds = [float(geometric(0.8, g)) / (1 + 0.05 * g) for g in range(1, 65)]
        assert gamma == 1 + int(np.argmax(speeds)) == 8
