"""Monte Carlo: agreement with renewal, intervals that cover, same seed same result."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.acceptance import DecayingAcceptance
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.cost import Cost, LinearVerify, MeasuredVerify
from specsim.intervals import Interval
from specsim.predict import monte_carlo, renewal
from specsim.schemes import (
    AdaptiveEstimate,
    AdaptiveHeuristic,
    BigLittle,
    FallbackRollback,
    SequenceCascade,
    SpeculativeDecoding,
)

COST = Cost({"draft": 0.1, "small": 0.1}, LinearVerify(0.02), 0.03, 0.01)
LAW = SpeculativeDecoding(5).law(0.8)
BILD = BigLittle().law(FallbackRollback(0.1, 0.05))
# One interval in a million misses; a test that looks at n of them gives a false alarm in 1e6 / n.
SURE = 1 - 1e-6


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("tokens", [1, 7, 100])
@pytest.mark.parametrize("law", [LAW, BILD], ids=["speculative", "bild"])
def test_requests_agree_with_renewal(law, tokens) -> None:
    drawn = monte_carlo.simulate_requests(law, COST, rng(), tokens, 20_000, level=SURE)
    wanted = renewal.finite(law, COST, tokens)
    # Ratios of totals over requests, so these are ratios of means, not means of ratios.
    assert drawn.speedup.low - 1e-12 <= wanted.speedup <= drawn.speedup.high + 1e-12
    per_call = drawn.tokens_per_call
    assert per_call.low - 1e-12 <= tokens / wanted.calls <= per_call.high + 1e-12
    assert drawn.cost.mean() == pytest.approx(wanted.cost, rel=0.02)


def test_the_calls_of_a_request_have_the_exact_law() -> None:
    """Chi-square of 20,000 requests over the cells with 20 or more expected.

    Critical value at 1e-6 for at most 12 cells: 51.
    """
    requests, tokens = 20_000, 40
    drawn = monte_carlo.simulate_requests(LAW, COST, rng(1), tokens, requests)
    law = renewal.calls_law(LAW, tokens) * requests
    seen = np.bincount(drawn.calls.astype(int), minlength=tokens + 1)
    cells = law >= 20
    assert 8 <= cells.sum() <= 12
    assert ((seen - law)[cells] ** 2 / law[cells]).sum() < 51


def test_the_interval_covers_as_often_as_it_says() -> None:
    """400 runs at level 0.9 miss 40 times in the mean, sd 6; 5.5 sd either way is in 1e7 runs."""
    wanted = renewal.speedup(LAW, COST)
    misses = sum(
        not (drawn.speedup.low <= wanted <= drawn.speedup.high)
        for drawn in (
            monte_carlo.simulate(LAW, COST, rng(seed), 10_000, level=0.9) for seed in range(400)
        )
    )
    assert 7 <= misses <= 73


def test_same_seed_same_result() -> None:
    first, again, other = (
        monte_carlo.simulate(LAW, COST, rng(seed), 100_000) for seed in (3, 3, 4)
    )
    assert first == again
    assert first.speedup != other.speedup
    source = AdaptiveHeuristic().source(0.7)
    a, b = (monte_carlo.simulate_requests(source, COST, rng(3), 50, 100) for _ in range(2))
    np.testing.assert_array_equal(a.cost, b.cost)
    assert a.speedup == b.speedup


def test_blocks_are_rounded_up_to_whole_replicates() -> None:
    assert monte_carlo.simulate(LAW, COST, rng(), 1).blocks == monte_carlo.REPLICATES
    assert monte_carlo.simulate(LAW, COST, rng(), 64).blocks == 64


def test_nothing_varies_where_nothing_can() -> None:
    law = SpeculativeDecoding(3).law(1.0)
    drawn = monte_carlo.simulate(law, COST, rng(), 1000)
    wanted = pytest.approx(renewal.speedup(law, COST))
    assert drawn.speedup == Interval(wanted, wanted, wanted)
    assert drawn.tokens_per_call == Interval(4, 4, 4)
    plain = SpeculativeDecoding(0).law(0.5)
    assert monte_carlo.simulate(plain, COST, rng(), 1000).speedup == Interval(1, 1, 1)


def test_an_interval_ends_where_figures_do() -> None:
    """Of two requests with one degree of freedom it would reach far below nothing."""
    drawn = monte_carlo.simulate_requests(LAW, COST, rng(1), 9, 2)
    assert drawn.cost[0] != drawn.cost[1]
    assert drawn.speedup.low == 0
    assert drawn.tokens_per_call.low == 1


def test_no_target_run_is_infinitely_many_tokens_per_call() -> None:
    drawn = monte_carlo.simulate(SequenceCascade(5).law(0.0), COST, rng(), 1000)
    assert drawn.tokens_per_call == Interval(np.inf, np.inf, np.inf)


def test_a_million_blocks_or_a_million_million() -> None:
    """A long run costs as much as a short one: only counts are drawn."""
    drawn = monte_carlo.simulate(LAW, COST, rng(), 10**12, level=SURE)
    assert drawn.blocks >= 10**12
    assert drawn.speedup.high - drawn.speedup.low < 2e-5
    assert drawn.speedup.low < renewal.speedup(LAW, COST) < drawn.speedup.high


class TestAdaptive:
    """Against one request at a time, token by token, in plain Python."""

    @pytest.mark.parametrize(
        "source",
        [
            AdaptiveHeuristic(gamma_start=5, gamma_max=12).source(DecayingAcceptance(0.9, 0.9)),
            AdaptiveEstimate(0.1, gamma_max=12).source(0.75),
        ],
        ids=["heuristic", "estimate"],
    )
    def test_requests(self, source) -> None:
        generator, tokens, requests = rng(5), 60, 1500
        policy = source.policy
        rates = source.acceptance.conditional(policy.gamma_max)
        calls, cost = np.zeros(requests), np.zeros(requests)
        for request in range(requests):
            written, (state, gamma) = 0, policy.start()
            while written < tokens:
                accepted = 0
                while accepted < gamma and generator.random() < rates[accepted]:
                    accepted += 1
                written += accepted + 1
                calls[request] += 1
                cost[request] += 0.1 * gamma + 1 + 0.02 * gamma + 0.03
                state, gamma = policy.next_gamma(state, accepted, gamma)
        drawn = monte_carlo.simulate_requests(source, COST, rng(6), tokens, 5000)
        # Two-sample z below 5.5 for each of two means: a false alarm in 1.3e7.
        for slow, fast in ((calls, drawn.calls), (cost, drawn.cost)):
            error = np.sqrt(slow.var() / slow.size + fast.var() / fast.size)
            assert abs(slow.mean() - fast.mean()) < 5.5 * error

    def test_the_estimate_comes_near_the_best_fixed_gamma(self) -> None:
        """After its start, the estimate is within 1 % of the best fixed gamma, and not above it."""
        cost = Cost({"draft": 0.05})
        source = AdaptiveEstimate(0.05, gamma_max=20).source(0.8)
        drawn = monte_carlo.simulate(source, cost, rng(7), 200_000, level=SURE)
        best = max(
            renewal.speedup(SpeculativeDecoding(gamma).law(0.8), cost) for gamma in range(21)
        )
        assert 0.99 * best < drawn.speedup.best
        assert drawn.speedup.low < best

    def test_a_curve_that_is_too_short_is_named(self) -> None:
        source = AdaptiveHeuristic(2, 4).source(0.8)
        cost = Cost({"draft": 0.1}, MeasuredVerify((1.0, 1.0, 1.1)))
        with pytest.raises(UnsupportedError, match="verify cost is known for"):
            monte_carlo.simulate(source, cost, rng())


def test_what_is_refused() -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"blocks must be a whole number in \[1, 1000000000000000\], got 0",
    ):
        monte_carlo.simulate(LAW, COST, rng(), 0)
    with pytest.raises(
        InvalidArgumentError, match=r"requests must be a whole number in \[2, 10000000\], got 1"
    ):
        monte_carlo.simulate_requests(LAW, COST, rng(), 5, 1)
    for level in (0, 1, 2):
        with pytest.raises(
            InvalidArgumentError, match=rf"level must be inside \(0, 1\), got {level}"
        ):
            monte_carlo.simulate(LAW, COST, rng(), level=level)
