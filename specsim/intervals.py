"""One interval for everything that was measured, and the two ways in which intervals are made here.

* A rate over independent trials has Wilson's interval (Wilson 1927, score test inverted): close
  to its level on average, inside [0, 1], and exact at 0 and at 1.
* What is summed over requests has a bootstrap over requests (Efron 1979, percentiles): positions
  of one request are not independent, requests are.  A few of them drawn again differ too little,
  and how much they differ is known from themselves alone, so that its ends are further away, as
  Student's t has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot, inf, log, sqrt
from statistics import NormalDist
from typing import Generic, TypeVar

import numpy as np

from specsim.checks import Floats, Ints, InvalidArgumentError, number

Figure = TypeVar("Figure", float, Floats)

# Draws of a bootstrap: the ends of a 95 % interval then move by a twentieth of its width or so.
DRAWS = 1000
# Chance that a table of a check fails where all that it says is right.
FALSE_ALARM = 1e-4


@dataclass(frozen=True)
class Interval(Generic[Figure]):
    """A figure and its interval: numbers, or curves of one shape with pointwise intervals."""

    low: Figure
    best: Figure
    high: Figure

    def columns(self, name: str) -> dict[str, Figure]:
        """As three columns of a row: name, name_low, name_high."""
        return {name: self.best, f"{name}_low": self.low, f"{name}_high": self.high}


def around(best: float | Floats, drawn: Floats) -> Interval[float]:
    """95 % of the draws of a bootstrap, shape (D,); draws that have no value (nan) are left out."""
    low, high = np.nanquantile(drawn, [0.025, 0.975]).tolist()
    return Interval(low, float(best), high)


def over(above: Floats, below: Floats) -> Floats:
    """above / below, nan where ``below`` is nothing; the two of one shape."""
    found: Floats = np.divide(above, below, out=np.full(np.shape(below), np.nan), where=below > 0)
    return found


@dataclass(frozen=True)
class Bootstrap:
    """Requests (or other independent units) drawn with replacement, as many as there are.

    All figures of one bootstrap, and of others of as many units and the same seed, see the same
    draws, so that they compare.
    """

    units: int
    seed: int = 0
    draws: int = DRAWS

    @cached_property
    def drawn(self) -> Ints:
        """Numbers of the units in each draw, shape (D, U)."""
        return np.random.default_rng(self.seed).integers(self.units, size=(self.draws, self.units))

    def sums(self, values: Floats | Ints) -> Floats:
        """Sums over the units of each draw, shape (D, ...), of values by unit, shape (U, ...)."""
        return np.asarray(values[self.drawn].sum(axis=1))

    def ratios(self, above: Floats | Ints, below: Floats | Ints) -> Floats:
        """Total over total in each draw, shape (D,), of values (U,); nan over nothing."""
        return over(self.sums(above), self.sums(below))

    def ratio(self, above: Floats | Ints, below: Floats | Ints) -> Interval[float]:
        """Total over total, such as a mean over the positions of requests, with its interval."""
        return self.around(float(above.sum() / below.sum()), self.ratios(above, below))

    @cached_property
    def wider(self) -> float:
        """What deviations of the draws are multiplied by, so that 95 % of them are a 95 % interval
        of normal figures: sqrt(U / (U - 1)) t / z for U units.  One unit tells nothing, and its
        draws stay as they are.
        """
        freedom = self.units - 1
        if not freedom:
            return 1.0
        return sqrt(self.units / freedom) * t_quantile(0.95, freedom) / normal_quantile(0.95)

    def around(
        self, best: float | Floats, drawn: Floats, low: float = -inf, high: float = inf
    ) -> Interval[float]:
        """The interval of a figure that is ``drawn`` with the units alone, shape (D,): logarithms
        deviate, where all is above 0.

        low, high : what the figure cannot be beyond
        """
        found = around(best, drawn)
        ends = np.array([found.low, found.high])
        # An end on the other side of the figure is no deviation to be widened.
        beyond = np.array([found.low < found.best, found.high > found.best])
        if found.low > 0 and found.best > 0:
            wide = found.best * (ends / found.best) ** self.wider
        else:
            wide = found.best + self.wider * (ends - found.best)
        lowest, highest = np.clip(np.where(beyond, wide, ends), low, high).tolist()
        return Interval(lowest, found.best, highest)

    def weights(self, sizes: Ints) -> Iterator[Floats]:
        """How often each position counts in each draw, shape (T,), for units of so many each."""
        for chosen in self.drawn:
            counts = np.bincount(chosen, minlength=self.units)
            yield np.repeat(counts.astype(float), sizes)


def normal_quantile(level: float) -> float:
    """z with P(|normal| <= z) = level, level inside (0, 1)."""
    if not 0 < number("level", level) < 1:
        raise InvalidArgumentError(f"level must be inside (0, 1), got {level:g}")
    return NormalDist().inv_cdf((1 + level) / 2)


def t_quantile(level: float, freedom: float) -> float:
    """x with P(|t| <= x) = level, of Student's t at so many degrees of freedom, whole or not."""
    from scipy.special import stdtrit  # loads scipy

    normal_quantile(level)  # refuses the same levels
    return float(stdtrit(number("freedom", freedom, low=0.0), (1 + level) / 2))


def sum_half_width(parts: Sequence[tuple[float, int]]) -> float:
    """Half of the 95 % interval of a sum of independent normal errors: Student's t at Welch and
    Satterthwaite's degrees of freedom.

    parts : the variance of each, as estimated, and the degrees of freedom of that estimate; parts
        of none tell nothing and count as they are
    """
    variance = sum(part for part, _ in parts)
    below = sum(part**2 / freedom for part, freedom in parts if freedom)
    if not below:
        return normal_quantile(0.95) * sqrt(variance)
    return t_quantile(0.95, variance**2 / below) * sqrt(variance)


def joint_half_width(first: Interval[float], second: Interval[float]) -> float:
    """Half the width of the interval of a difference of two independent figures: the root of the
    sum of squares of the half widths of their own.
    """
    return hypot((first.high - first.low) / 2, (second.high - second.low) / 2)


def mean_of(figures: Sequence[Interval[float]]) -> Interval[float]:
    """The mean of independent figures: either end is as far from it as the root of the sum of
    squares of theirs, over their number.
    """
    size = len(figures)
    best = sum(each.best for each in figures) / size
    below = hypot(*(each.best - each.low for each in figures)) / size
    above = hypot(*(each.high - each.best for each in figures)) / size
    return Interval(best - below, best, best + above)


def apart(first: Interval[float], second: Interval[float]) -> float:
    """How far apart two independent figures lie, in what their intervals explain: at most 1 is what
    chance explains at the level of the intervals.

    The difference of logarithms over ``joint_half_width`` of the logarithms; where an end is not
    above 0, both of the figures themselves.  inf where they differ and nothing is left open, nan
    where an end is not known (nan).
    """
    ends = [end for each in (first, second) for end in (each.low, each.best, each.high)]
    if all(end > 0 for end in ends):
        first, second = (
            Interval(log(each.low), log(each.best), log(each.high)) for each in (first, second)
        )
    off, explained = abs(first.best - second.best), joint_half_width(first, second)
    if explained == 0:
        return inf if off else 0.0
    return off / explained


def chance_limit(figures: int, level: float) -> float:
    """How far ``apart`` pairs of figures with 95 % intervals may lie so that with the probability
    ``level`` none of so many independent pairs lies further by chance (Bonferroni, normal errors).

    Errors that are known from few repeats alone have longer tails (Student's t), so that chance
    exceeds it more often.
    """
    return normal_quantile(1 - (1 - level) / max(figures, 1)) / normal_quantile(0.95)


def wilson_interval(rate: Floats, trials: Floats, level: float) -> Interval[Floats]:
    """Measured rates over independent trials with their intervals; the two broadcast.

    The roots p of (rate - p)^2 = z^2 p (1 - p) / trials, in the form without cancellation: the
    low end is exactly 0 at rate 0, the high end exactly 1 at rate 1.
    """
    z = normal_quantile(level)
    shift = z * z / (2 * trials)
    half = z * np.sqrt(rate * (1 - rate) / trials + (z / (2 * trials)) ** 2)
    low = rate**2 / (rate + shift + half)
    high = 1 - (1 - rate) ** 2 / (1 - rate + shift + half)
    return Interval(low, rate, high)
