"""The closed forms against slow, obvious sums: exact fractions, enumeration, 50 digits."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim import formulas
from tests.support.refusals import refuses

chances = st.one_of(
    st.floats(0.0, 1.0), st.floats(-15, 0).map(lambda x: 1.0 - 10.0**x), st.sampled_from([0.0, 1.0])
)
prices = st.floats(0.0, 10.0)
lengths = st.integers(0, 30)

# Exact fractions are slow on a busy machine.
unhurried = settings(deadline=None)

# A few roundings of sums of positive terms.
CLOSE = 2e-15


def fraction_sum(x: float, n: int) -> Fraction:
    """1 + x + ... + x^(n-1), exactly."""
    return sum((Fraction(x) ** i for i in range(n)), Fraction(0))


def law_of_n(alpha: float, gamma: int) -> dict[int, Fraction]:
    """P(N = n), exactly: Leviathan23 section 3.1."""
    a = Fraction(alpha)
    law = {n: (1 - a) * a ** (n - 1) for n in range(1, gamma + 1)}
    law[gamma + 1] = a**gamma
    return law


class TestGeometricSum:
    @unhurried
    @given(chances, st.integers(0, 60))
    def test_is_the_sum(self, x: float, n: int) -> None:
        found = float(formulas.geometric_sum(np.array(x), np.array(n)))
        assert found == pytest.approx(float(fraction_sum(x, n)), rel=CLOSE)

    def test_ends_are_exact(self) -> None:
        n = np.array([0, 1, 7, 10**6])
        np.testing.assert_array_equal(formulas.geometric_sum(np.ones(4), n), n)
        np.testing.assert_array_equal(formulas.geometric_sum(np.zeros(4), n), [0, 1, 1, 1])

    @pytest.mark.parametrize("miss", [1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 0.5])
    @pytest.mark.parametrize("n", [1, 2, 1000, 10**6])
    def test_50_digits(self, miss: float, n: int) -> None:
        x = 1.0 - miss
        with mpmath.workdps(50):
            wanted = float((1 - mpmath.mpf(x) ** n) / (1 - mpmath.mpf(x)))
        assert float(formulas.geometric_sum(np.array(x), np.array(n))) == pytest.approx(
            wanted, rel=CLOSE
        )


class TestSpeculative:
    @given(chances, lengths)
    def test_tokens(self, alpha: float, gamma: int) -> None:
        mean = sum(n * p for n, p in law_of_n(alpha, gamma).items())
        assert float(formulas.tokens_per_call(alpha, gamma)) == pytest.approx(
            float(mean), rel=CLOSE
        )

    @given(chances, lengths)
    def test_tokens_without_bonus(self, alpha: float, gamma: int) -> None:
        # Accepted whole, a draft yields gamma tokens, not gamma + 1; plain decoding yields one.
        mean = sum(min(n, max(gamma, 1)) * p for n, p in law_of_n(alpha, gamma).items())
        found = float(formulas.tokens_per_call(alpha, gamma, bonus=False))
        assert found == pytest.approx(float(mean), rel=CLOSE)

    @given(chances, chances, lengths)
    def test_generating_function(self, x: float, alpha: float, gamma: int) -> None:
        wanted = sum(Fraction(x) ** n * p for n, p in law_of_n(alpha, gamma).items())
        found = float(formulas.generating_function(x, alpha, gamma))
        assert found == pytest.approx(float(wanted), rel=1e-13, abs=1e-300)

    @given(chances, prices, st.floats(0, 2), st.floats(0, 2))
    def test_plain_decoding_is_exactly_one(
        self, alpha: float, c: float, slope: float, overhead: float
    ) -> None:
        costs = {"verify_slope": slope, "overhead": overhead}
        for once, bonus in itertools.product((False, True), repeat=2):
            value = formulas.speedup(alpha, c, 0, draft_once=once, bonus=bonus, **costs)
            assert float(value) == 1.0
        assert float(formulas.tokens_per_call(alpha, 0)) == 1.0
        assert float(formulas.operations_factor(alpha, 0, c)) == 1.0
        assert float(formulas.memory_factor(alpha, 0, c)) == 1.0

    def test_costs_by_hand(self) -> None:
        # 4 drafts at 0.1, verify 1 + 0.02 * 4, overhead 0.3; then one draft run, no bonus token.
        cost = formulas.call_cost(0.1, 4, verify_slope=0.02, overhead=0.3)
        assert float(cost) == pytest.approx(0.4 + 1.08 + 0.3, rel=1e-15)
        once = formulas.call_cost(0.1, 4, verify_slope=0.02, draft_once=True, bonus=False)
        assert float(once) == pytest.approx(0.1 + 1.06, rel=1e-15)
        assert float(formulas.draft_cost(0.1, 0, draft_once=True)) == 0.0

    def test_limits(self) -> None:
        """alpha = 1 gives (gamma + 1)/(gamma c + 1), c = 0 tends to 1/(1 - alpha)."""
        gamma = np.array([0, 1, 64, 10**6])
        np.testing.assert_array_equal(formulas.tokens_per_call(1.0, gamma), gamma + 1)
        np.testing.assert_allclose(
            formulas.speedup(1.0, 0.25, gamma), (gamma + 1) / (gamma * 0.25 + 1), rtol=1e-15
        )
        np.testing.assert_array_equal(formulas.tokens_per_call(0.0, gamma), 1.0)
        assert float(formulas.speedup(0.75, 0.0, 10**6)) == pytest.approx(4.0, rel=1e-15)

    @given(chances, lengths, prices)
    def test_operations_and_memory(self, alpha: float, gamma: int, ratio: float) -> None:
        tokens = fraction_sum(alpha, gamma + 1)
        operations = (gamma * Fraction(ratio) + gamma + 1) / tokens
        found = float(formulas.operations_factor(alpha, gamma, ratio))
        assert found == pytest.approx(float(operations), rel=CLOSE)
        memory = (1 + gamma * Fraction(ratio)) / tokens
        found = float(formulas.memory_factor(alpha, gamma, ratio))
        assert found == pytest.approx(float(memory), rel=CLOSE)
        once = (1 + min(gamma, 1) * Fraction(ratio)) / tokens
        found = float(formulas.memory_factor(alpha, gamma, ratio, draft_once=True))
        assert found == pytest.approx(float(once), rel=CLOSE)

    @given(st.floats(0, 0.9), prices, st.floats(0, 2), st.floats(0, 2))
    def test_oracle_is_a_sum_over_first_rejections(
        self, alpha: float, c: float, slope: float, overhead: float
    ) -> None:
        """J accepted tokens have chance (1 - a) a^J and cost 1 + J (c + b), and o if J > 0."""
        j = np.arange(500)
        chance = (1 - alpha) * alpha**j
        cost = 1 + j * (c + slope) + overhead * (j > 0)
        found = formulas.oracle_speedup(alpha, c, verify_slope=slope, overhead=overhead)
        assert float(found) == pytest.approx(chance @ (j + 1) / (chance @ cost), rel=1e-12)

    def test_oracle_at_the_ends(self) -> None:
        assert float(formulas.oracle_speedup(1.0, 0.0)) == math.inf
        assert float(formulas.oracle_speedup(1.0, 0.25)) == 4.0
        assert float(formulas.oracle_speedup(0.0, 0.5)) == 1.0
        # Leviathan23 section 3.5: 1/(1 - alpha + c alpha).
        assert float(formulas.oracle_speedup(0.9, 0.1)) == pytest.approx(1 / 0.19, rel=1e-15)

    @given(st.floats(0, 0.99), st.floats(0, 1), lengths, st.floats(0, 2))
    def test_no_fixed_gamma_beats_the_oracle(
        self, alpha: float, c: float, gamma: int, overhead: float
    ) -> None:
        oracle = formulas.oracle_speedup(alpha, c, overhead=overhead)
        fixed = formulas.speedup(alpha, c, max(gamma, 1), overhead=overhead)
        assert fixed <= oracle * (1 + 1e-14)

    @given(chances, prices)
    def test_guaranteed_speedup(self, alpha: float, c: float) -> None:
        found = float(formulas.guaranteed_speedup(alpha, c))
        first = float(formulas.speedup(alpha, c, 1))
        assert found == pytest.approx(max(first, 1.0), rel=CLOSE)
        assert found >= 1.0


class TestLenienceBound:
    def test_ends(self) -> None:
        np.testing.assert_array_equal(formulas.lenience_bound([0.0, 0.3, 1.0], 0.0), 1.0)
        np.testing.assert_array_equal(formulas.lenience_bound([0.0, 0.3, 1.0], 1.0), [0, 0.3, 1])


class TestFiniteGeneration:
    @unhurried
    @given(chances, st.integers(0, 6), st.integers(0, 12))
    def test_is_the_recursion_on_calls(self, alpha: float, gamma: int, tokens: int) -> None:
        """calls(K) = 1 + sum_n P(N = n) calls(K - n), calls = 0 once K <= 0."""
        law = law_of_n(alpha, gamma)
        calls = [Fraction(0)]
        for left in range(1, tokens + 1):
            calls.append(1 + sum(p * calls[max(left - n, 0)] for n, p in law.items()))
        found = formulas.calls_for(tokens, alpha, gamma)
        assert found == pytest.approx(float(calls[tokens]), rel=1e-14)


def horizontal(alphas: list[Fraction], costs: list[Fraction]) -> Fraction:
    """Chen23 Thm 4.1, exactly."""
    emitted, alive = Fraction(1), Fraction(1)
    for alpha in alphas:
        alive *= alpha
        emitted += alive
    return emitted / (1 + sum(costs))


class TestHorizontal:
    @unhurried
    @given(st.lists(st.tuples(chances, prices), max_size=8))
    def test_speedup(self, drafters: list[tuple[float, float]]) -> None:
        alphas, costs = ([Fraction(d[i]) for d in drafters] for i in (0, 1))
        found = formulas.horizontal_speedup([d[0] for d in drafters], [d[1] for d in drafters])
        assert found == pytest.approx(float(horizontal(alphas, costs)), rel=CLOSE)

    @unhurried
    @given(st.lists(st.tuples(chances, prices), max_size=8))
    def test_gradient(self, drafters: list[tuple[float, float]]) -> None:
        """EWIF is linear in each alpha, so its derivative is a difference: exact, not small."""
        alphas, costs = ([Fraction(d[i]) for d in drafters] for i in (0, 1))
        found = formulas.horizontal_gradient([d[0] for d in drafters], [d[1] for d in drafters])
        assert found.shape == (len(drafters),)
        for i, value in enumerate(found):
            high, low = (
                horizontal([*alphas[:i], Fraction(end), *alphas[i + 1 :]], costs) for end in (1, 0)
            )
            assert value == pytest.approx(float(high - low), rel=CLOSE, abs=1e-300)


class TestVertical:
    @settings(max_examples=40, deadline=None)
    @given(chances, chances, st.integers(0, 3), st.integers(0, 3))
    def test_is_an_enumeration_of_inner_steps(
        self, alpha: float, inner: float, steps: int, k: int
    ) -> None:
        """Every history of inner steps has a length J; the target then accepts a run of it."""
        tokens = Fraction(0)
        for history in itertools.product(law_of_n(inner, k).items(), repeat=steps):
            chance = math.prod((p for _, p in history), start=Fraction(1))
            tokens += chance * fraction_sum(alpha, sum(n for n, _ in history) + 1)
        cost = 1 + steps * (Fraction(1, 4) + k * Fraction(1, 32))
        found = formulas.vertical_speedup(alpha, inner, steps, k, 0.25, 0.03125)
        assert float(found) == pytest.approx(float(tokens / cost), rel=1e-14)


class TestBild:
    @unhurried
    @given(chances, chances, st.integers(1, 30))
    def test_is_an_enumeration(self, fallback: float, rollback: float, window: int) -> None:
        f, r = Fraction(fallback), Fraction(rollback)
        u, s = 1 - f, 1 - r
        drafted = {j: u**j * (f if j < window else 1) for j in range(window + 1)}
        tokens = runs = read = Fraction(0)
        for j, chance in drafted.items():
            rolled_back = sum(s**m * r * (m + 1) for m in range(j))
            tokens += chance * (rolled_back + s**j * (j + 1))
            # The run that falls back is one more, unless the window is full.
            runs += chance * min(j + 1, window)
            read += chance * j
        assert float(formulas.bild_tokens_per_call(fallback, rollback, window)) == pytest.approx(
            float(tokens), rel=1e-14
        )
        found_runs = formulas.bild_runs_per_call(fallback, window)
        assert float(found_runs) == pytest.approx(float(runs), rel=1e-14)
        c, slope, overhead = Fraction(1, 4), Fraction(1, 64), Fraction(1, 8)
        wanted = tokens / (c * runs + 1 + slope * read + overhead)
        found = formulas.bild_speedup(
            fallback, rollback, window, 0.25, verify_slope=1 / 64, overhead=0.125
        )
        assert float(found) == pytest.approx(float(wanted), rel=1e-14)


test_errors_name_the_argument = refuses(
    (lambda: formulas.tokens_per_call(1.5, 3), r"alpha must be in \[0, 1\], got 1.5"),
    (lambda: formulas.tokens_per_call([0.5, np.nan], 3), r"alpha must be in \[0, 1\], got nan"),
    (lambda: formulas.speedup(0.5, -1, 3), "c must be >= 0, got -1"),
    (lambda: formulas.speedup(0.5, np.inf, 3), "c must be finite, got inf"),
    (lambda: formulas.speedup(0.5, 0.1, 2.5), "gamma must be a whole number >= 0, got 2.5"),
    (lambda: formulas.bild_speedup(0.1, 0.1, 0, 0.1), "window must be a whole number >= 1"),
    (lambda: formulas.horizontal_speedup([0.5], [0.1, 0.2]), "two rows of one length"),
    (lambda: formulas.calls_for(-1, 0.5, 3), "tokens must be a whole number >= 0, got -1"),
)
