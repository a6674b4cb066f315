"""Rules that accept a set of tokens and replace every other by the target's most probable one.

pi = q on the accepted set A, which holds the target's top token v*, plus 1 - q(A) on v*.  It sums
to one, so m = pi.  Of equally probable tokens the first is the top.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from specsim.checks import integer, number, probability
from specsim.rules.base import (
    Array,
    DecidingRule,
    Distributions,
    Rule,
    at,
    kth_largest,
    one_hot_top,
)


@dataclass(frozen=True)
class GreedyMatch(Rule):
    """A = {v*}: accept the target's top token only, and emit it anyway (Leviathan23 at T = 0).

    The text is that of greedy decoding, however the draft draws its tokens.
    """

    bonus_needs_draft: ClassVar[bool] = False

    def pi(self, rows: Distributions) -> Array:
        return one_hot_top(rows.p)

    def accepted_at(self, rows: Distributions, tokens: Array) -> Array:
        xp = array_namespace(rows.p)
        q = at(rows.q, tokens)
        return xp.where(tokens == xp.argmax(rows.p, axis=-1), q, 0.0)


@dataclass(frozen=True)
class _AcceptSetRule(DecidingRule):
    """Membership in A is decided on the target's rows; at temperature 0 take the unscaled ones."""

    @abstractmethod
    def acceptable(self, p: Array) -> Array:
        """A as a mask of shape (..., V), from rows of the target."""

    @abstractmethod
    def acceptable_at(self, p: Array, tokens: Array) -> Array:
        """Are these tokens in A?  Shape (...), bool."""

    def pi(self, rows: Distributions) -> Array:
        xp = array_namespace(rows.p)
        p = self.decision_p(rows)
        kept = xp.where(self.acceptable(p), rows.q, 0.0)
        rest = xp.sum(rows.q - kept, axis=-1, keepdims=True)
        return kept + rest * xp.astype(one_hot_top(p), rows.q.dtype)

    def accepted_at(self, rows: Distributions, tokens: Array) -> Array:
        xp = array_namespace(rows.p)
        q = at(rows.q, tokens)
        return xp.where(self.acceptable_at(self.decision_p(rows), tokens), q, 0.0)


@dataclass(frozen=True)
class GreedyLenient(_AcceptSetRule):
    """A = {v: p(v) >= l max p}, l in [0, 1]: lenience at temperature 0 (Leviathan23 A.4).

    The paper prints <= (errata Leviathan23 1).  Everything is accepted at l = 0.
    """

    lenience: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lenience", probability("lenience", self.lenience))

    def acceptable(self, p: Array) -> Array:
        return p >= self._least(p)[..., None]

    def acceptable_at(self, p: Array, tokens: Array) -> Array:
        return at(p, tokens) >= self._least(p)

    def _least(self, p: Array) -> Array:
        return self.lenience * array_namespace(p).max(p, axis=-1)


@dataclass(frozen=True)
class TopBeta(_AcceptSetRule):
    """SpecDec++ (Xia22 eq. 6 and 7), read with the target's probabilities (errata Xia22 1).

    A = {v: p(v) >= the beta-th largest of p, and log max p - log p(v) <= tau}.

    beta : >= 1; all that tie with the beta-th token are in
    tau : >= 0, in nats.  The paper's settings are (3, 1) for quality and (5, 3) for speed.
    """

    beta: int
    tau: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "beta", integer("beta", self.beta, low=1))
        object.__setattr__(self, "tau", number("tau", self.tau, low=0.0))

    def acceptable(self, p: Array) -> Array:
        xp = array_namespace(p)
        least = kth_largest(p, min(self.beta, p.shape[-1]))
        return (p >= least[..., None]) & self._near(p, xp.max(p, axis=-1, keepdims=True))

    def acceptable_at(self, p: Array, tokens: Array) -> Array:
        xp = array_namespace(p)
        found = at(p, tokens)
        # Counting those ahead of one token spares the sort.
        ahead = xp.count_nonzero(p > found[..., None], axis=-1)
        return (ahead < self.beta) & self._near(found, xp.max(p, axis=-1))

    def _near(self, p: Array, top: Array) -> Array:
        # Past tau = 745 the bound is zero, which a token of probability zero would reach.
        return (p >= math.exp(-self.tau) * top) & (p > 0)
