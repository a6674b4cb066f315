"""The closed-form best gamma against exhaustive search in exact arithmetic, and its parts."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.checks import Ints
from specsim.formulas import speedup
from specsim.optimizers.search import _stationary, blockwise, closed_form, effective_cost, search

# Uniform, and log-uniform towards 0 and 1.
rates = st.one_of(
    st.floats(0.0, 1.0),
    st.floats(-15, 0).map(lambda x: 10.0**x),
    st.floats(-15, 0).map(lambda x: 1.0 - 10.0**x),
)
costs = st.one_of(rates, st.floats(0.0, 10.0))
# Exact fractions are slow on a busy machine.
unhurried = settings(deadline=None)

# Values of EWIF that differ by less are one float64.
ROUNDING = Fraction(1, 2**52)


def best_gamma(alpha: npt.ArrayLike, c: npt.ArrayLike, gamma_max: int = 64) -> Ints:
    return closed_form(np.asarray(alpha, float), np.asarray(c, float), gamma_max)


def real_gamma(alpha: float, c: float) -> float:
    """The root of the derivative, or zero where EWIF only falls."""
    return max(float(_stationary(np.log(alpha), np.float64(c), steps=2)) - 1, 0.0)


def exact_ewif(alpha: float, c: float, gamma_max: int) -> list[Fraction]:
    """EWIF at 0..gamma_max, v = 1, o = 0."""
    values, tokens, power = [], Fraction(0), Fraction(1)
    for gamma in range(gamma_max + 1):
        tokens += power
        power *= Fraction(alpha)
        values.append(tokens / (1 + gamma * Fraction(c)))
    return values


def check_best(alpha: float, c: float, gamma_max: int) -> None:
    """As good as the best to within a rounding; where two tie exactly, the smaller."""
    found = int(best_gamma(alpha, c, gamma_max))
    values = exact_ewif(alpha, c, gamma_max)
    best = max(values)
    assert values[found] >= best * (1 - ROUNDING), (alpha, c, found, values.index(best))
    if values[found] == best:
        assert found == values.index(best)


class TestBestGamma:
    @unhurried
    @given(rates, costs, st.sampled_from([1, 2, 8, 40]))
    def test_exhaustive_in_fractions(self, alpha: float, c: float, gamma_max: int) -> None:
        check_best(alpha, c, gamma_max)

    @unhurried
    @given(st.floats(0.01, 0.99), st.integers(-3, 3))
    def test_near_alpha_equals_c(self, alpha: float, ulps: int) -> None:
        c = alpha
        for _ in range(abs(ulps)):
            c = math.nextafter(c, math.copysign(math.inf, ulps))
        check_best(alpha, c, 8)
        # Leviathan23 Cor 3.9, to the last bit.
        assert (best_gamma(alpha, c) > 0) == (alpha > c)

    @pytest.mark.parametrize("miss", [2.0**-53, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3])
    @pytest.mark.parametrize("c", [0.0, 5e-324, 1e-300, 1e-15, 1e-6, 0.5, 1 - 1e-15, 1.0])
    def test_corners(self, miss: float, c: float) -> None:
        check_best(1.0 - miss, c, 24)
        check_best(miss, c, 24)

    def test_against_argmax(self) -> None:
        """A sweep away from near ties: the same gamma as numpy's argmax, everywhere."""
        rng = np.random.default_rng(64)
        alpha, c = rng.random((2, 50_000))
        gamma = np.arange(65)[:, None]
        values = speedup(alpha, c, gamma)
        np.testing.assert_array_equal(best_gamma(alpha, c), values.argmax(axis=0))

    def test_long_drafts(self) -> None:
        """Beyond the coarse start: gamma* in the thousands, against an argmax."""
        rng = np.random.default_rng(65)
        alpha = 1 - 10.0 ** rng.uniform(-6, -2, 200)
        c = 10.0 ** rng.uniform(-7, -1, 200)
        values = speedup(alpha, c, np.arange(5001)[:, None])
        found = best_gamma(alpha, c, 5000)
        np.testing.assert_allclose(values[found, np.arange(200)], values.max(axis=0), rtol=1e-15)
        assert (np.abs(found - values.argmax(axis=0)) <= 1).all()

    def test_both_branches_agree(self) -> None:
        """Single precision start up to 128, double precision root beyond."""
        rng = np.random.default_rng(66)
        alpha, c = rng.random((2, 20_000))
        alpha[::2] = 1 - 10.0 ** rng.uniform(-15, 0, 10_000)
        short, long = best_gamma(alpha, c, 128), best_gamma(alpha, c, 10**6)
        np.testing.assert_array_equal(short, np.minimum(long, 128))

    def test_ends(self) -> None:
        # c = 0 < alpha and alpha = 1 > c: for ever.  alpha <= c: never.
        assert [int(best_gamma(a, 0.0)) for a in (1e-300, 1e-9, 0.5, 1.0)] == [64] * 4
        assert [int(best_gamma(1.0, c)) for c in (0.5, 1 - 2.0**-53, 1.0, 2.0)] == [64, 64, 0, 0]
        assert [int(best_gamma(a, a)) for a in (0.0, 0.1, 0.3, 0.7, 1.0)] == [0] * 5
        assert int(best_gamma(0.0, 0.0)) == 0
        assert int(best_gamma(0.9, 0.0, 10**7)) == 10**7
        assert int(best_gamma(0.9, 0.1, 0)) == 0
        assert int(best_gamma(0.9, 0.1, 1)) == 1
        # (1 + a)/(1 + c) at 1 and (1 + a + a^2)/(1 + 2 c) at 2 are both 1.25 (c = 1/5 is rounded
        # up, so gamma = 1 wins by a hair).
        assert int(best_gamma(0.5, 0.2)) == 1

    @unhurried
    @given(rates, costs, rates, costs)
    def test_rises_with_alpha_falls_with_c(self, a: float, x: float, b: float, y: float) -> None:
        gamma = best_gamma([[min(a, b)], [max(a, b)]], [min(x, y), max(x, y)], 1000)
        flat = 1e-9  # nearly equal settings may fall either way within a rounding
        if abs(a - b) > flat and abs(x - y) > flat:
            assert (np.diff(gamma, axis=0) >= 0).all()
            assert (np.diff(gamma, axis=1) <= 0).all()

    def test_broadcasts_over_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(67)
        alpha, c = rng.random((7, 1)), rng.random(11)
        wanted = [[int(best_gamma(a, x)) for x in c] for a in alpha[:, 0]]
        monkeypatch.setattr("specsim.optimizers.search.BLOCK", 16)
        np.testing.assert_array_equal(best_gamma(alpha, c), wanted)
        np.testing.assert_array_equal(
            best_gamma(np.asfortranarray(alpha), c[::-1])[:, ::-1], wanted
        )
        assert best_gamma(alpha, c).dtype == np.int64
        assert best_gamma(0.8, 0.05).shape == ()

    def test_inputs_stay_as_they_were(self) -> None:
        alpha, c = np.full(5, 0.8), np.full(5, 0.05)
        best_gamma(alpha, c)
        assert (alpha == 0.8).all()
        assert (c == 0.05).all()


class TestRealOptimum:
    @unhurried
    @given(
        st.one_of(st.floats(1e-6, 0.999), st.floats(-12, -1).map(lambda x: 1 - 10.0**x)),
        st.floats(-9, -0.01).map(lambda x: 10.0**x),
    )
    def test_lambert(self, alpha: float, c: float) -> None:
        """gamma* = (z - w)/ln(alpha) - 1, w = -W_{-1}(-e^(-z)), z = 1 - (1 - c) ln(alpha)/c."""
        with mpmath.workdps(60):
            log = mpmath.log(mpmath.mpf(alpha))
            z = 1 - (1 - mpmath.mpf(c)) * log / mpmath.mpf(c)
            w = -mpmath.lambertw(-mpmath.exp(-z), -1).real
            wanted = max(float((z - w) / log - 1), 0.0)
        # gamma + 1 is what is solved for.
        assert real_gamma(alpha, c) == pytest.approx(wanted, rel=1e-11, abs=1e-11)

    def test_start_is_close(self) -> None:
        """Within 0.15 % everywhere, which the coarse branch relies on."""
        s = 10.0 ** np.linspace(-12, 12, 4001)
        # c = 1/2 makes s the same as -ln(alpha); the routine does not mind a huge one.
        start, root = (_stationary(-s, np.array(0.5), steps=n) for n in (0, 3))
        assert np.abs(start / root - 1).max() < 0.0015

    @unhurried
    @given(st.floats(0.01, 0.99), st.floats(0.001, 0.99))
    def test_neighbours(self, alpha: float, c: float) -> None:
        root = real_gamma(alpha, c)
        assert int(best_gamma(alpha, c, 10**6)) in (math.floor(root), math.ceil(root))


@given(st.floats(0.1, 0.98), st.floats(0, 0.5), st.floats(0, 0.2), st.floats(0, 1))
def test_effective_cost(alpha: float, c: float, slope: float, overhead: float) -> None:
    """Among gamma >= 1 the best is that of c' = (c + b)/(1 + o)."""
    gamma = np.arange(1, 400)
    values = speedup(alpha, c, gamma, verify_slope=slope, overhead=overhead)
    found = max(int(best_gamma(alpha, effective_cost(c, slope, overhead), 399)), 1)
    assert values[found - 1] >= values.max() * (1 - 1e-14)


class TestSearch:
    @given(
        st.lists(st.floats(0, 1), min_size=0, max_size=12),
        st.lists(st.floats(0.5, 4), min_size=12, max_size=12),
        st.floats(0, 1),
        st.floats(0, 1),
        st.sampled_from([1, 3, 64]),
    )
    def test_is_a_loop(self, rates, verify, c, overhead, block) -> None:
        """Any survival curve, any verify curve; the first of equals."""
        tokens = 1 + np.concatenate([[0.0], np.cumsum(np.cumprod(rates))])
        read = np.array([1.0, *verify])[: tokens.size]
        best, wanted = 1.0, 0
        for gamma in range(1, tokens.size):
            value = tokens[gamma] / (gamma * c + (read[gamma] + overhead))
            if value > best:
                best, wanted = value, gamma
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("specsim.optimizers.search.BLOCK", block)
            found = search(lambda g: tokens[g][:, None], np.array([c, c]), read + overhead)
        np.testing.assert_array_equal(found, [wanted, wanted])


def test_blockwise_is_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(69)
    x, y = rng.random((5, 1, 4)), rng.random((3, 1))
    monkeypatch.setattr("specsim.optimizers.search.BLOCK", 7)
    np.testing.assert_array_equal(blockwise(np.hypot, x, y), np.hypot(x, y))
    np.testing.assert_array_equal(blockwise(np.hypot, x.T, y), np.hypot(x.T, y))
    assert blockwise(np.hypot, 3.0, 4.0).item() == 5.0
