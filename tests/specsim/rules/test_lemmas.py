"""What the papers claim of their rules, each claim under its own name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specsim import formulas, rules
from specsim.checks import Floats
from specsim.rules import Distributions
from specsim.rules.base import distance, one_hot_top
from tests.support.rule_cases import CASES, adversarial, distributions, pairs

TINY = 1e-12
thresholds = st.floats(0, 1)
Pair = tuple[Floats, Floats]


# Leviathan23


@given(pairs())
def test_leviathan23_lemma_3_divergence(pair: Pair) -> None:
    """D_LK = sum |p - (p + q) / 2| = 1 - sum min(p, q)."""
    p, q = pair
    assert distance(p, q) == pytest.approx(np.abs(p - (p + q) / 2).sum(), abs=TINY)


@given(pairs())
def test_leviathan23_corollary_4_divergence_is_symmetric_and_bounded(pair: Pair) -> None:
    p, q = pair
    found = distance(p, q)
    assert 0 <= found <= 1
    assert found == pytest.approx(distance(q, p), abs=TINY)
    assert distance(p, p) == pytest.approx(0, abs=TINY)
    if np.abs(p - q).max() > 1e-9:
        assert found > 0
    assert (found > 1 - TINY) == (np.minimum(p, q).sum() < TINY)


@given(pairs())
def test_leviathan23_theorem_5_acceptance(pair: Pair) -> None:
    """beta = E_{x ~ q} min(1, p / q) = 1 - D_LK(p, q)."""
    p, q = pair
    drawn = q > 0
    expected = (q[drawn] * np.minimum(1, p[drawn] / q[drawn])).sum()
    found = rules.Lossless().acceptance(Distributions(p, q))
    assert found == pytest.approx(expected, abs=TINY)
    assert found == pytest.approx(1 - distance(p, q), abs=TINY)


@given(pairs())
def test_leviathan23_appendix_a1_emits_the_target(pair: Pair) -> None:
    p, q = pair
    law = rules.Lossless().emitted(Distributions(p, q))
    np.testing.assert_allclose(law, p, rtol=0, atol=1e-15)


@given(pairs(), st.floats(0.01, 1))
def test_leviathan23_a4_lenience_bound_holds_for_two_residuals(pair: Pair, lenience: float) -> None:
    """No token is emitted with more than p / l."""
    rows = Distributions(*pair)
    for rule in (rules.Lenient(lenience), rules.LenientScaledResidual(lenience)):
        assert (rule.emitted(rows) <= formulas.lenience_bound(rows.p, lenience) + TINY).all()


@given(pairs(), st.floats(0.01, 1))
def test_leviathan23_a4_lenient_acceptance(pair: Pair, lenience: float) -> None:
    """alpha_l = sum min(p / l, q), the same for all three residuals."""
    rows = Distributions(*pair)
    expected = np.minimum(rows.p / lenience, rows.q).sum()
    for kind in (rules.Lenient, rules.LenientScaledResidual, rules.LenientRedraw):
        assert kind(lenience).acceptance(rows) == pytest.approx(expected, abs=TINY)


def test_erratum_lenience_bound_fails_when_the_rejected_token_is_redrawn_from_p() -> None:
    # By hand: p = (e, 1 - e), q = (1, 0): m(0) = e / l + (1 - e / l) e, over e / l by nearly l.
    p, q, lenience = np.array([0.01, 0.99]), np.array([1.0, 0.0]), 0.9
    redraw = rules.LenientRedraw(lenience).emitted(Distributions(p, q))
    assert redraw[0] / (p[0] / lenience) == pytest.approx(1.89, abs=1e-12)
    kept = rules.Lenient(lenience).emitted(Distributions(p, q))
    assert kept[0] == pytest.approx(p[0] / lenience)


@given(pairs(), st.floats(0, 1))
def test_lenience_is_lossy_with_unit_scale(pair: Pair, lenience: float) -> None:
    """Leviathan23 A.4 with the residual of p - q is Narasimhan24's heuristic b = 1."""
    assume(lenience > 1e-3)
    rows = Distributions(*pair)
    np.testing.assert_allclose(
        rules.Lenient(lenience).emitted(rows),
        rules.Lossy(1 - lenience).emitted(rows),
        rtol=0,
        atol=TINY,
    )


# Narasimhan24


@given(st.sampled_from(["Opt", "OptLog"]), pairs(), thresholds)
def test_narasimhan24_lemma_6_plug_in_rules_are_optimal_for_calibrated_models(
    name: str, pair: Pair, cost: float
) -> None:
    """Where a model's own confidence is its expected loss, (10) and (26) are the optimum (9)."""
    p, q = pair
    rule = rules.RULES[name](cost)  # type: ignore[call-arg]
    assert isinstance(rule, rules.DeferralRule)
    if name == "Opt":
        losses = 1 - q.max(), 1 - p.max()
    else:
        losses = tuple(-(row[row > 0] * np.log(row[row > 0])).sum() for row in (q, p))
    gap = losses[0] - losses[1] - cost * distance(p, q)
    if abs(gap) > TINY:
        assert bool(rule.defer(Distributions(p, q))) == (gap > 0)


@given(pairs(), st.floats(0, 0.95), st.floats(0, 20))
def test_narasimhan24_lemma_3_general_sampling_is_lossy_decoding(
    pair: Pair, looseness: float, more: float
) -> None:
    """Accept with min(1, p / ((1 - a) q)), else draw from norm(max(0, p / b - q))."""
    p, q = pair
    scale = 1 - looseness + more
    rule, rows = rules.Lossy(looseness, scale), Distributions(p, q)
    drawn = q > 0
    expected = np.minimum(1, p[drawn] / ((1 - looseness) * q[drawn]))
    np.testing.assert_allclose(
        (rule.accepted(rows)[drawn] / q[drawn]), expected, rtol=TINY, atol=TINY
    )
    weights = np.maximum(0, p / scale - q)
    if weights.sum() > 1e-9:
        np.testing.assert_allclose(rule.residual(rows), weights / weights.sum(), rtol=0, atol=1e-6)


DEFERRALS = [case.rule for case in CASES if isinstance(case.rule, rules.DeferralRule)]


@given(pairs(), st.sampled_from(DEFERRALS))
def test_narasimhan24_lemma_5_rejection(pair: Pair, rule: rules.DeferralRule) -> None:
    """A draft token is rejected with probability r D_TV(p, q)."""
    rows = Distributions(*pair)
    rejected = 1 - rule.acceptance(rows)
    expected = bool(rule.defer(rows)) * distance(*pair)
    assert rejected == pytest.approx(expected, abs=TINY)


@given(pairs(), thresholds)
def test_narasimhan24_lemma_9_greedy_opt_is_diff(pair: Pair, threshold: float) -> None:
    """With one-hot rows to sample from and raw ones to decide on, OPT emits what Diff does."""
    p, q = pair
    rows = Distributions(one_hot_top(p), one_hot_top(q), p, q)
    opt = rules.Opt(threshold, decide_on="unscaled")
    diff = rules.Diff(threshold, decide_on="unscaled")
    np.testing.assert_array_equal(opt.emitted(rows), diff.emitted(rows))
    np.testing.assert_array_equal(opt.acceptance(rows), diff.acceptance(rows))


@given(pairs(), st.floats(0, 0.99))
def test_lossy_star_sums_to_one_and_its_scale_is_at_least_one(pair: Pair, looseness: float) -> None:
    """The scale always exists (errata Narasimhan24 2 feared it may not)."""
    rule, rows = rules.LossyStar(looseness), Distributions(*pair)
    inverse = float(rule.inverse_scale(rows))
    assert 0 <= inverse <= 1
    assert rule.pi(rows).sum() == pytest.approx(1, abs=TINY)
    lost = np.maximum(0, rows.q - rows.p / (1 - looseness)).sum()
    brought = np.maximum(0, rows.p * inverse - rows.q).sum()
    assert brought == pytest.approx(lost, abs=TINY)


@given(pairs())
def test_lossy_star_without_looseness_is_lossless(pair: Pair) -> None:
    p, q = pair
    np.testing.assert_allclose(
        rules.LossyStar(0.0).emitted(Distributions(p, q)), p, rtol=0, atol=TINY
    )


def test_erratum_lossy_with_unit_scale_emits_neither_pi_nor_its_norm() -> None:
    # docs/errata.md, Narasimhan24 1.
    rows = Distributions(np.array([0.3, 0.4, 0.3]), np.array([0.5, 0.3, 0.2]))
    rule = rules.Lossy(0.3)
    pi, m = rule.pi(rows), rule.emitted(rows)
    assert pi.sum() == pytest.approx(1.129, abs=5e-4)
    assert m == pytest.approx([0.429, 0.336, 0.236], abs=5e-4)
    assert np.abs(m - pi / pi.sum()).max() > 0.04


@given(pairs(), st.floats(0, 0.9))
def test_erratum_lossy_with_unit_scale_sums_to_at_least_one(pair: Pair, looseness: float) -> None:
    assert rules.Lossy(looseness).pi(Distributions(*pair)).sum() >= 1 - TINY


def test_erratum_lossy_with_a_large_scale_recovers_from_p() -> None:
    p, q = np.array([0.2, 0.8]), np.array([0.6, 0.4])
    rule, rows = rules.Lossy(0.5, 10.0), Distributions(p, q)
    assert rule.excess(rows).sum() == 0
    assert rule.acceptance(rows) < 1
    np.testing.assert_array_equal(rule.residual(rows), p)
    assert rule.emitted(rows).sum() == pytest.approx(1)


@given(pairs())
def test_token_v3_ends(pair: Pair) -> None:
    """q at t = 1; all but the target's top tokens are deferred at t = 0."""
    p, q = pair
    rows = Distributions(p, q)
    np.testing.assert_allclose(rules.TokenV3(1.0).emitted(rows), q, rtol=0, atol=TINY)
    np.testing.assert_array_equal(rules.TokenV3(0.0).deferred(rows), p < p.max())


@given(distributions(5))
def test_erratum_token_v3_at_zero_is_not_lossless(p: Floats) -> None:
    """With q = p it rejects with probability p(Top) (1 - p(Top)), though nothing differs."""
    rows = Distributions(p, p)
    rule = rules.TokenV3(0.0)
    most = p[p == p.max()].sum()
    assert 1 - rule.acceptance(rows) == pytest.approx(most * (1 - most), abs=TINY)
    assert rule.pi(rows)[p == p.max()].sum() == pytest.approx(most + most * (1 - most))


def test_erratum_token_v3_rejection_is_not_monotone_in_the_threshold() -> None:
    p, q = adversarial()
    rejected = np.array(
        [1 - rules.TokenV3(t).acceptance(Distributions(p, q)) for t in np.linspace(0, 1, 101)]
    )
    steps = np.diff(rejected, axis=0)
    assert ((steps > 1e-6).any(axis=0) & (steps < -1e-6).any(axis=0)).any()


def test_erratum_bild_distance_of_a_model_to_itself_is_not_zero() -> None:
    p = np.full(4, 0.25)
    for kind in ("greedy", "expectation"):
        assert rules.BildStar(1.38, kind).defer(Distributions(p, p))  # ln 4 = 1.386
        never = Distributions(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
        assert rules.BildStar(800.0, kind).defer(never), "exp(-800) is 0"
        assert not rules.BildStar(1.39, kind).defer(Distributions(p, p))


def test_erratum_xia22_confident_draft_tokens_are_judged_by_the_target() -> None:
    # The draft is sure of token 2, which the target thinks least of: never accepted.
    rows = Distributions(np.array([0.6, 0.3, 0.1]), np.array([0.0, 0.0, 1.0]))
    rule = rules.TopBeta(2, 3.0)
    assert rule.acceptance(rows) == 0
    assert rule.emitted(rows).tolist() == [1, 0, 0]
