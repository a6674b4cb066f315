"""Acceptance at every draft length from counts at one or several.

Which model carries it depends on the drafter:

* a draft model reads the text alone, so the token mixture holds both ways, and all draft lengths
  that were counted speak for one mixture;
* heads (EAGLE, MTP) read their own features back, and their acceptance falls with depth, which no
  mixture has: longer drafts follow the falling trend of the log odds (``curve.py``), from the
  longest counted, shorter ones the mixture of the next longer one that was.

A mixture is asked only how rates change with the draft length: S_j at another gamma is the
counted S_j times what the mixture says of the two.  Where rates fall with the position no mixture
fits, the nearest is one rate, which says that nothing changes, and the curve is simply cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specsim.acceptance import conditional_rates
from specsim.checks import Floats, UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.extrapolation.bounds import mixture_bounds
from specsim.extrapolation.counted import tokens_deviation
from specsim.extrapolation.curve import (
    CONTINUED,
    INTERVAL_LEVEL,
    MEASURED,
    Extrapolation,
    carried_note,
    curve_of_tokens,
    extrapolate,
)
from specsim.extrapolation.fits import fit_mixture, misfit
from specsim.extrapolation.mixtures import TokenMixture
from specsim.extrapolation.trends import FALLING
from specsim.intervals import Interval, normal_quantile

# Far beyond anything that was checked; every length costs a sum over the mixture.
_LONGEST = 1000

# Width of an interval, in what it is of, from which counts are said to be few.
_WIDE = 0.2

MIXTURE = "token mixture"


def acceptance_from_counts(
    counts: Iterable[DraftCounts], heads: bool | None = True
) -> AcceptanceOverGamma:
    """What an engine counted at one or several draft lengths, as an acceptance at every one.

    counts : those of one draft length are added up, or those by position kept where others have
        totals alone; rounds without a draft are left out
    heads : see ``Marginal``

    Raises UnsupportedError where nothing was counted, or where the draft length varied within
    the counts (gamma is None), so that nobody knows which rounds could have got how far.
    """
    pooled: dict[int, DraftCounts] = {}
    left_out = []
    for count in counts:
        if count.gamma is None:
            raise UnsupportedError(
                "counts of rounds whose draft length varied say nothing of any other length; count "
                "each length by itself"
            )
        if count.gamma and count.rounds:
            known = pooled.get(count.gamma)
            if known is None:
                pooled[count.gamma] = count
            elif bool(count.reached) == bool(known.reached):
                pooled[count.gamma] = known + count
            else:
                totals, kept = (known, count) if count.reached else (count, known)
                pooled[count.gamma] = kept
                left_out.append(totals)
    if pooled and max(pooled) > _LONGEST:
        raise UnsupportedError(
            f"measured rates are carried from {_LONGEST:,} drafts at most, {max(pooled):,} were "
            "counted"
        )
    if not pooled:
        raise UnsupportedError("no round was drafted, so there is no rate of acceptance")
    return AcceptanceOverGamma(
        tuple(pooled[gamma] for gamma in sorted(pooled)), heads, tuple(left_out)
    )


@dataclass(frozen=True, eq=False)
class AcceptanceOverGamma:
    """Acceptance by draft length, from counts; what it was measured at comes back as it was.

    counts : one for each draft length, rising, each with at least one round
    heads : see ``Marginal``
    left_out : totals alone of draft lengths that were also counted by position

    Intervals hold at 90 % if rounds are independent; those of one request are not quite.
    """

    counts: tuple[DraftCounts, ...]
    heads: bool | None = True
    left_out: tuple[DraftCounts, ...] = ()

    @property
    def _is_of_heads(self) -> bool:
        """Where nobody says what drafted, too."""
        return self.heads is not False

    @property
    def measured(self) -> tuple[int, ...]:
        """Draft lengths that were counted, rising."""
        return tuple(count.gamma for count in self.counts if count.gamma is not None)

    def model(self, gamma: int) -> str:
        """What the figures at this draft length come from."""
        if gamma == 0 or gamma in self.measured:
            return MEASURED
        if not self._is_of_heads:
            return MIXTURE
        # Of totals it was not seen where blocks start; how rates of heads fall is known better.
        return MIXTURE if gamma < self.measured[-1] and self._next(gamma).reached else CONTINUED

    def survival(self, length: int) -> Floats:
        """S_0..S_length of blocks that draft ``length`` tokens, shape (length + 1,)."""
        if length > _LONGEST:
            raise UnsupportedError(
                f"measured rates are carried to {_LONGEST:,} drafts at most, {length:,} asked for"
            )
        model = self.model(length)
        if model == MIXTURE:
            curve = self._carried(length)
        elif length > self.measured[-1]:
            curve = self._beyond(length, self._longest_curve).survival
        else:
            curve = self._counted(int(self._next(length).gamma or 0))[:length]
        return np.concatenate([[1.0], curve])

    def conditional(self, length: int) -> Floats:
        """alpha_1..alpha_length of such blocks; 0 behind a position that is never reached."""
        return conditional_rates(self.survival(length))

    def tokens_per_call(self, longest: int) -> Floats:
        """At gamma = 0..longest, the recovered or bonus token counted, shape (longest + 1,)."""
        return np.array([self.survival(gamma).sum() for gamma in range(longest + 1)])

    def interval(self, gamma: int) -> Interval[float]:
        """Tokens per call at this draft length, with what the counts leave open.

        Chance alone gives the normal interval.  To it come, by the mixture, the sharp bounds of all
        mixtures within the confidence intervals of the counted rates; by the trend, towards longer
        drafts the intervals of ``extrapolate``, added up, and from totals alone the spread of
        slopes between drafters.  Rates of heads that fall with depth hide how much text differs,
        so towards shorter drafts the interval goes on to the mixture behind such a fall.
        """
        if gamma not in self._intervals:
            self._intervals[gamma] = self._interval(gamma)
        return self._intervals[gamma]

    @cached_property
    def _intervals(self) -> dict[int, Interval[float]]:
        """Those that were asked for: each is two linear programmes, and sweeps ask again."""
        return {}

    def _interval(self, gamma: int) -> Interval[float]:
        best = float(self.survival(gamma).sum())
        if not gamma:
            return Interval(best, best, best)
        model = self.model(gamma)
        if model == CONTINUED and gamma > self.measured[-1]:
            curves = [self._longest_curve, *self._other_slopes(self.counts[-1])]
            found = [self._beyond(gamma, curve).interval(gamma) for curve in curves]
            return Interval(min(each.low for each in found), best, max(each.high for each in found))
        curve = self.survival(gamma)[1:]
        near = self._next(gamma) if gamma <= self.measured[-1] else self.counts[-1]
        half = normal_quantile(INTERVAL_LEVEL) * tokens_deviation(curve, near.rounds)
        low, high = best - half, best + half
        # Rounds that were all alike show no spread, and leave one open all the same.
        whole = len(near.reached) >= gamma
        if model == MEASURED and whole and (own := near.length(INTERVAL_LEVEL)) is not None:
            low, high = min(low, own.low), max(high, own.high)
        if model == CONTINUED:
            ends = [1.0 + float(curve[:gamma].sum()) for curve in self._other_slopes(near)]
            low, high = min(ends) - half, max(ends) + half
        if model == MIXTURE:
            basis = self._basis(gamma)
            bounds = mixture_bounds(self._mixtures[basis], basis, gamma, INTERVAL_LEVEL)
            scale = best / bounds.best
            low, high = min(low, bounds.low * scale), max(high, bounds.high * scale)
            if self._is_of_heads:
                carried = _fallen(self._level(near).survival(gamma), -1.0)  # the fall put on again
                high = max(high, 1.0 + float(carried.sum()) + half)
        return Interval(max(low, 1.0), best, min(high, gamma + 1.0))

    def notes(self, gamma: int) -> tuple[str, ...]:
        """How far from what was measured this draft length is, how sure the answer there, and
        which counts contradict it.
        """
        if not gamma:
            return ()
        model, found = self.model(gamma), self.interval(gamma)
        lines = []
        if model != MEASURED:
            lines.append(carried_note(self.measured, gamma, model, found))
        elif found.high - found.low > _WIDE * found.best:
            lines.append(
                f"acceptance at gamma {gamma} was counted in {self._next(gamma).rounds:,g} rounds "
                f"alone: {found.best:.3f} tokens per call, {INTERVAL_LEVEL:.0%} interval "
                f"{found.low:.3f} to {found.high:.3f}"
            )
        for length in self.measured:
            other = self.interval(length)
            fewer = length < gamma and found.high < other.low
            if fewer or (length > gamma and found.low > other.high):
                lines.append(
                    f"{found.best:.3f} tokens per call at gamma {gamma} are "
                    f"{'fewer' if fewer else 'more'} than the {other.best:.3f} counted at gamma "
                    f"{length}, and a longer draft never gives fewer: count both on the same "
                    "requests"
                )
        lines += [
            f"left out: {count.rounds:,g} rounds at gamma {count.gamma} whose positions were not "
            f"counted, {count.tokens_per_call:.3f} tokens per call; those with positions are used"
            for count in self.left_out
        ]
        return tuple(lines)

    def _basis(self, gamma: int) -> tuple[DraftCounts, ...]:
        """The counts whose mixture answers for this draft length."""
        return (self._next(gamma),) if self._is_of_heads else self.counts

    def _next(self, gamma: int) -> DraftCounts:
        """Of the shortest draft that was counted and is no shorter than this."""
        return next(count for count in self.counts if (count.gamma or 0) >= gamma)

    @cached_property
    def _mixtures(self) -> _Fits:
        return _Fits()

    def _level(self, near: DraftCounts) -> AcceptanceOverGamma:
        """Counts of heads without their fall with depth, to be carried as a draft model's are."""
        gamma = int(near.gamma or 0)
        if gamma not in self._levels:
            curve = np.append(1.0, self._counted(gamma))
            reached = tuple((near.rounds * _fallen(curve, 1.0)).tolist())
            # Rates that are raised may be of more tokens than short drafts had.
            drafted = None if near.drafted is None else max(near.drafted, sum(reached))
            level = DraftCounts(gamma, near.rounds, sum(reached), drafted, reached)
            self._levels[gamma] = AcceptanceOverGamma((level,), heads=False)
        return self._levels[gamma]

    @cached_property
    def _levels(self) -> dict[int, AcceptanceOverGamma]:
        """Those that were asked for, by draft length: each is a fit."""
        return {}

    def _beyond(self, gamma: int, curve: Floats) -> Extrapolation:
        """The longest draft that was counted, by this curve, at a longer one, as heads have it."""
        return extrapolate(curve, gamma, self.counts[-1].rounds, FALLING.name)

    @cached_property
    def _longest_curve(self) -> Floats:
        """S_1..S_K of the longest draft, as it was counted, or as totals and the trend have it."""
        return self._counted(self.measured[-1])

    def _other_slopes(self, count: DraftCounts) -> list[Floats]:
        """S_1..S_K of totals alone at the ends of the slopes that drafters have; none where
        positions tell the slope.
        """
        if count.reached:
            return []
        reach = normal_quantile(INTERVAL_LEVEL) * FALLING.spread
        return [
            curve_of_tokens(count.tokens_per_call, int(count.gamma or 0), slope)
            for slope in (FALLING.slope - reach, FALLING.slope + reach)
        ]

    def _counted(self, gamma: int) -> Floats:
        """S_1..S_gamma as counted; where only totals were, by the model that shares them out."""
        count = self._next(gamma)
        if len(count.reached) >= gamma:
            return np.clip(np.array(count.reached[:gamma]) / count.rounds, 0.0, 1.0)
        if self._is_of_heads and not count.reached:
            return curve_of_tokens(count.tokens_per_call, gamma)
        curve = self._mixtures[(count,)].survival(gamma)[1:]
        known = np.array(count.reached) / count.rounds
        rest = curve[known.size :]
        left = max(count.tokens_per_call - 1.0 - float(known.sum()), 0.0)
        if rest.sum() > 0:
            rest = rest * left / rest.sum()
        curve = np.concatenate([known, rest])
        return np.minimum.accumulate(np.clip(curve, 0.0, 1.0))

    def _carried(self, gamma: int) -> Floats:
        """S_1..S_gamma: the counted curve next to it, times what the mixture says of the two."""
        basis = self._basis(gamma)
        mixture = self._mixtures[basis]
        near = self._next(gamma) if gamma < self.measured[-1] else basis[-1]
        length = int(near.gamma or 0)
        fitted = mixture.survival(length)[1:]
        counted = self._counted(length)
        ratio = np.divide(counted, fitted, out=np.ones(length), where=fitted > 1e-12)
        # As much of the misfit is carried on as is more than chance (James and Stein's share).
        off, rates = misfit(mixture, basis)
        ratio = np.maximum(ratio, 1e-12) ** max(0.0, 1.0 - rates / max(off, 1e-12))
        ratio = np.pad(ratio, (0, max(gamma - length, 0)), mode="edge")[:gamma]
        curve = mixture.survival(gamma)[1:] * ratio
        return np.minimum.accumulate(np.clip(curve, 0.0, 1.0))


def _fallen(survival: Floats, sign: float) -> Floats:
    """S_1..S_K whose rates fall with depth as those of nearly all heads do, or rise (sign +1)."""
    rates = conditional_rates(survival)
    fall = -FALLING.slope + normal_quantile(INTERVAL_LEVEL) * FALLING.spread
    odds = np.exp(sign * fall * np.arange(rates.size))
    # The odds of a rate times that, defined at 0 and at 1.
    return np.cumprod(rates * odds / (1.0 + rates * (odds - 1.0)))


class _Fits(dict[tuple[DraftCounts, ...], TokenMixture]):
    """Fitted mixtures by what was counted, each fitted when it is first asked for."""

    def __missing__(self, counts: Sequence[DraftCounts]) -> TokenMixture:
        self[tuple(counts)] = fitted = fit_mixture(counts)
        return fitted
