"""The closed forms derived with sympy, and compared with the numeric code."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

from specsim import formulas
from specsim.optimizers import search

a, c, x, b, o = sp.symbols("alpha c x b o", positive=True)
g = sp.symbols("gamma", integer=True, positive=True)
n, i = sp.symbols("n i", integer=True, positive=True)

POINTS = [(0.3, 0.05, 2), (0.8, 0.05, 8), (0.95, 0.2, 5), (0.6, 0.5, 1)]


def geometric(term: sp.Expr, first: object, last: object, ratio: sp.Expr) -> sp.Expr:
    """The sum of ``term`` over n, at a ratio that is not one."""
    total = sp.summation(term, (n, first, last))
    return sp.simplify(sp.piecewise_fold(total).subs(sp.Eq(ratio, 1), sp.false))


def is_zero(expression: sp.Expr) -> bool:
    return sp.simplify(sp.expand(sp.powsimp(sp.expand(expression)))) == 0


# Leviathan23 section 3.1: P(N = n) = (1 - a) a^(n-1) for n <= gamma, P(N = gamma + 1) = a^gamma.
MASS = (1 - a) * a ** (n - 1)
MEAN = (1 - a ** (g + 1)) / (1 - a)
EWIF = MEAN / (1 + g * c)


class TestLawOfN:
    def test_sums_to_one(self) -> None:
        assert is_zero(geometric(MASS, 1, g, a) + a**g - 1)

    def test_mean(self) -> None:
        derived = geometric(n * MASS, 1, g, a) + (g + 1) * a**g
        assert is_zero(derived - MEAN)
        value = sp.lambdify((a, g), derived)
        for alpha, _, gamma in POINTS:
            numeric = float(formulas.tokens_per_call(alpha, gamma))
            assert numeric == pytest.approx(value(alpha, gamma), rel=1e-13)

    def test_generating_function(self) -> None:
        """phi(x) = 1 + (x - 1)(1 - (a x)^(gamma+1))/(1 - a x), and phi'(1) = E[N]."""
        ratio = sp.symbols("r", positive=True)  # a x
        derived = (1 - a) * x * (1 - ratio**g) / (1 - ratio) + x * ratio**g
        by_terms = [
            sum((1 - a) * a ** (m - 1) * x**m for m in range(1, k + 1)) + a**k * x ** (k + 1)
            for k in range(4)
        ]
        for k, terms in enumerate(by_terms):
            assert is_zero(sp.cancel(derived.subs({ratio: a * x, g: k}) - terms))
        phi = 1 + (x - 1) * (1 - ratio ** (g + 1)) / (1 - ratio)
        together = sp.together((derived - phi).subs(a, ratio / x))
        assert is_zero(sp.expand(sp.numer(together)))
        slope = sp.diff(phi.subs(ratio, a * x), x).subs(x, 1)
        assert is_zero(sp.together(slope - MEAN))
        value = sp.lambdify((x, a, g), phi.subs(ratio, a * x))
        for alpha, _, gamma in POINTS:
            for at in (0.0, 0.4, 0.9, 1.0):
                numeric = float(formulas.generating_function(at, alpha, gamma))
                assert numeric == pytest.approx(value(at, alpha, gamma), rel=1e-12, abs=1e-15)

    def test_oracle(self) -> None:
        """Tokens and cost summed over the first rejection: 1/((1 - a)(1 + a o) + (c + b) a)."""
        (below_one, _), _ = sp.summation(n * a**n, (n, 1, sp.oo)).args
        drafts = (1 - a) * below_one
        assert sp.simplify(drafts - a / (1 - a)) == 0
        derived = (1 + drafts) / (1 + a * o + (c + b) * drafts)
        closed = 1 / ((1 - a) * (1 + a * o) + (c + b) * a)
        assert sp.simplify(derived - closed) == 0
        numeric = formulas.oracle_speedup(0.7, 0.1, verify_slope=0.02, overhead=0.3)
        values = {a: 0.7, c: 0.1, b: 0.02, o: 0.3}
        assert float(numeric) == pytest.approx(float(closed.subs(values)), rel=1e-14)


class TestOptimum:
    y, v, real = sp.symbols("y v gamma_real", positive=True)

    def stationary(self) -> sp.Expr:
        """dEWIF/dgamma up to positive factors, at a = e^-y and gamma + 1 = v/y."""
        ewif = EWIF.subs(g, self.real)
        slope = sp.numer(sp.together(sp.diff(ewif, self.real)))
        slope = slope.subs(a, sp.exp(-self.y)).subs(self.real, self.v / self.y - 1)
        return sp.simplify(sp.expand(sp.powsimp(sp.expand(slope)) * sp.exp(self.v)))

    def test_derivative_is_the_lambert_equation(self) -> None:
        """dEWIF/dgamma = 0 if and only if e^v - v = 1 + y (1 - c)/c."""
        wanted = 1 + self.y * (1 - c) / c + self.v - sp.exp(self.v)
        ratio = sp.simplify(self.stationary() / wanted)
        # What is left has no root: c, e^v and 1 - e^-y.
        left = sp.simplify(ratio / c)
        assert not left.has(sp.LambertW)
        for values in ((0.1, 0.3, 0.7), (2.0, 1.5, 0.2), (0.01, 4.0, 0.9)):
            numbers = dict(zip((self.y, self.v, c), values, strict=True))
            assert abs(float(left.subs(numbers))) > 1e-12
        assert sp.simplify(sp.diff(left, c)) == 0

    def test_closed_form_root(self) -> None:
        """v = -z - W(-e^-z) solves e^v - v = z; the lower branch is the positive root."""
        z = sp.symbols("z", positive=True)
        (root,) = sp.solve(sp.exp(self.v) - self.v - z, self.v)
        assert root == -z - sp.LambertW(-sp.exp(-z))
        lower = -z - sp.LambertW(-sp.exp(-z), -1)
        for alpha, cost, _ in POINTS:
            log = np.log(alpha)
            level = 1 - (1 - cost) * log / cost
            exact = float(sp.N(lower.subs(z, level))) / -log - 1
            assert float(search.continuous_gamma(alpha, cost)) == pytest.approx(exact, rel=1e-12)

    def test_neighbours(self) -> None:
        """EWIF(g + 1) > EWIF(g) if and only if 1 + g c > E[N] (c + (1 - a)(1 + g c))."""
        gain = EWIF.subs(g, g + 1) - EWIF
        test = (1 + g * c) - MEAN * (c + (1 - a) * (1 + g * c))
        # They differ by a positive factor.
        factor = (1 + g * c) * (1 + (g + 1) * c)
        assert is_zero(sp.together(gain * factor - test))

    def test_effective_cost(self) -> None:
        """1 + o + g (c + b) = (1 + o)(1 + g c')."""
        effective = (c + b) / (1 + o)
        assert is_zero((1 + o) * (1 + g * effective) - (1 + o + g * (c + b)))
        numeric = float(search.effective_cost(0.1, 0.02, 0.3))
        assert numeric == pytest.approx(float(effective.subs({c: 0.1, b: 0.02, o: 0.3})))

    def test_largest_oracle_gain(self) -> None:
        """As alpha -> 1 at y = r c the gain is 1/(1 - v e^-v), at most e/(e - 1), at v = 1."""
        y, v, r = self.y, self.v, sp.symbols("r", positive=True)
        gain = (1 / (1 - a + c * a)) / EWIF.subs(g, v / y - 1)
        limit = sp.limit(gain.subs(c, y / r).subs(a, sp.exp(-y)), y, 0, "+")
        # The best gamma solves e^v - v = 1 + y (1 - c)/c, which tends to 1 + r.
        limit = sp.simplify(limit.subs(r, sp.exp(v) - v - 1))
        assert sp.simplify(limit - 1 / (1 - v * sp.exp(-v))) == 0
        assert sp.solve(sp.diff(limit, v), v) == [1]
        assert sp.simplify(limit.subs(v, 1) - sp.E / (sp.E - 1)) == 0


class TestCascades:
    alphas = sp.symbols("alpha1:5", positive=True)
    costs = sp.symbols("c1:5", positive=True)

    def ewif(self) -> sp.Expr:
        """Chen23 Thm 4.1 for four positions."""
        products = [sp.prod(self.alphas[:m]) for m in range(5)]
        return sum(products) / (1 + sum(self.costs))

    def test_corollary_4_3(self) -> None:
        alphas, costs = [0.9, 0.5, 0.7, 0.2], [0.1, 0.2, 0.05, 0.3]
        values = dict(zip((*self.alphas, *self.costs), (*alphas, *costs), strict=True))
        assert formulas.horizontal_speedup(alphas, costs) == pytest.approx(
            float(self.ewif().subs(values)), rel=1e-14
        )
        numeric = formulas.horizontal_gradient(alphas, costs)
        for position, symbol in enumerate(self.alphas):
            slope = sp.diff(self.ewif(), symbol)
            # The sum of the products that contain it, without it.
            printed = sum(
                sp.prod(s for s in self.alphas[:m] if s != symbol) for m in range(position + 1, 5)
            ) / (1 + sum(self.costs))
            assert sp.simplify(slope - printed) == 0
            assert numeric[position] == pytest.approx(float(slope.subs(values)), rel=1e-14)

    def test_theorem_4_4(self) -> None:
        """EWIF is linear-fractional in the mixing probability of a position: an end is best."""
        t, other_alpha, other_cost = sp.symbols("t alpha_b c_b", positive=True)
        for position in range(4):
            mixed = {
                self.alphas[position]: t * self.alphas[position] + (1 - t) * other_alpha,
                self.costs[position]: t * self.costs[position] + (1 - t) * other_cost,
            }
            ewif = self.ewif().subs(mixed, simultaneous=True)
            top, bottom = sp.fraction(sp.together(ewif))
            assert sp.degree(top, t) == 1
            assert sp.degree(bottom, t) == 1
            # The derivative's sign is a Wronskian that t has left.
            sign = sp.expand(sp.diff(top, t) * bottom - top * sp.diff(bottom, t))
            assert not sign.has(t)
        rng = np.random.default_rng(44)
        for _ in range(100):
            (alpha, beta), (cost, price) = rng.random((2, 2, 4)) * [[[1.0]], [[0.3]]]
            where = np.eye(4)[rng.integers(4)]
            speeds = [
                formulas.horizontal_speedup(
                    alpha + share * where * (beta - alpha), cost + share * where * (price - cost)
                )
                for share in np.linspace(0, 1, 11)
            ]
            assert max(speeds) <= max(speeds[0], speeds[-1]) * (1 + 1e-15)

    def test_vertical_composes_generating_functions(self) -> None:
        """E[(1 - a^(J+1))/(1 - a)] with J the sum of two inner steps is (1 - a phi^2)/(1 - a)."""
        inner, k = sp.symbols("alpha_inner", positive=True), 2
        law = {m: (1 - inner) * inner ** (m - 1) for m in range(1, k + 1)} | {k + 1: inner**k}
        tokens = sum(
            p * q * sum(a**m for m in range(j + h + 1))
            for j, p in law.items()
            for h, q in law.items()
        )
        phi = sum(p * a**j for j, p in law.items())
        assert is_zero(sp.expand(tokens * (1 - a) - (1 - a * phi**2)))
        numeric = formulas.vertical_speedup(0.7, 0.6, 2, k, 0.0, 0.0)
        assert float(numeric) == pytest.approx(float(tokens.subs({a: 0.7, inner: 0.6})), rel=1e-14)

    def test_bild_is_the_capped_geometric_law(self) -> None:
        """(1 - E[s^(J+1)])/r = (1 - (s u)^(W+1))/(1 - s u): Kim23 as Leviathan23's eq. (1)."""
        f, r = sp.symbols("f r", positive=True)
        u, s = 1 - f, 1 - r
        for window in range(1, 5):
            power = sum(f * u**j * s ** (j + 1) for j in range(window)) + u**window * s ** (
                window + 1
            )
            closed = sum((s * u) ** m for m in range(window + 1))
            assert sp.cancel((1 - power) / r - closed) == 0
            numeric = formulas.bild_tokens_per_call(0.3, 0.2, window)
            assert float(numeric) == pytest.approx(float(closed.subs({f: 0.3, r: 0.2})), rel=1e-14)
