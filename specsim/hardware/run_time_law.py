"""The law of run times: a roofline with a soft bend, over new tokens n, batch B and context L,

    t = (m^s + c^s)^(1/s),   m = w + max(d, k B) (L + n) + e X,   c = f B n + a B n (L + n / 2)

m is what does not grow with the tokens but by the caches, and by the experts that they choose:
memory traffic, or the starting of kernels.  X is how many routed experts the B n tokens touch
beyond those of one (``specsim.hardware.routing.Experts``), which ends where all of them are; none
in dense models.  d is the length of one cache, as caches are read beside each other, each from its
first token to its last, until they are so many that k B, the traffic of all, takes longer; the
maximum is a soft one; c the arithmetic, products with weights and attention.

Where few points were timed they do not decide all of k, e, f and a.  What is known of a run without
having timed it (``Growth``) is then nearly the answer, and next to nothing where they do.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import nan

import numpy as np
from scipy.optimize import least_squares
from scipy.special import xlogy

from specsim.checks import Floats

# Powers s of the bend: 1 adds traffic and arithmetic, the largest is nearly their maximum.
_BENDS = (1.0, 8.0)
# Of d and k B: so hard that batches where one decides do not tell of the other.
_BESIDE = 8.0
# Of k, f, a and e among the parameters.
_GROWTH = [1, 4, 5, 3]
_EXPERTS = 3
# Of a run, what a part of the law must be for the fit to know it.
_LEAST_PART = 0.01
# Runs miss the law by 4 %, over log 2: growth is known to a factor of two.
_DOUBT = 0.06
# Of two fits that miss a point by a hundred-thousandth more or less, neither is the better.
_SAME_COST = 1e-10


@dataclass(frozen=True)
class Growth:
    """What a run takes longer: seconds for each token in a cache (k), for each new token (f), for
    each pair of a new token with one in its cache (a), and for each expert that is touched, in all
    layers (e); nan where that is not known.
    """

    cache_s: float
    token_s: float
    attention_s: float
    expert_s: float = nan

    def times(self, share: float) -> Growth:
        """That of a model so many times as large, whose experts are another matter."""
        return Growth(share * self.cache_s, share * self.token_s, share * self.attention_s)


def growth_of(trend: Floats, where: Floats) -> Growth:
    """What was fitted to runs at ``where``, shape (P, 4); nan where it is next to nothing of every
    one of them, which then say little of it.
    """
    memory, arithmetic = _parts(trend, where)
    parts = np.column_stack([memory[:, 1], arithmetic, memory[:, _EXPERTS]])
    parts /= trend_s(trend, where)[:, None]
    found = np.where(parts.max(axis=0) < _LEAST_PART, np.nan, trend[_GROWTH])
    return Growth(*found.tolist())


def fit_trend(where: Floats, seconds: Floats, known: Growth | None) -> Floats:
    """The trend w, k, d, e, f, a, s that fits the logarithms of the run times, and of what is
    known, best (least squares).

    where : new tokens, batch and context of each run, and the experts that it touches beyond those
        of one token, shape (P, 4)

    All parameters but s are searched as logarithms, from shares of the shortest and longest run.
    Of one batch nobody can tell k from d, and all is taken for k, which grows with the batch; of
    one context nobody can tell w from d, and all is taken for w.
    """
    tokens, batch, context, experts = where.T
    has_experts = bool(experts.max() > 0)
    shortest = seconds.min()
    scale = np.log(
        [
            0.8 * shortest,
            0.1 * shortest / (batch * (context + tokens)).max(),
            0.1 * shortest / (context + tokens).max(),
            0.5 * seconds.max() / experts.max() if has_experts else 1.0,
            seconds.max() / (batch * tokens).max() / 2,
            0.1 * seconds.max() / (batch * tokens * (context + tokens)).max(),
        ]
    )
    start, doubt = scale.copy(), np.zeros((0, scale.size + 1))
    if known is not None:
        growth = np.array(astuple(known))
        places = np.array(_GROWTH)
        told = np.flatnonzero((growth > 0) & (has_experts | (places != _EXPERTS)))
        places = places[told]
        start[places] = np.clip(np.log(growth[told]), scale[places] - 29, scale[places] + 14)
        doubt = np.zeros((told.size, scale.size + 1))
        doubt[np.arange(told.size), places] = _DOUBT
    expected = doubt[:, :-1] @ start
    several = np.ptp(batch) > 0 and np.ptp(context) > 0
    searched = np.array([True, True, several, has_experts, True, True, True])
    scale, start, doubt = scale[searched[:-1]], start[searched[:-1]], doubt[:, searched]

    def whole(parameters: Floats) -> Floats:
        """The trend, with nothing for what is not searched."""
        found = np.full(len(searched), -np.inf)
        found[searched] = parameters
        return np.append(np.exp(found[:-1]), found[-1])

    def misses(parameters: Floats) -> Floats:
        off = np.log(trend_s(whole(parameters), where) / seconds)
        return np.concatenate([off, doubt @ parameters - expected])

    def turned(parameters: Floats) -> Floats:
        return np.vstack([slopes(whole(parameters), where)[:, searched], doubt])

    softer, harder = (
        least_squares(
            misses,
            [*start, bend],
            jac=turned,
            bounds=([*(scale - 30), _BENDS[0]], [*(scale + 15), _BENDS[1]]),
        )
        for bend in (1.5, 4.0)
    )
    # Few points are met by both, and which of them by less is rounding.
    better = harder.cost < softer.cost - _SAME_COST * len(seconds)
    return whole((harder if better else softer).x)


def trend_s(trend: Floats, where: Floats) -> Floats:
    """The roofline at points (P, 4); shape (P,)."""
    memory, arithmetic = (parts.sum(axis=1) for parts in _parts(trend, where))
    bend = trend[-1]
    # In terms of the larger, so that no power overflows.
    larger, smaller = np.maximum(memory, arithmetic), np.minimum(memory, arithmetic)
    seconds: Floats = larger * (1 + (smaller / larger) ** bend) ** (1 / bend)
    return seconds


def slopes(trend: Floats, where: Floats) -> Floats:
    """Of the logarithm of the roofline, by those of w, k, d, e, f, a and by s; shape (P, 7)."""
    parts = _parts(trend, where)
    memory, arithmetic = (each.sum(axis=1) for each in parts)
    bend = trend[-1]
    larger, smaller = np.maximum(memory, arithmetic), np.minimum(memory, arithmetic)
    ratio = smaller / larger
    power = ratio**bend
    of_memory = np.where(memory >= arithmetic, 1, power) / (1 + power)
    by_bend = (xlogy(power, ratio) / (1 + power) - np.log1p(power) / bend) / bend
    return np.column_stack(
        [
            parts[0] * (of_memory / memory)[:, None],
            parts[1] * ((1 - of_memory) / arithmetic)[:, None],
            by_bend,
        ]
    )


def _parts(trend: Floats, where: Floats) -> tuple[Floats, Floats]:
    """Seconds of weights, caches and experts (P, 4), and of products and attention (P, 2).

    Those of the caches, k's and d's, are as much of the soft maximum as it grows with each.
    """
    weights, cache, longest, expert, products, attention, _ = trend
    tokens, batch, context, experts = where.T
    over = (longest / (cache * batch)) ** _BESIDE
    caches = cache * batch * (1 + over) ** (1 / _BESIDE) * (context + tokens)
    memory = [
        np.full(len(where), weights),
        caches / (1 + over),
        caches * over / (1 + over),
        expert * experts,
    ]
    attended = batch * tokens * (context + tokens / 2)
    return np.column_stack(memory), np.column_stack(
        [products * batch * tokens, attention * attended]
    )
