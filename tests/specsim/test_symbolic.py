"""What the optimisers rest on, derived with sympy."""

from __future__ import annotations

import sympy as sp

a, c, b, o = sp.symbols("alpha c b o", positive=True)
g = sp.symbols("gamma", integer=True, positive=True)


def is_zero(expression: sp.Expr) -> bool:
    return sp.simplify(sp.expand(sp.powsimp(sp.expand(expression)))) == 0


# Leviathan23 eq. (1) and Thm 3.8.
MEAN = (1 - a ** (g + 1)) / (1 - a)
EWIF = MEAN / (1 + g * c)


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
