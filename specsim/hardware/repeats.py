"""Repeats of a measured ratio: their mean, how sure it is, and draws of what they leave open.

Machines drift over seconds and minutes, so repeats that stand close together are not independent:
repeats are told apart by the pass through all measurements that they belong to, and passes are
what is independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specsim.checks import Floats
from specsim.intervals import DRAWS

# Repeats so many spreads away from the median count as that far away and no farther.
_FARTHEST = 3.0
# The median distance from the median of a normal law, in standard deviations.
_NORMAL = 0.6745


def held(values: Floats) -> Floats:
    """The values, those far away from the median drawn to where it is far; shape (R,).

    An interruption lengthens a single run as it likes.  The mean of what is left is that of all
    runs, which decoding takes, where the median would be that of the undisturbed ones alone.
    """
    middle = np.median(values)
    far = _FARTHEST * np.median(np.abs(values - middle)) / _NORMAL
    found: Floats = np.clip(values, middle - far, middle + far)
    return found


@dataclass(frozen=True, eq=False)
class Repeats:
    """Repeats of one figure.

    values : shape (R,), outliers held
    passes : which pass each belongs to, shape (R,)
    """

    values: Floats
    passes: np.ndarray

    @staticmethod
    def of(values: Sequence[float], passes: Sequence[int] = ()) -> Repeats:
        """Without ``passes`` all are of one pass."""
        known = np.array(passes or [0] * len(values))
        return Repeats(held(np.array(values, dtype=float)), known)

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def over_mean(self) -> Repeats:
        """The same in units of their mean, which must be > 0."""
        return Repeats(self.values / self.mean, self.passes)

    @cached_property
    def by_pass(self) -> tuple[np.ndarray, Floats, Floats]:
        """Passes, how many repeats each has, and the sum of them; each of shape (P,)."""
        passes, where = np.unique(self.passes, return_inverse=True)
        total = np.asarray(np.bincount(where, weights=self.values), dtype=float)
        return np.asarray(passes), np.bincount(where).astype(float), total

    def drawn(self, draws: PassDraws) -> Floats:
        """Deviations of the mean over passes drawn with replacement, shape (D,)."""
        passes, count, total = self.by_pass
        chosen = draws.times[:, np.searchsorted(draws.passes, passes)]
        found = chosen @ count
        mean = np.divide(
            chosen @ total, found, out=np.full(found.shape, self.mean), where=found > 0
        )
        deviation: Floats = draws.scale * (mean - self.mean)
        return deviation


def spread_of_means(repeats: Sequence[Repeats]) -> Floats:
    """The standard error of the mean of each, pooled over all of them; shape (N,).

    Variances within a pass and between passes are the same for all: of a single mean a few repeats
    say little.  0 where nothing is repeated.
    """
    within = freedom = 0.0
    for each in repeats:
        _, count, total = each.by_pass
        _, where = np.unique(each.passes, return_inverse=True)
        within += float(((each.values - (total / count)[where]) ** 2).sum())
        freedom += each.values.size - count.size
    within = within / freedom if freedom else 0.0
    between, passes = 0.0, 0
    for each in repeats:
        _, count, total = each.by_pass
        if count.size > 1:
            # What passes differ by beyond what their repeats do.
            between += float(((total / count - each.mean) ** 2).sum()) - within * float(
                (1 / count).sum()
            ) * (1 - 1 / count.size)
            passes += count.size - 1
    between = max(between / passes, 0.0) if passes else 0.0
    return np.array(
        [np.sqrt(within / each.values.size + between / each.by_pass[0].size) for each in repeats]
    )


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

    @cached_property
    def scale(self) -> Floats:
        """What deviations are multiplied by, shape (D,): so few passes drawn again differ too
        little, and how much they differ is known from themselves alone (Student's t).
        """
        freedom = len(self.passes) - 1
        if not freedom:
            return np.zeros(self.draws)
        random = np.random.default_rng([self.seed, len(self.passes), 1])
        chi = np.maximum(random.chisquare(freedom, self.draws), 1e-3)
        found: Floats = np.sqrt((freedom + 1) / freedom * freedom / chi)
        return found
