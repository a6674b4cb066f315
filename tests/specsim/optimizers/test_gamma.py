"""``evaluate`` and ``optimize``: the calls behind the commands."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import specsim
from benchmarks import numerics_mpmath
from specsim import evaluate, formulas, optimize
from specsim.acceptance import (
    BetaAcceptance,
    ConstantAcceptance,
    DecayingAcceptance,
    PerPositionAcceptance,
    SurvivalAcceptance,
)
from specsim.checks import UnsupportedError
from specsim.optimizers.evaluation import FIGURES, Evaluation
from tests.support.refusals import refuses

rates = st.floats(0.0, 1.0)
prices = st.floats(0.0, 2.0)
curves = st.lists(rates, min_size=1, max_size=10).map(lambda row: tuple(np.cumprod(row).tolist()))
unhurried = settings(deadline=None)


def same(left: Evaluation, right: Evaluation, rel: float = 1e-14) -> None:
    for name in FIGURES:
        assert getattr(left, name) == pytest.approx(getattr(right, name), rel=rel), name


class TestEvaluate:
    @unhurried
    @given(rates, prices, st.integers(0, 60), prices, prices, prices, prices)
    def test_is_the_formulas(self, alpha, c, gamma, c_ops, c_memory, slope, overhead) -> None:
        costs = {"verify_slope": slope, "overhead": overhead}
        found = evaluate(alpha, c, gamma, c_ops=c_ops, c_memory=c_memory, **costs)
        wanted = Evaluation(
            gamma,
            formulas.speedup(alpha, c, gamma, **costs),
            formulas.tokens_per_call(alpha, gamma),
            formulas.operations_factor(alpha, gamma, c_ops),
            formulas.memory_factor(alpha, gamma, c_memory),
            np.maximum(1.0, formulas.oracle_speedup(alpha, c, **costs)),
            False,
        )
        same(found, wanted, rel=2e-15)

    def test_50_digits(self) -> None:
        """Points crowded at the edges; as a script the benchmark takes 100,000."""
        with mpmath.workdps(50):
            worst = numerics_mpmath.worst_errors(400, seed=51)
        assert max(error for error, _ in worst.values()) < 2e-15

    def test_scalars_in_scalars_out(self) -> None:
        found = evaluate(alpha=0.8, c=0.05, gamma=5)
        kinds = [type(getattr(found, name)) for name in FIGURES]
        assert kinds == [int, float, float, float, float, float, bool]
        assert not found.at_gamma_max
        assert type(found) is Evaluation

    def test_broadcasts(self) -> None:
        alpha, c, gamma = np.array([0.5, 0.9])[:, None, None], np.array([[0.1], [0.2]]), [0, 3, 9]
        c_ops, c_memory = np.array([0.1, 0.3])[:, None, None, None], np.array([0.2, 0.4, 0.6])
        found = evaluate(alpha, c, gamma, c_ops=c_ops, c_memory=c_memory)
        best = optimize(alpha, c, c_ops=c_ops, c_memory=c_memory)
        for name in FIGURES:
            assert getattr(found, name).shape == getattr(best, name).shape == (2, 2, 2, 3)
        for h, i, j, k in np.ndindex(2, 2, 2, 3):
            shares = {"c_ops": c_ops[h, 0, 0, 0], "c_memory": c_memory[k]}
            one = evaluate(alpha[i, 0, 0], c[j, 0], gamma[k], **shares)
            alone = optimize(alpha[i, 0, 0], c[j, 0], **shares)
            for name in FIGURES:
                assert getattr(found, name)[h, i, j, k] == getattr(one, name)
                assert getattr(best, name)[h, i, j, k] == getattr(alone, name)

    def test_a_list_is_one_acceptance_by_position(self) -> None:
        rates = (0.9, 0.5, 0.4)
        wanted = evaluate(PerPositionAcceptance(rates), 0.1, 5)
        for alpha in (rates, list(rates)):
            same(evaluate(alpha, 0.1, 5), wanted, rel=1e-15)
        same(evaluate([0.9], 0.1, 5), evaluate(0.9, 0.1, 5), rel=1e-15)
        assert evaluate(np.array(rates), 0.1, 5).speedup.shape == (3,)

    def test_an_extrapolated_curve_is_taken_as_far_as_it_goes(self) -> None:
        curve = specsim.extrapolate([0.8, 0.6, 0.4], 6)
        found = optimize(curve, 0.01)
        assert found.gamma == 6
        assert found.tokens_per_call == pytest.approx(curve.tokens_per_call, rel=1e-14)
        with pytest.raises(UnsupportedError, match="ends at position 6, 7 asked for"):
            evaluate(curve, 0.01, 7)

    def test_plain_decoding_is_exactly_one(self) -> None:
        found = evaluate(np.linspace(0, 1, 101), 0.7, 0, overhead=0.5, verify_slope=0.3)
        for name in ("speedup", "tokens_per_call", "operations_factor", "memory_factor"):
            assert (getattr(found, name) == 1.0).all()
        measured = evaluate(0.3, 0.7, 0, verify_cost=[1, 2], overhead=0.5)
        assert measured.speedup == 1.0

    @given(curves, prices, prices, prices)
    def test_survival_curve(self, curve, c, slope, overhead) -> None:
        """E[N] = S_0 + ... + S_gamma, at every gamma."""
        gamma = np.arange(len(curve) + 1)
        found = evaluate(
            alpha=SurvivalAcceptance(curve), c=c, gamma=gamma, verify_slope=slope, overhead=overhead
        )
        tokens = np.array([1.0 + sum(curve[:g]) for g in gamma])
        np.testing.assert_allclose(found.tokens_per_call, tokens, rtol=1e-14)
        cost = 1 + gamma * (c + slope) + overhead * (gamma > 0)
        np.testing.assert_allclose(found.speedup, tokens / cost, rtol=1e-14)
        np.testing.assert_allclose(found.operations_factor, (gamma + 1) / tokens, rtol=1e-14)

    @given(rates, st.integers(0, 40))
    def test_constant_rates_are_alpha(self, alpha, gamma) -> None:
        by_alpha = evaluate(alpha, 0.1, gamma, c_ops=0.1)
        same(evaluate(alpha=ConstantAcceptance(alpha), c=0.1, gamma=gamma, c_ops=0.1), by_alpha)
        by_position = evaluate(alpha=PerPositionAcceptance((alpha,)), c=0.1, gamma=gamma, c_ops=0.1)
        for name in FIGURES:
            if name != "oracle_speedup":  # of an oracle that drafts at most gamma tokens
                assert getattr(by_position, name) == pytest.approx(
                    getattr(by_alpha, name), rel=1e-13
                )

    @given(rates, st.lists(st.floats(0.5, 3), min_size=2, max_size=8), prices, prices)
    def test_measured_verification(self, alpha, reads, c, overhead) -> None:
        gamma = np.arange(len(reads))
        found = evaluate(alpha, c, gamma, verify_cost=reads, overhead=overhead)
        cost = gamma * c + np.array(reads) / reads[0] + overhead * (gamma > 0)
        tokens = formulas.tokens_per_call(alpha, gamma)
        np.testing.assert_allclose(found.speedup, tokens / cost, rtol=1e-14)

    def test_a_million_draft_tokens(self) -> None:
        """alpha within 1e-15 of 1, gamma = 10^6."""
        found = evaluate(1 - 1e-15, 0.0, 10**6)
        assert found.tokens_per_call == pytest.approx(1_000_001 * (1 - 0.5e-9), rel=1e-12)
        by_position = evaluate(alpha=PerPositionAcceptance((0.999,)), c=0.0, gamma=10**6)
        assert by_position.tokens_per_call == pytest.approx(1000, rel=1e-11)


class TestOracle:
    @given(curves, st.lists(st.floats(1, 3), min_size=10, max_size=10), prices, prices)
    def test_sums_over_first_rejections(self, curve, reads, c, overhead) -> None:
        """J accepted tokens of at most K, at the cost of drafting and reading just those."""
        verify = [1.0, *reads[: len(curve)]]
        survival = np.array([1.0, *curve, 0.0])
        cost, tokens = 0.0, 0.0
        for accepted in range(len(curve) + 1):
            chance = survival[accepted] - survival[accepted + 1]
            extra = overhead if accepted else 0.0
            cost += chance * (accepted * c + verify[accepted] + extra)
            tokens += chance * (accepted + 1)
        # The oracle goes as far as the curves do, whatever gamma is.
        for gamma in (0, len(curve)):
            found = evaluate(
                alpha=SurvivalAcceptance(curve),
                c=c,
                gamma=gamma,
                verify_cost=verify,
                overhead=overhead,
            )
            assert found.oracle_speedup == pytest.approx(max(tokens / cost, 1.0), rel=1e-12)

    def test_drafts_nothing_where_that_is_faster(self) -> None:
        assert optimize(0.8, 5.0).oracle_speedup == 1.0
        assert optimize([0.8, 0.7], 5.0).oracle_speedup == 1.0
        assert optimize(0.8, 0.1, overhead=9.0).oracle_speedup == 1.0

    def test_of_alpha_on_a_measured_curve(self) -> None:
        alpha, curve = np.array([0.0, 0.5, 1.0]), [1.0, 1.0, 1.5]
        found = evaluate(alpha, 0.1, 1, verify_cost=curve)
        # J in {0, 1, 2} with chances 1 - a, a (1 - a), a^2.
        a = alpha
        cost = (1 - a) + a * (1 - a) * 1.1 + a**2 * 1.7
        np.testing.assert_allclose(found.oracle_speedup, (1 + a + a**2) / cost, rtol=1e-14)

    @unhurried
    @given(curves, st.floats(0, 1), prices)
    def test_no_fixed_gamma_beats_it(self, curve, c, overhead) -> None:
        best = optimize(alpha=SurvivalAcceptance(curve), c=c, overhead=overhead)
        if best.gamma:
            assert best.oracle_speedup >= best.speedup * (1 - 1e-14)


class TestOptimize:
    # alpha 0.8, c 0.05: argmax of Leviathan23 Thm 3.8 over gamma by hand.
    def test_example(self) -> None:
        found = specsim.optimize(0.8, 0.05)
        assert found.gamma == 8
        assert found.speedup == pytest.approx(3.0920795428571, rel=1e-13)
        assert not found.at_gamma_max
        same(found, evaluate(0.8, 0.05, 8), rel=1e-15)

    @unhurried
    @given(rates, prices, prices, prices, st.sampled_from([0, 1, 5, 30]))
    def test_linear_costs(self, alpha, c, slope, overhead, gamma_max) -> None:
        """As good as the best of all gammas, and never worse than plain decoding."""
        costs = {"verify_slope": slope, "overhead": overhead}
        found = optimize(alpha, c, gamma_max=gamma_max, **costs)
        every = evaluate(alpha, c, np.arange(gamma_max + 1), **costs)
        assert found.speedup >= every.speedup.max() * (1 - 1e-15)
        assert found.speedup > 1 - 1e-15
        assert found.at_gamma_max == (found.gamma == gamma_max)

    @unhurried
    @given(
        curves,
        st.lists(st.floats(0.3, 3), min_size=2, max_size=12),
        prices,
        prices,
        st.integers(0, 12),
    )
    def test_measured_curves(self, curve, reads, c, overhead, gamma_max) -> None:
        """The search ends with the shorter curve, and says so if the best is there."""
        given = {"alpha": SurvivalAcceptance(curve), "c": c, "overhead": overhead}
        found = optimize(**given, verify_cost=reads, gamma_max=gamma_max)
        longest = min(gamma_max, len(reads) - 1, len(curve))
        every = evaluate(**given, verify_cost=reads, gamma=np.arange(longest + 1))
        assert found.gamma == every.speedup.argmax()
        assert found.speedup == pytest.approx(every.speedup.max(), rel=1e-15)
        assert found.at_gamma_max == (found.gamma == longest)

    def test_alpha_on_a_measured_curve(self) -> None:
        rng = np.random.default_rng(52)
        alpha, c, reads = rng.random((40, 1)), rng.random(30) / 5, [1, 1, 1.1, 1.1, 1.9, 1.2, 1.3]
        found = optimize(alpha, c, verify_cost=reads, overhead=0.05)
        every = evaluate(
            alpha[..., None], c[:, None], np.arange(7), verify_cost=reads, overhead=0.05
        )
        np.testing.assert_array_equal(found.gamma, every.speedup.argmax(axis=-1))
        np.testing.assert_allclose(found.speedup, every.speedup.max(axis=-1), rtol=1e-15)

    @pytest.mark.parametrize(
        "acceptance",
        [
            PerPositionAcceptance((0.9, 0.8, 0.4)),
            BetaAcceptance(3.0, 1.0),
            DecayingAcceptance(0.95, 0.7, 0.2),
        ],
    )
    def test_other_acceptance(self, acceptance) -> None:
        found = optimize(alpha=acceptance, c=[0.01, 0.1, 0.6], gamma_max=40)
        every = evaluate(alpha=acceptance, c=[[0.01], [0.1], [0.6]], gamma=np.arange(41))
        np.testing.assert_array_equal(found.gamma, every.speedup.argmax(axis=1))

    def test_unbounded_gain_says_so(self) -> None:
        found = optimize(np.array([0.5, 0.5, 1.0]), [0.0, 0.1, 0.5])
        np.testing.assert_array_equal(found.gamma, [64, 2, 64])
        np.testing.assert_array_equal(found.at_gamma_max, [True, False, True])

    def test_figures_wait_but_inputs_are_kept(self) -> None:
        alpha, c = np.full(4, 0.8), np.full(4, 0.05)
        found = optimize(alpha, c)
        alpha[:], c[:] = 0.1, 0.9
        wanted = optimize(0.8, 0.05)
        for name in FIGURES:
            assert (getattr(found, name) == getattr(wanted, name)).all()

    def test_array_results_are_ordinary(self) -> None:
        alpha = np.array([0.8, 0.9])
        found = optimize(alpha, 0.05)
        assert isinstance(found, Evaluation)
        assert "speedup=array" in repr(optimize(alpha, 0.05))
        assert set(FIGURES) < set(dataclasses.asdict(found))
        assert [row["alpha"] for row in found.rows()] == [0.8, 0.9]
        assert found.frame()["gamma"].tolist() == found.gamma.tolist()
        for other in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
            np.testing.assert_array_equal(other.oracle_speedup, found.oracle_speedup)
        with pytest.raises(AttributeError, match="speed_up"):
            _ = found.speed_up
        with pytest.raises(dataclasses.FrozenInstanceError):
            found.gamma = 3


test_errors_name_the_argument = refuses(
    (lambda: optimize(c=0.1), "alpha is missing"),
    (lambda: optimize([[0.5]], 0.1), "alpha must be one acceptance here"),
    (lambda: optimize(0.5), "c is missing"),
    (
        lambda: optimize(np.array([0.6, 0.7, 0.8]), np.array([0.1, 0.2])),
        r"arrays must broadcast, got alpha \(3,\) and c \(2,\)",
    ),
    (
        lambda: evaluate(np.array([0.6, 0.7]), 0.1, gamma=[1, 2, 3]),
        r"arrays must broadcast, got alpha \(2,\) and gamma \(3,\)",
    ),
    (lambda: evaluate(0.5, 0.1), "gamma is missing"),
    (lambda: optimize(1.5, 0.1), r"alpha must be in \[0, 1\], got 1.5"),
    (lambda: optimize("high", 0.1), "alpha must be a number, got 'high'"),
    (lambda: optimize(0.5, -0.1), "c must be >= 0, got -0.1"),
    (lambda: optimize(0.5, np.inf), "c must be finite, got inf"),
    (lambda: optimize([], 0.1), "alpha is empty"),
    (lambda: evaluate(0.5, 0.1, 1.5), "gamma must be a whole number"),
    (lambda: evaluate(0.5, 0.1, -1), "gamma must be a whole number"),
    (lambda: evaluate(0.5, 0.1, 1e300), "gamma must be a whole number"),
    (lambda: optimize(0.5, 0.1, gamma_max=-1), "gamma_max must be a whole number"),
    (lambda: optimize(0.5, 0.1, c_ops=-1), "c_ops must be >= 0, got -1"),
    (lambda: optimize(0.5, 0.1, c_memory=np.nan), "c_memory must be >= 0, got nan"),
    (lambda: optimize(0.5, 0.1, verify_slope=-1), "verify slope must be >= 0, got -1"),
    (lambda: optimize(0.5, 0.1, overhead=-1), "overhead must be >= 0, got -1"),
    (lambda: optimize(0.5, 0.1, verify_cost=[0, 1]), "verify cost of 1 tokens must be > 0"),
    (
        lambda: optimize(0.5, 0.1, verify_cost=[1, 1], verify_slope=0.1),
        "verify_slope and verify_cost exclude each other",
    ),
)


@pytest.mark.parametrize(
    "beyond",
    [
        {"alpha": 0.5, "verify_cost": [1, 1, 1]},
        {"alpha": np.full(3, 0.5), "verify_cost": [1, 1, 1]},
        {"alpha": SurvivalAcceptance((0.9, 0.5))},
        {"alpha": SurvivalAcceptance((0.9, 0.5)), "verify_cost": [1, 1, 1]},
    ],
)
def test_beyond_what_was_measured_is_unsupported(beyond) -> None:
    """At once, also where the figures would wait."""
    evaluate(**beyond, c=0.1, gamma=2)
    with pytest.raises(UnsupportedError):
        evaluate(**beyond, c=0.1, gamma=3)
