"""Cascades of drafters, under the contract."""

from __future__ import annotations

import dataclasses
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.acceptance import PerPositionAcceptance
from specsim.checks import InvalidArgumentError
from specsim.cost import Cost
from specsim.laws import TARGET
from specsim.predict import renewal
from specsim.schemes import (
    Acceptances,
    FullCascade,
    HorizontalCascade,
    SpeculativeDecoding,
    VerticalCascade,
)
from tests.support.contract import (
    SchemeContract,
    acceptances,
    chances,
    check_closed,
    check_histories,
    close,
    coin_acceptances,
    coins,
    constant,
    costs,
    geometric,
    read_cost,
    sizes,
    small,
    survival_sum,
)

# How a reviewer knows that it has enough.
FORMS = st.sampled_from(["steps", "at_least"])


class TestHorizontal(SchemeContract):
    example = HorizontalCascade(("a", "b"), (3, 4))
    known = Acceptances.of_pairs(0.8, 0.8)
    plain = HorizontalCascade(("a", "b"), (0, 0))
    huge = HorizontalCascade(("a", "b"), (3, 10**6))
    huge_known = Acceptances.of_pairs(0.8, 0.999999)
    models = ("a", "b")

    @given(st.tuples(acceptances, acceptances), st.tuples(sizes, sizes), costs(["a", "b"]))
    def test_closed_form(self, known, lengths, cost) -> None:
        """Chen23 Thm 4.1."""
        rates = known[0].conditional(lengths[0]).tolist()
        rates += known[1].conditional(sum(lengths))[lengths[0] :].tolist()
        drafts = lengths[0] * mp.mpf(cost.drafts["a"]) + lengths[1] * mp.mpf(cost.drafts["b"])
        price = drafts + read_cost(cost, mp.mpf(1 + sum(lengths)))
        scheme = HorizontalCascade(("a", "b"), lengths)
        check_closed(scheme, Acceptances(known), cost, (survival_sum(rates), price))

    @given(
        st.tuples(coin_acceptances, coin_acceptances, coin_acceptances),
        st.tuples(small, small, small),
    )
    def test_histories(self, known, lengths) -> None:
        check_histories(HorizontalCascade(("a", "b", "c"), lengths), Acceptances(known))

    @given(st.data())
    def test_mixing_two_drafters_never_helps(self, data) -> None:
        """Chen23 Thm 4.4: at any position the better of the two ends is at least as fast."""
        gamma = data.draw(st.integers(1, 6))
        rates = data.draw(st.lists(chances, min_size=gamma, max_size=gamma))
        i, mix = data.draw(st.integers(0, gamma - 1)), data.draw(chances)
        (alpha, c), (alpha_2, c_2) = data.draw(
            st.tuples(st.tuples(chances, chances), st.tuples(chances, chances))
        )

        def speed(rate: float, price: float) -> float:
            known = PerPositionAcceptance((*rates[:i], rate, *rates[i + 1 :]))
            law = SpeculativeDecoding(gamma).law(known)
            return law.tokens_per_call / (1 + price + 0.1 * (gamma - 1))

        mixed = speed(mix * alpha + (1 - mix) * alpha_2, mix * c + (1 - mix) * c_2)
        assert mixed <= max(speed(alpha, c), speed(alpha_2, c_2)) * (1 + 1e-12)


class TestVertical(SchemeContract):
    example = VerticalCascade(("a", "b"), 3, steps=(2,))
    known = Acceptances.of_pairs(0.8, 0.6)
    plain = dataclasses.replace(example, steps=(0,))
    huge = dataclasses.replace(example, gamma=10**6)
    models = ("a", "b")

    @given(chances, chances, st.integers(0, 4), st.integers(0, 8), costs(["a", "b"]))
    def test_closed_form(self, alpha, inner, n, k, cost) -> None:
        """Chen23: E[N] = (1 - alpha phi(alpha)^n) / (1 - alpha), n steps of k tokens."""
        a, b = mp.mpf(alpha), mp.mpf(inner)
        with mp.workdps(80):  # 1 - alpha phi^n is a difference of nearly equal numbers
            phi = 1 + (a - 1) * geometric(a * b, k)
            tokens = (1 - a * phi**n) / (1 - a) if a != 1 else 1 + n * geometric(b, k)
            c1, c2 = (mp.mpf(cost.drafts[d]) for d in "ab")
            price = n * c1 + n * k * c2 + read_cost(cost, 1 + n * geometric(b, k))
        known = Acceptances.of_pairs(alpha, inner)
        check_closed(VerticalCascade(("a", "b"), k, steps=(n,)), known, cost, (tokens, price))

    @settings(max_examples=60)
    @given(
        st.tuples(coin_acceptances, coin_acceptances),
        FORMS,
        small,
        st.integers(0, 2),
        st.booleans(),
    )
    def test_histories(self, known, form, n, k, one_run) -> None:
        scheme = VerticalCascade(("a", "b"), k, **{form: (n,)}, one_run=one_run)
        check_histories(scheme, Acceptances(known))

    @settings(max_examples=30)
    @given(
        st.tuples(coin_acceptances, coin_acceptances, coin_acceptances),
        FORMS,
        st.tuples(*[st.integers(0, 2)] * 2),
    )
    def test_histories_of_three_levels(self, known, form, enough) -> None:
        scheme = VerticalCascade(("a", "b", "c"), 1, **{form: enough})
        check_histories(scheme, Acceptances(known))

    def test_the_assumption_of_independence_is_one(self) -> None:
        """Real tokens of three toy models: E[N] is a few percent off, as the module says.

        A recovered token is accepted by the target at another rate than an accepted one.  The
        difference is over 5 standard errors: a miss in 1e6 runs, were the seed random.
        """
        rng = np.random.default_rng(7)
        p, q1, q2 = np.array([0.6, 0.3, 0.1]), np.array([0.4, 0.3, 0.3]), np.array([0.1, 0.5, 0.4])
        recovered = np.maximum(q1 - q2, 0) / np.maximum(q1 - q2, 0).sum()
        tokens = []
        for _ in range(8_000):
            proposal: list[int] = []
            for _ in range(2):
                for x in rng.choice(3, size=4, p=q2):
                    if rng.random() >= q1[x] / q2[x]:
                        proposal.append(rng.choice(3, p=recovered))
                        break
                    proposal.append(x)
                else:
                    proposal.append(rng.choice(3, p=q1))
            stands = rng.random(len(proposal)) < (p / q1)[proposal]
            tokens.append(1 + int(np.cumprod(stands).sum()))
        known = Acceptances.of_pairs(*(np.minimum(*pair).sum() for pair in ((p, q1), (q1, q2))))
        predicted = VerticalCascade(("a", "b"), 4, steps=(2,)).law(known).tokens_per_call
        error = np.std(tokens) / math.sqrt(len(tokens))
        assert 5 * error < abs(np.mean(tokens) - predicted) < 0.1 * predicted


class TestVerticalAtLeast(SchemeContract):
    example = VerticalCascade(("a", "b"), 3, at_least=(5,))
    known = Acceptances.of_pairs(0.8, 0.6)
    plain = dataclasses.replace(example, at_least=(0,))
    huge = dataclasses.replace(example, gamma=10**6)
    models = ("a", "b")

    @given(constant, constant, st.integers(0, 8))
    def test_one_token_is_one_step(self, outer, inner, k) -> None:
        """At least one token is exactly one step: the two families meet there."""
        known = Acceptances((outer, inner))
        found = VerticalCascade(("a", "b"), k, at_least=(1,)).law(known)
        wanted = VerticalCascade(("a", "b"), k, steps=(1,)).law(known)
        np.testing.assert_allclose(found.token_law(), wanted.token_law(), atol=1e-14)
        assert found.expected_runs() == pytest.approx(wanted.expected_runs())


def full_cascade(*lengths: tuple[int, ...]) -> FullCascade:
    return FullCascade(("a", "b", "m"), lengths)


class TestFullCascade(SchemeContract):
    example = full_cascade((3, 2, 3), (1, 4), (4,))
    known = Acceptances.of_pairs(0.8, 0.65, 0.2, 0.7, 0.3, 0.4)
    plain = full_cascade((0, 0, 0), (1, 4), (4,))
    huge = full_cascade((0, 0, 10**6), (1, 4), (4,))
    models = ("a", "b", "m")

    @settings(max_examples=25)
    @given(
        st.tuples(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1))),
        st.tuples(st.integers(0, 1), st.integers(0, 1)),
        st.integers(0, 1),
        st.lists(coins, min_size=6, max_size=6),
    )
    def test_histories(self, first, second, third, rates) -> None:
        check_histories(full_cascade(*first, second, (third,)), Acceptances.of_pairs(*rates))

    @given(st.lists(chances, min_size=6, max_size=6), st.integers(0, 6), st.integers(0, 6))
    def test_one_neural_drafter_is_a_vertical_cascade(self, rates, at_least, k) -> None:
        cascade = full_cascade((at_least, 0, 0), (0, k), (4,))
        found = cascade.law(Acceptances.of_pairs(*rates))
        scheme = VerticalCascade(("a", "m"), k, at_least=(at_least,), one_run=True)
        wanted = scheme.law(Acceptances.of_pairs(rates[0], rates[4]))
        np.testing.assert_allclose(found.token_law(), wanted.token_law(), atol=1e-13)
        assert found.calls("a") == pytest.approx(wanted.calls("a"))
        assert found.calls("m") == pytest.approx(wanted.calls("m"))

    def test_swi_is_the_speedup_under_draft_costs_alone(self) -> None:
        # Chen23 section 5: tokens over the sum of c_i calls_i.
        law, drafts = self.law, {"a": 0.0195, "b": 0.0053, "m": 0.0}
        calls = sum(c * law.calls(model) for model, c in {**drafts, TARGET: 1.0}.items())
        assert close(renewal.speedup(law, Cost(drafts)), law.tokens_per_call / calls)

    def test_what_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError, match="lengths row 1 must have 2 entries"):
            full_cascade((1, 1, 1), (1,), (1,))
