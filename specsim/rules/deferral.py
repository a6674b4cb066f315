"""Deferral rules: keep the draft's distribution or take the target's, whole rows at a time.

pi = (1 - delta) q + delta p with a decision delta(q, p) of 0 or 1 (Narasimhan24 eq. 6).  It sums
to one, so m = pi; a draft token is rejected with probability delta D_TV(p, q) (Lemma 5).  Ties
keep the draft.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from array_api_compat import array_namespace

from specsim.checks import check_choice
from specsim.rules.base import (
    Array,
    Distributions,
    ThresholdRule,
    at,
    cross_entropy,
    distance,
    entropy,
)


@dataclass(frozen=True)
class DeferralRule(ThresholdRule):
    """Base; ``threshold`` is the cost of a deferral, so a larger one defers less."""

    @abstractmethod
    def defer(self, rows: Distributions) -> Array:
        """delta, shape (...), bool: take the target's row?"""

    def pi(self, rows: Distributions) -> Array:
        # As eq. 6 stands: exact for a delta of 0 or 1, and twice as fast as a choice by it.
        delta = array_namespace(rows.p).astype(self.defer(rows), rows.p.dtype)[..., None]
        return (1 - delta) * rows.q + delta * rows.p

    def accepted_at(self, rows: Distributions, tokens: Array) -> Array:
        xp = array_namespace(rows.p)
        p, q = at(rows.p, tokens), at(rows.q, tokens)
        return xp.where(self.defer(rows), xp.minimum(p, q), q)


@dataclass(frozen=True)
class DraftDeferralRule(DeferralRule):
    """Decides on the draft's row alone, so it can run as a sequential cascade (Algorithm 2)."""

    def defer(self, rows: Distributions) -> Array:
        return self.unsure(self.decision_q(rows))

    @abstractmethod
    def unsure(self, q: Array) -> Array:
        """delta from the draft's row (..., V), shape (...), bool."""


@dataclass(frozen=True)
class Chow(DraftDeferralRule):
    """delta = 1[max q < 1 - t], t in [0, 1] (Narasimhan24 eq. 2)."""

    allowed: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def unsure(self, q: Array) -> Array:
        return array_namespace(q).max(q, axis=-1) < 1 - self.threshold


@dataclass(frozen=True)
class ChowLog(DraftDeferralRule):
    """delta = 1[H(q) > t], t >= 0 in nats (Narasimhan24 eq. 24)."""

    allowed: ClassVar[tuple[float, float]] = (0.0, np.inf)

    def unsure(self, q: Array) -> Array:
        return entropy(q) > self.threshold


@dataclass(frozen=True)
class Diff(DeferralRule):
    """delta = 1[max q < max p - t], t in [-1, 1]; below 0 it prefers p (Narasimhan24 eq. 5)."""

    allowed: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def defer(self, rows: Distributions) -> Array:
        return _top(self.decision_q(rows)) < _top(self.decision_p(rows)) - self.threshold


@dataclass(frozen=True)
class DiffLog(DeferralRule):
    """delta = 1[H(q) > H(p) + t], t in nats; below 0 it prefers p (Narasimhan24 eq. 25)."""

    allowed: ClassVar[tuple[float, float]] = (-np.inf, np.inf)

    def defer(self, rows: Distributions) -> Array:
        return entropy(self.decision_q(rows)) > entropy(self.decision_p(rows)) + self.threshold


@dataclass(frozen=True)
class Opt(DeferralRule):
    """delta = 1[max q < max p - t D_TV(p, q)] (Narasimhan24 eq. 10).

    D_TV is that of p and q as they are sampled from, whatever the decision is made on: it stands
    for the cost of rejections.  A threshold below 0 pays for them.
    """

    allowed: ClassVar[tuple[float, float]] = (-np.inf, np.inf)

    def defer(self, rows: Distributions) -> Array:
        cost = self.threshold * distance(rows.p, rows.q)
        return _top(self.decision_q(rows)) < _top(self.decision_p(rows)) - cost


@dataclass(frozen=True)
class OptLog(DeferralRule):
    """delta = 1[H(q) > H(p) + t D_TV(p, q)]; D_TV as in ``Opt`` (Narasimhan24 eq. 26)."""

    allowed: ClassVar[tuple[float, float]] = (-np.inf, np.inf)

    def defer(self, rows: Distributions) -> Array:
        cost = self.threshold * distance(rows.p, rows.q)
        return entropy(self.decision_q(rows)) > entropy(self.decision_p(rows)) + cost


BildDistance = Literal["greedy", "expectation"]


@dataclass(frozen=True)
class BildStar(DeferralRule):
    """delta = 1[D(q, p) > t], t >= 0 in nats (Narasimhan24 Table 1 and E.1, after Kim23).

    distance : "greedy", D = -log p(argmax q); "expectation", D = -sum_x q log p
    """

    distance: BildDistance = "greedy"
    allowed: ClassVar[tuple[float, float]] = (0.0, np.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("distance", self.distance, get_args(BildDistance))

    def defer(self, rows: Distributions) -> Array:
        p, q = self.decision_p(rows), self.decision_q(rows)
        xp = array_namespace(p)
        if self.distance == "expectation":
            return cross_entropy(q, p) > self.threshold
        likeliest = at(p, xp.argmax(q, axis=-1))
        # An infinite distance is beyond thresholds whose exponential underflows, too.
        return (likeliest < math.exp(-self.threshold)) | (likeliest == 0)


def _top(rows: Array) -> Array:
    return array_namespace(rows).max(rows, axis=-1)
