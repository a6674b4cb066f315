"""Every kind of acceptance answers the same two questions, consistently and at the limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

import specsim
from specsim.acceptance import (
    Acceptance,
    AcceptanceByLength,
    BetaAcceptance,
    ConstantAcceptance,
    DecayingAcceptance,
    PerPositionAcceptance,
    SurvivalAcceptance,
    acceptance_of,
    notes_on,
    tokens_per_call,
)
from specsim.checks import UnsupportedError
from specsim.extrapolation import Conditional, GapLaw, Marginal
from specsim.extrapolation.mixtures import TokenMixture
from specsim.predict.replay.fixed_gamma import replay
from specsim.traces import Trace
from tests.support.refusals import refuses

rate = st.floats(0.0, 1.0)
shape = st.floats(0.01, 100.0)
kinds = st.one_of(
    st.builds(ConstantAcceptance, rate),
    st.builds(lambda alphas: PerPositionAcceptance(tuple(alphas)), st.lists(rate, min_size=1)),
    st.builds(
        lambda curve: SurvivalAcceptance(tuple(sorted(curve, reverse=True))),
        st.lists(rate, min_size=12, max_size=20),
    ),
    st.builds(BetaAcceptance, shape, shape),
    st.builds(DecayingAcceptance, rate, rate, rate),
)


@given(kinds, st.integers(0, 12))
def test_survival_starts_at_one_and_never_rises(acceptance: Acceptance, length: int) -> None:
    curve = acceptance.survival(length)
    assert curve.shape == (length + 1,)
    assert curve[0] == 1
    assert (np.diff(curve) <= 0).all()
    assert (curve >= 0).all()


@given(kinds, st.integers(0, 12))
def test_survival_is_the_product_of_the_conditional_rates(
    acceptance: Acceptance, length: int
) -> None:
    rates = acceptance.conditional(length)
    assert rates.shape == (length,)
    assert ((rates >= 0) & (rates <= 1)).all()
    # atol: subnormal numbers have few digits left to compare.
    np.testing.assert_allclose(
        acceptance.survival(length)[1:], np.cumprod(rates), rtol=1e-12, atol=1e-300
    )


@given(kinds, st.integers(0, 11))
def test_a_shorter_curve_is_a_prefix(acceptance: Acceptance, length: int) -> None:
    longer = acceptance.survival(length + 1)
    np.testing.assert_array_equal(acceptance.survival(length), longer[:-1])


@pytest.mark.parametrize("a", [0.2, 1.0, 7.5])
@pytest.mark.parametrize("b", [0.3, 1.0, 4.0])
def test_beta_moments_against_quadrature(a: float, b: float) -> None:
    # The integrable poles at both ends of the density go into the weight (1-x)^(b-1) x^(a-1).
    norm = np.exp(stats.beta(a, b).logpdf(0.5) - (a - 1 + b - 1) * np.log(0.5))
    curve = BetaAcceptance(a, b).survival(9)
    for power, value in enumerate(curve):
        moment, _ = integrate.quad(
            lambda x, power=power: x**power, 0, 1, weight="alg", wvar=(a - 1, b - 1)
        )
        assert value == pytest.approx(norm * moment, rel=1e-10)


@given(st.floats(0.05, 0.95), st.floats(0.1, 50.0), st.integers(2, 12))
def test_a_mixture_yields_more_than_its_mean(mean: float, size: float, length: int) -> None:
    # Jensen: E[alpha^i] >= E[alpha]^i, with alpha averaged over calls, as S_1 is.
    mixed = BetaAcceptance(mean * size, (1 - mean) * size)
    assert (mixed.survival(length) >= ConstantAcceptance(mean).survival(length) - 1e-12).all()


@given(rate, st.integers(0, 12))
def test_the_other_kinds_contain_the_constant_one(alpha: float, length: int) -> None:
    expected = ConstantAcceptance(alpha).survival(length)
    for same in (
        PerPositionAcceptance((alpha,)),
        DecayingAcceptance(alpha, decay=1.0),
        DecayingAcceptance(alpha, decay=0.3, floor=alpha),
        SurvivalAcceptance(tuple(ConstantAcceptance(alpha).survival(12)[1:])),
    ):
        np.testing.assert_allclose(same.survival(length), expected, rtol=1e-12, atol=1e-300)


def test_limits() -> None:
    np.testing.assert_array_equal(ConstantAcceptance(0.0).survival(2), [1, 0, 0])
    np.testing.assert_array_equal(ConstantAcceptance(1.0).survival(2), [1, 1, 1])
    # Nearly no spread between requests is the constant kind, nearly all spread is all or nothing.
    narrow = BetaAcceptance(0.7e9, 0.3e9).survival(8)
    np.testing.assert_allclose(narrow, ConstantAcceptance(0.7).survival(8), rtol=1e-7)
    wide = BetaAcceptance(0.7e-9, 0.3e-9).survival(8)
    np.testing.assert_allclose(wide[1:], 0.7, rtol=1e-7)
    np.testing.assert_array_equal(DecayingAcceptance(0.8, 0.0, 0.5).conditional(3), [0.8, 0.5, 0.5])


def test_per_position_holds_the_last_rate_on() -> None:
    np.testing.assert_array_equal(
        PerPositionAcceptance((0.9, 0.5)).conditional(4), [0.9, 0.5, 0.5, 0.5]
    )


@given(kinds, st.integers(0, 12))
def test_tokens_per_call_are_the_sum_of_the_curve(acceptance: Acceptance, longest: int) -> None:
    found = tokens_per_call(acceptance, longest)
    assert found.shape == (longest + 1,)
    assert found[-1] == pytest.approx(acceptance.survival(longest).sum(), rel=1e-12)


@pytest.mark.parametrize(
    "acceptance",
    [
        GapLaw(np.array([5.0, 2.0, 1.5, 1.3]), tail=0.9),
        TokenMixture(np.array([0.3, 0.9]), np.ones(2)),
        acceptance_of(Marginal((0.8, 0.7, 0.65), 3000, heads=False)),
    ],
)
def test_what_depends_on_the_length_has_a_curve_for_each(acceptance: AcceptanceByLength) -> None:
    assert isinstance(acceptance, AcceptanceByLength)
    found = tokens_per_call(acceptance, 5)
    for gamma in range(6):
        assert found[gamma] == pytest.approx(acceptance.survival(gamma).sum(), rel=1e-12)
    assert acceptance.survival(5)[1] < acceptance.survival(1)[1]


def test_notes_say_how_alpha_was_read_and_how_far_it_goes() -> None:
    def notes(alpha: object, gamma: int) -> str:
        return "; ".join(notes_on(alpha, acceptance_of(alpha), gamma))

    # Falling rates could be either kind; rising ones and single ones could not.
    assert "0.9,0.8 was read as conditional rates" in notes([0.9, 0.8], 2)
    assert "read as" not in notes([0.8, 0.9], 2)
    assert notes([0.9], 9) == notes(0.9, 9) == notes(Marginal((0.9, 0.8)), 2) == ""
    assert "given for 2 positions, and the last, 0.9, is taken to hold on to gamma 5" in notes(
        (0.8, 0.9), 5
    )
    assert "measured at gamma 2; gamma 1 was not" in notes(Conditional((0.9, 0.8)), 1)
    curve = specsim.extrapolate([0.8, 0.6], 5, counts=1000)
    assert notes(curve, 2) == ""
    assert "gamma 4 is 2 beyond what was measured" in notes(curve, 4)
    assert f"{curve.low.sum() + 1:.3f} to {curve.high.sum() + 1:.3f}" in notes(curve, 5)


def test_a_measured_curve_ends_where_it_was_measured() -> None:
    curve = SurvivalAcceptance((0.6, 0.0, 0.0))
    np.testing.assert_array_equal(curve.conditional(3), [0.6, 0, 0])
    with pytest.raises(UnsupportedError, match="ends at position 3, 4 asked for"):
        curve.survival(4)


test_bad_input_is_named = refuses(
    (lambda: ConstantAcceptance(1.2), r"alpha must be in \[0, 1\], got 1.2"),
    (lambda: ConstantAcceptance(float("nan")), r"alpha must be in \[0, 1\], got nan"),
    (lambda: PerPositionAcceptance(()), "alpha is empty"),
    (lambda: SurvivalAcceptance((0.5, 0.6)), "non-increasing"),
    (lambda: BetaAcceptance(0.0, 1.0), "a must be > 0, got 0"),
    (lambda: DecayingAcceptance(0.5, -0.1), r"decay must be in \[0, 1\], got -0.1"),
)


def test_a_trace_is_replayed_at_every_draft_length() -> None:
    """Blocks start where those before them end, which is not everywhere alike."""
    chances = np.random.default_rng(3).random(900) ** 0.3
    trace = Trace(chances, np.array([0, 200, 900]))
    for gamma in (1, 3, 8):
        found = specsim.evaluate(trace, 0.1, gamma).tokens_per_call
        assert found == pytest.approx(replay(trace, [gamma])[0].tokens_per_call, rel=1e-12)
