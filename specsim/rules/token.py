"""Token-specific deferral: keep the draft's probability of good tokens, spread the rest as p.

With r(v) = 1 for a token v that is deferred and eta = sum_v r(v) q(v),

    pi(v) = (1 - r(v)) q(v) + eta p(v)

(Narasimhan24 eq. 11), which sums to one, so m = pi.  Ties keep the draft.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from specsim.rules.base import Array, Distributions, ThresholdRule, at


@dataclass(frozen=True)
class _TokenRule(ThresholdRule):
    """r(v) = 1[score(v) < bound]; deciding rows give both, q and p as sampled give pi."""

    allowed: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    @abstractmethod
    def score(self, rows: Distributions) -> Array:
        """What stands for the quality of each token, shape (..., V)."""

    def bound(self, rows: Distributions) -> Array:
        """What a token must reach, shape (...)."""
        p = self.decision_p(rows)
        return array_namespace(p).max(p, axis=-1) - self.threshold

    def deferred(self, rows: Distributions) -> Array:
        """r, shape (..., V), bool."""
        return self.score(rows) < self.bound(rows)[..., None]

    def _signed(self, rows: Distributions) -> Array:
        """q with a minus where it is deferred, (..., V).

        Signs and sums run several times as fast over a row as a comparison and a choice by its
        outcome.  At a tie the difference is +0, which keeps the draft.
        """
        xp = array_namespace(rows.q)
        return xp.copysign(rows.q, self.score(rows) - self.bound(rows)[..., None])

    def pi(self, rows: Distributions) -> Array:
        xp = array_namespace(rows.p)
        deferred = (rows.q - self._signed(rows)) / 2
        return rows.q - deferred + xp.sum(deferred, axis=-1, keepdims=True) * rows.p

    def accepted_at(self, rows: Distributions, tokens: Array) -> Array:
        xp = array_namespace(rows.p)
        p, signed = at(rows.p, tokens), self._signed(rows)
        spread = xp.sum(rows.q - signed, axis=-1) / 2
        kept = at(signed, tokens)
        return xp.minimum(at(rows.q, tokens), xp.where(kept > 0, kept, 0.0) + spread * p)


@dataclass(frozen=True)
class TokenV1(_TokenRule):
    """r(v) = 1[q(v) < max p - t], t in [-1, 1] (Narasimhan24 eq. 13)."""

    def score(self, rows: Distributions) -> Array:
        return self.decision_q(rows)


@dataclass(frozen=True)
class TokenV2(_TokenRule):
    """r(v) = 1[p(v) < max p - t], t in [-1, 1]; pi = p below 0, q at 1 (Narasimhan24 eq. 14)."""

    def score(self, rows: Distributions) -> Array:
        return self.decision_p(rows)


@dataclass(frozen=True)
class TokenV3(_TokenRule):
    """r(v) = 1[p(v) < (1 - t) max p], t in [0, 1] (Narasimhan24 eq. 15).

    pi = q at t = 1.  Not lossless at t = 0, where pi of the target's top token exceeds p
    (errata Narasimhan24 3).
    """

    allowed: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def score(self, rows: Distributions) -> Array:
        return self.decision_p(rows)

    def bound(self, rows: Distributions) -> Array:
        p = self.decision_p(rows)
        return array_namespace(p).max(p, axis=-1) * (1 - self.threshold)
