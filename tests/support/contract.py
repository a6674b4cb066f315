"""The contract that every scheme inherits, and what its tests share.

Each law is compared with a closed form at 50 digits, with all accept/reject histories on small
sizes, with a token-by-token simulation, and at its limits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import mpmath as mp
import numpy as np
import pytest
from hypothesis import strategies as st

from specsim.acceptance import ConstantAcceptance, PerPositionAcceptance
from specsim.checks import UnsupportedError
from specsim.cost import Cost, LinearVerify, MeasuredVerify
from specsim.laws import TARGET, BlockLaw, Run
from specsim.predict import monte_carlo, renewal
from specsim.schemes import SCHEMES, Scheme
from tests.support.mechanisms import histories, play, random_coin

mp.mp.dps = 50
EDGES = [0.0, 1e-300, 1e-15, 0.5, 1 - 1e-9, 1 - 1e-15, 1.0]
chances = st.one_of(st.sampled_from(EDGES), st.floats(0, 1, allow_subnormal=False))
sizes = st.integers(0, 30)
small = st.integers(0, 3)
constant = chances.map(ConstantAcceptance)
positional = st.lists(chances, min_size=1, max_size=4).map(
    lambda alphas: PerPositionAcceptance(tuple(alphas))
)
acceptances = st.one_of(constant, positional)
# For exact fractions: few bits, so that long products stay short.
coins = st.one_of(st.sampled_from([0.0, 1 - 2**-50, 1.0]), st.integers(0, 64).map(lambda k: k / 64))
coin_acceptances = st.one_of(
    coins.map(ConstantAcceptance),
    st.lists(coins, min_size=1, max_size=4).map(
        lambda alphas: PerPositionAcceptance(tuple(alphas))
    ),
)
Closed = tuple[mp.mpf, mp.mpf]  # mean tokens and mean cost of a block


@st.composite
def costs(draw: st.DrawFn, models: Sequence[str]) -> Cost:
    price = st.one_of(st.just(0.0), st.floats(1e-3, 2))
    return Cost(
        drafts={model: draw(price) for model in models},
        verify=LinearVerify(draw(price)),
        overhead=draw(price),
        plain_overhead=draw(price),
    )


def geometric(ratio: mp.mpf | float, last: int) -> mp.mpf:
    """1 + ratio + ... + ratio^last; the quotient only where it is long, and never 0/0."""
    ratio = mp.mpf(ratio)
    if last < 100 or ratio == 1:
        return mp.fsum(ratio**i for i in range(last + 1)) if last < 100 else mp.mpf(last + 1)
    return (1 - ratio ** (last + 1)) / (1 - ratio)


def survival_sum(rates: Sequence[float]) -> mp.mpf:
    """S_0 + S_1 + ... + S_n."""
    total = alive = mp.mpf(1)
    for rate in rates:
        alive *= mp.mpf(rate)
        total += alive
    return total


def read_cost(cost: Cost, positions: mp.mpf) -> mp.mpf:
    """Mean cost of a target run on so many positions in the mean, overhead included."""
    return 1 + mp.mpf(cost.verify.slope) * (positions - 1) + mp.mpf(cost.overhead)


def close(found: float, wanted: mp.mpf | float, tolerance: float = 1e-12) -> bool:
    return abs(found - wanted) <= tolerance * abs(wanted)


def check_closed(scheme: Scheme, known: object, cost: Cost, closed: Closed) -> None:
    law = scheme.law(known)
    tokens, price = closed
    if {run for run, count in law.expected_runs().items() if count} == {Run(TARGET, 1)}:
        tokens, price = mp.mpf(1), 1 + mp.mpf(cost.plain_overhead)
    assert close(law.probability.sum(), 1)
    assert close(law.tokens_per_call, tokens)
    assert close(renewal.cost_per_block(law, cost), price)
    assert close(renewal.speedup(law, cost), tokens * (1 + mp.mpf(cost.plain_overhead)) / price)


def check_histories(scheme: Scheme, known: object) -> None:
    """The law against the exact law of all histories: P(N = n) and E[runs; N = n]."""
    law, exact = scheme.law(known), histories(scheme, known)
    assert sum(exact.values()) == 1
    tokens = np.zeros(law.token_law().size)
    runs: dict[Run, np.ndarray] = {}
    for (n, counted), chance in exact.items():
        tokens[n] += float(chance)
        for run, count in counted:
            runs.setdefault(run, np.zeros(tokens.size))[n] += float(chance) * count
    np.testing.assert_allclose(law.token_law(), tokens, rtol=0, atol=1e-14)
    for run in {*runs, *law.runs}:
        found = np.zeros(law.probability.size) + law.runs.get(run, 0.0)
        np.testing.assert_allclose(
            np.bincount(law.tokens, weights=law.probability * found, minlength=tokens.size),
            runs.get(run, np.zeros(tokens.size)),
            rtol=0,
            atol=1e-13,
        )


class SchemeContract:
    """What every scheme with a law of one block must show.  A subclass fills in the scheme.

    example : with lengths of everyday size
    known : what is known of it
    plain : the setting that is plain decoding, or None
    huge : the setting with a length of 10**6, or None; ``huge_known`` where other chances are meant
    models : draft models that the law runs
    """

    example: Scheme
    known: object = None
    plain: Scheme | None = None
    huge: Scheme | None = None
    huge_known: object = None
    models: tuple[str, ...] = ()

    @property
    def law(self) -> BlockLaw:
        return self.example.law(self.known)

    def cost(self, slope: float = 0.02) -> Cost:
        drafts = {model: 0.1 / (i + 1) for i, model in enumerate(self.models)}
        return Cost(drafts, LinearVerify(slope), overhead=0.03, plain_overhead=0.01)

    def test_is_in_the_dict_of_names(self) -> None:
        assert type(self.example) in SCHEMES.values()

    def test_law_is_a_law(self) -> None:
        law = self.law
        assert abs(law.probability.sum() - 1) < 1e-12
        assert law.tokens.min() >= 1
        assert {run.model for run in law.runs} <= {TARGET, *self.models}
        assert self.example.models == self.models

    def test_fields_are_documented(self) -> None:
        for field in dataclasses.fields(self.example):
            assert field.metadata["help"].endswith(".")
        assert type(self.example).__doc__

    def test_its_settings_have_different_labels(self) -> None:
        settings = [each for each in (self.example, self.plain, self.huge) if each is not None]
        assert len({each.label for each in settings}) == len(set(settings))
        for each in settings:
            assert each.row_fields()["drafters"] == ", ".join(self.models)

    def test_plain_decoding_has_speedup_one(self) -> None:
        if self.plain is None:
            pytest.skip("never plain decoding")
        figures = renewal.stationary(self.plain.law(self.known), self.cost())
        assert figures.speedup == 1
        assert figures.tokens_per_call == 1
        finite = renewal.finite(self.plain.law(self.known), self.cost(), 7)
        assert (finite.calls, finite.speedup) == (7, 1)

    def test_a_length_of_a_million(self) -> None:
        """Answers exactly, or says what is too large; never hangs and never approximates."""
        if self.huge is None:
            pytest.skip("no length")
        try:
            law = self.huge.law(self.huge_known or self.known)
        except UnsupportedError as error:
            assert "too large" in str(error)  # noqa: PT017
            return
        assert abs(law.probability.sum() - 1) < 1e-12
        assert np.isfinite(renewal.speedup(law, self.cost()))

    def test_a_model_without_a_cost_is_named(self) -> None:
        if not self.models:
            pytest.skip("no drafter")
        with pytest.raises(UnsupportedError, match=f"'({'|'.join(self.models)})'"):
            renewal.speedup(self.law, Cost())

    def test_a_verify_curve_that_is_too_short_is_named(self) -> None:
        if all(run.positions == 1 for run in self.law.runs if run.model == TARGET):
            pytest.skip("the target reads one token at a time")
        cost = Cost(self.cost().drafts, MeasuredVerify((1.0,)))
        with pytest.raises(UnsupportedError, match=r"verify cost is known for 1\.\.1 tokens"):
            renewal.speedup(self.law, cost)

    def test_monte_carlo_agrees(self) -> None:
        # Two intervals at level 1 - 1e-6 each: a false alarm in 5e5 runs, were the seed random.
        rng = np.random.default_rng(1)
        law = self.law
        drawn = monte_carlo.simulate(law, self.cost(), rng, blocks=200_000, level=1 - 1e-6)
        wanted = renewal.stationary(law, self.cost())
        for estimate, value in (
            (drawn.speedup, wanted.speedup),
            (drawn.tokens_per_call, wanted.tokens_per_call),
        ):
            assert estimate.low - 1e-9 <= value <= estimate.high + 1e-9
            assert estimate.high - estimate.low < 0.05 * value

    def test_token_by_token_simulation_agrees(self) -> None:
        """4,000 blocks of the mechanism itself; would see a mean that is off by about 5 %."""
        law, coin, blocks = self.law, random_coin(2), 4_000
        played = [play(self.example, self.known, coin) for _ in range(blocks)]
        tokens = np.array([n for n, _ in played])
        # Each |z| < 5.5: a false alarm in 2.6e7 draws per mean, at most 60 means here.
        assert_mean(tokens, law.tokens_per_call)
        for run, mean in law.expected_runs().items():
            assert_mean(np.array([runs[run] for _, runs in played]), mean)
        assert {run for _, runs in played for run in runs if runs[run]} <= set(law.runs)


def assert_mean(sample: np.ndarray, mean: float) -> None:
    # Rare counts are not normal: the spread is not let below that of ten Poisson events.
    error = math.sqrt(max(sample.var() / sample.size, 10 / sample.size**2))
    assert abs(sample.mean() - mean) < 5.5 * error
