"""Speculative decoding, and the rules that loosen its acceptance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from specsim.checks import InvalidArgumentError, number, probability
from specsim.rules.base import Array, Distributions, Rule, at


@dataclass(frozen=True)
class Lossless(Rule):
    """pi = p: the output law is the target's own (Leviathan23 Algorithm 1 and A.1)."""

    bonus_needs_draft: ClassVar[bool] = False

    def pi(self, rows: Distributions) -> Array:
        return rows.p

    def accepted_at(self, rows: Distributions, tokens: Array) -> Array:
        return _capped(at(rows.p, tokens), at(rows.q, tokens), 1.0)


@dataclass(frozen=True)
class _LenientRule(Rule):
    """Accept with min(1, p / (l q)), l in [0, 1] (Leviathan23 A.4).

    At l = 0 every token that the target can emit at all is accepted.
    """

    sums_to_one: ClassVar[bool] = False
    lenience: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lenience", probability("lenience", self.lenience))

    def accepted(self, rows: Distributions) -> Array:
        return _capped(rows.p, rows.q, self.lenience)

    def accepted_at(self, rows: Distributions, tokens: Array) -> Array:
        return _capped(at(rows.p, tokens), at(rows.q, tokens), self.lenience)


@dataclass(frozen=True)
class Lenient(_LenientRule):
    """Lenience with the residual norm(max(0, p - q)): pi = max(min(q, p / l), p).

    m(x) <= p(x) / l for every x (Leviathan23 A.4).
    """

    def pi(self, rows: Distributions) -> Array:
        xp = array_namespace(rows.p)
        return xp.maximum(self.accepted(rows), rows.p)


@dataclass(frozen=True)
class LenientScaledResidual(_LenientRule):
    """Lenience with the residual norm(max(0, p - l q)); m(x) <= p(x) / l holds as well.

    pi = min(q, p / l) + max(0, p - l q), one of the many that give this residual.
    """

    def pi(self, rows: Distributions) -> Array:
        return self.accepted(rows) + self.excess(rows)

    def excess(self, rows: Distributions) -> Array:
        xp = array_namespace(rows.p)
        scaled = self.lenience * rows.q
        return xp.maximum(rows.p, scaled) - scaled


@dataclass(frozen=True)
class LenientRedraw(_LenientRule):
    """A counter-example: lenience that redraws a rejected token from p itself.

    The bound m(x) <= p(x) / l fails (by a factor below two).  Not of Algorithm 4's form: its
    ``pi`` is the accepted part only, and its residual is p.
    """

    def pi(self, rows: Distributions) -> Array:
        return self.accepted(rows)

    def excess(self, rows: Distributions) -> Array:
        return rows.p


@dataclass(frozen=True)
class Lossy(Rule):
    """pi = max(min(q, p / (1 - a)), p / b), 0 <= a < 1, b >= 1 - a (Narasimhan24 Lemma 3).

    looseness : a; the larger, the looser, whatever the word says
    scale : b.  The usual heuristic b = 1 makes sum pi >= 1, so that m is neither pi nor
        norm(pi) (errata Narasimhan24 2).  A large b leaves no residual although tokens are
        rejected: then p.
    """

    sums_to_one: ClassVar[bool] = False
    looseness: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        looseness = _looseness(self.looseness)
        object.__setattr__(self, "looseness", looseness)
        object.__setattr__(self, "scale", number("scale", self.scale, low=1 - looseness))

    def pi(self, rows: Distributions) -> Array:
        xp = array_namespace(rows.p)
        return xp.maximum(_capped(rows.p, rows.q, 1 - self.looseness), rows.p / self.scale)

    def accepted_at(self, rows: Distributions, tokens: Array) -> Array:
        # p / b never decides here, since b >= 1 - a.
        return _capped(at(rows.p, tokens), at(rows.q, tokens), 1 - self.looseness)


@dataclass(frozen=True)
class LossyStar(Rule):
    """``Lossy`` with b solved, row by row, such that pi sums to one (Narasimhan24 E.6).

    b solves R = sum max(0, q - p / (1 - a)) = sum max(0, p / b - q).  It always exists: the
    right side grows with 1 / b from 0 to D_TV(p, q) >= R at b = 1, so b >= 1; where nothing is
    rejected (R = 0) and q misses a token of p, b is infinite and pi = q.
    """

    looseness: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "looseness", _looseness(self.looseness))

    def pi(self, rows: Distributions) -> Array:
        xp = array_namespace(rows.p)
        return xp.maximum(
            _capped(rows.p, rows.q, 1 - self.looseness),
            rows.p * self.inverse_scale(rows)[..., None],
        )

    def accepted_at(self, rows: Distributions, tokens: Array) -> Array:
        return _capped(at(rows.p, tokens), at(rows.q, tokens), 1 - self.looseness)

    def inverse_scale(self, rows: Distributions) -> Array:
        """1 / b in [0, 1], shape (...).

        F(s) = sum max(0, s p - q) is the largest of s p(A) - q(A) over sets A of tokens, so
        F(s) = R at s = min_A (R + q(A)) / p(A), and the minimum is at a set {q / p <= r}:
        sorted by q / p, one of the V first sets.
        """
        xp = array_namespace(rows.p)
        p, q = rows.p, rows.q
        rejected = xp.sum(q - _capped(p, q, 1 - self.looseness), axis=-1, keepdims=True)
        # q / (p + q) sorts as q / p does, and never overflows.
        order = xp.argsort(q / _nonzero(p + q), axis=-1)
        mass_p, mass_q = (
            xp.cumulative_sum(xp.take_along_axis(mass, order, axis=-1), axis=-1) for mass in (p, q)
        )
        upper = rejected + mass_q
        # min(1, upper / mass_p), again without overflow; 0 / 0 says nothing, so 1.
        larger = xp.maximum(mass_p, upper)
        scales = xp.where(larger > 0, upper / _nonzero(larger), xp.ones_like(p))
        return xp.min(scales, axis=-1)


def _looseness(value: float) -> float:
    looseness = number("looseness", value, low=0.0)
    if looseness >= 1:
        raise InvalidArgumentError(f"looseness must be in [0, 1), got {looseness:g}")
    return looseness


def _capped(p: Array, q: Array, factor: float) -> Array:
    """min(q, p / factor), and its limit as the factor falls to zero."""
    xp = array_namespace(p)
    if factor == 0:
        return xp.where(p > 0, q, xp.zeros_like(q))
    return xp.minimum(q, p / factor if factor != 1 else p)


def _nonzero(values: Array) -> Array:
    """The values, one in place of zero: a denominator that never divides by zero."""
    xp = array_namespace(values)
    return xp.where(values > 0, values, xp.ones_like(values))
