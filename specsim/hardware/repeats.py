"""Repeats of a measured ratio: their mean, how sure it is, and draws of what they leave open.

Machines drift over seconds and minutes, so repeats that stand close together are not independent:
repeats are told apart by the pass through all measurements that they belong to, and passes are
what is independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from specsim.checks import Floats
from specsim.intervals import DRAWS

# Repeats so many spreads away from the median count as that far away and no farther.
_FARTHEST = 3.0
# The median distance from the median of a normal law, in standard deviations.
_NORMAL = 0.6745


def held(values: Floats, weights: Floats | None = None) -> Floats:
    """The values, those far away from the median drawn to where it is far; shape (R,).

    An interruption lengthens a single run as it likes.  The mean of what is left is that of all
    runs, which decoding takes, where the median would be that of the undisturbed ones alone.

    weights : of each value, shape (R,); None is the same of all
    """
    known = np.ones(values.size) if weights is None else weights
    middle = _median(values, known)
    away = np.abs(values - middle)
    # A value with half of the weight is its own median, and does not tell how far others may be.
    spread = _median(away, known) or _median(away, np.ones(values.size))
    far = _FARTHEST * spread / _NORMAL
    found: Floats = np.clip(values, middle - far, middle + far)
    return found


def _median(values: Floats, weights: Floats) -> float:
    """Half of the weight lies on either side."""
    order = np.argsort(values, kind="stable")
    share = 2 * np.cumsum(weights[order]) / weights.sum()
    low, high = np.searchsorted(share, 1), np.searchsorted(share, 1, side="right")
    return float(values[order[low]] + values[order[high]]) / 2


@dataclass(frozen=True, eq=False)
class Repeats:
    """Repeats of one figure.

    values : shape (R,), outliers held
    passes : which pass each belongs to, shape (R,)
    weights : how much each counts, shape (R,)
    """

    values: Floats
    passes: np.ndarray
    weights: Floats

    @staticmethod
    def of(
        values: Sequence[float], passes: Sequence[int] = (), weights: Sequence[int] = ()
    ) -> Repeats:
        """Without ``passes`` all are of one pass, without ``weights`` all count alike."""
        found = np.array(values, dtype=float)
        counted = np.array(weights or [1] * len(values), dtype=float)
        return Repeats(held(found, counted), np.array(passes or [0] * len(values)), counted)

    @property
    def mean(self) -> float:
        return float(np.average(self.values, weights=self.weights))

    @property
    def over_mean(self) -> Repeats:
        """The same in units of their mean, which must be > 0."""
        return Repeats(self.values / self.mean, self.passes, self.weights)

    @cached_property
    def by_pass(self) -> tuple[np.ndarray, Floats, Floats]:
        """Passes, what the repeats of each weigh, and their weighted sum; each of shape (P,)."""
        passes, where = np.unique(self.passes, return_inverse=True)
        total = np.bincount(where, weights=self.weights * self.values)
        weight = np.bincount(where, weights=self.weights)
        return np.asarray(passes), np.asarray(weight, float), np.asarray(total, float)

    @cached_property
    def shares(self) -> tuple[Floats, Floats]:
        """How far one repeat decides the mean of its pass, and of all: the sum of the squares of
        their shares, which is one over their number if they weigh alike; shapes (P,) and ().
        """
        _, where = np.unique(self.passes, return_inverse=True)
        squares = np.bincount(where, weights=self.weights**2)
        weight = self.by_pass[1]
        return squares / weight**2, np.asarray(squares.sum() / weight.sum() ** 2)

    def drawn(self, draws: PassDraws) -> Floats:
        """Deviations of the mean over passes drawn with replacement, shape (D,)."""
        passes, weight, total = self.by_pass
        chosen = draws.times[:, np.searchsorted(draws.passes, passes)]
        found = chosen @ weight
        mean = np.divide(
            chosen @ total, found, out=np.full(found.shape, self.mean), where=found > 0
        )
        deviation: Floats = _scale(passes.size, draws.seed, draws.draws) * (mean - self.mean)
        return deviation


def spread_of_means(repeats: Sequence[Repeats]) -> Floats:
    """The standard error of the mean of each, pooled over all of them; shape (N,).

    Variances within a pass and between passes are the same for all: of a single mean a few repeats
    say little.  0 where nothing is repeated.
    """
    within = freedom = 0.0
    for each in repeats:
        _, weight, total = each.by_pass
        _, where = np.unique(each.passes, return_inverse=True)
        within += float((each.weights * (each.values - (total / weight)[where]) ** 2).sum())
        freedom += float((weight * (1 - each.shares[0])).sum())
    within = within / freedom if freedom else 0.0
    between, passes = 0.0, 0
    for each in repeats:
        _, weight, total = each.by_pass
        if weight.size > 1:
            means = total / weight
            # What passes differ by beyond what their repeats do, every pass counted alike.
            between += float(((means - means.mean()) ** 2).sum()) - within * float(
                each.shares[0].sum()
            ) * (1 - 1 / weight.size)
            passes += weight.size - 1
    between = max(between / passes, 0.0) if passes else 0.0
    return np.array(
        [np.sqrt(within * each.shares[1] + between * _share_of_passes(each)) for each in repeats]
    )


def _share_of_passes(repeats: Repeats) -> float:
    """How far one pass decides the mean, as ``shares`` says it of repeats."""
    weight = repeats.by_pass[1]
    return float((weight**2).sum() / weight.sum() ** 2)


@dataclass(frozen=True)
class PassDraws:
    """Passes drawn with replacement, the same ones for everything that was measured in them.

    passes : the passes there are, rising
    """

    passes: tuple[int, ...]
    seed: int = 0
    draws: int = DRAWS

    @cached_property
    def times(self) -> Floats:
        """How often each draw has each pass, shape (D, P)."""
        random = np.random.default_rng([self.seed, len(self.passes)])
        size = len(self.passes)
        return random.multinomial(size, np.full(size, 1 / size), size=self.draws).astype(float)

    def alone(self, number: int) -> Floats:
        """How many standard errors a pass is off by itself, whose cells no other one repeats, shape
        (D,).
        """
        return np.random.default_rng([self.seed, number, 2]).standard_normal(self.draws)


@cache
def _scale(passes: int, seed: int, draws: int) -> Floats:
    """What deviations of a mean over so many passes are multiplied by, shape (D,): so few drawn
    again differ too little, and how much they differ is known from themselves alone (Student's t).

    passes : that the mean has, which may be fewer than are drawn: host times are of one temperature
    """
    freedom = passes - 1
    if not freedom:
        return np.zeros(draws)
    random = np.random.default_rng([seed, passes, 1])
    chi = np.maximum(random.chisquare(freedom, draws), 1e-3)
    found: Floats = np.sqrt((freedom + 1) / freedom * freedom / chi)
    return found
