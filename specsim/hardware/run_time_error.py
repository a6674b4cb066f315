"""How far off fitted run times are at batches and contexts that were not timed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from specsim.checks import Floats
from specsim.hardware.grid_fit import grid_fits
from specsim.hardware.run_time_fit import FittedRunTimes, GridPoint, kind_of, ratios
from specsim.profiles import Profile


@dataclass(frozen=True, eq=False)
class FitError:
    """Relative errors |predicted / measured - 1| at points that the fit had not seen, as (median,
    worst), nan where too little was timed to tell; and a bound.  What was known of the growth
    before stays known: that of a draft without a shape is the target's at all points.
    """

    times: FittedRunTimes

    @cached_property
    def between(self) -> tuple[float, float]:
        """Each batch and each context between the least and the largest, from all others."""
        found: list[Floats] = []
        for of in (attrgetter("batch"), attrgetter("context")):
            for at in sorted({of(point) for point in self.times.points})[1:-1]:
                found.append(self._missed([p for p in self.times.points if of(p) == at]))
        return _summary(found)

    @cached_property
    def beyond(self) -> tuple[float, float]:
        """The largest batch of each context, from the smaller ones, two at least."""
        largest: dict[int, int] = {}
        for point in self.times.points:
            largest[point.context] = max(point.batch, largest.get(point.context, 0))
        smaller = {p.batch for p in self.times.points if p.batch < largest[p.context]}
        if len(smaller) < 2:
            return _summary([])
        held = [p for p in self.times.points if p.batch == largest[p.context]]
        return _summary([self._missed(held)])

    def most(self, batch: int, context: float) -> float:
        """How far off a run there is at most, as a share, if more or longer sequences take no less
        time than fewer or shorter ones, and no more than in proportion.
        """
        least: dict[int, float] = {}
        longest: dict[int, float] = {}
        for point in self.times.points:
            width = point.tokens
            grown = (batch / point.batch, (context + width) / (point.context + width))
            low = point.seconds * prod(min(each, 1.0) for each in grown)
            high = point.seconds * prod(max(each, 1.0) for each in grown)
            least[width] = max(low, least.get(width, low))
            longest[width] = min(high, longest.get(width, high))
        off = 0.0
        for width in least:
            seconds = self.times(width, batch, context)
            off = max(off, longest[width] / seconds - 1, seconds / least[width] - 1)
        return off

    def _missed(self, held: Sequence[GridPoint]) -> Floats:
        """Errors at points that are held out; none where the others are too few for the law."""
        rest = [point for point in self.times.points if point not in held]
        parameters = len(self.times.trend) - (self.times.experts is None)
        if len(rest) <= parameters:
            return np.empty(0)
        fit = FittedRunTimes.of(rest, self.times.known, self.times.experts)
        off = [fit(p.tokens, p.batch, p.context) / p.seconds - 1 for p in held]
        missed: Floats = np.abs(np.array(off))
        return missed


def fit_rows(profile: Profile) -> list[dict[str, Any]]:
    """Of a grid, by kind of run and mode: a run on one token, how much runs scatter, and how far
    off the fit is.

    ``spread`` is the quartiles' distance over the median, of the median cell, in plain steps, which
    is what the fit rests on; ``slowest`` is the largest outlier in seconds, over the median of its
    cell.
    """
    found = []
    for (mode, kind), times in grid_fits(profile).items():
        cells = [row for row in profile.grid if (row.mode, kind_of(row)) == (mode, kind)]
        # A plain step is its own measure.
        beside = [ratios(row) for row in cells if row.seconds != row.plain]
        quartiles = [np.quantile(each, [0.25, 0.5, 0.75]) for each in beside]
        first, last = times.points[0], max(times.points, key=lambda p: (p.batch, p.context))
        error = FitError(times)
        found.append(
            {
                "run": kind,
                "mode": mode,
                "points": len(times.points),
                "smallest_load_ms": 1e3 * times(1, first.batch, first.context),
                "largest_load_ms": 1e3 * times(1, last.batch, last.context),
                "spread": float(np.median([(high - low) / mid for low, mid, high in quartiles])),
                "slowest": max(max(row.seconds) / np.median(row.seconds) for row in cells),
                "error_between_median": error.between[0],
                "error_between_worst": error.between[1],
                "error_beyond_median": error.beyond[0],
                "error_beyond_worst": error.beyond[1],
            }
        )
    return found


def _summary(errors: Iterable[Floats]) -> tuple[float, float]:
    together = np.concatenate([np.empty(0), *errors])
    if not len(together):
        return float("nan"), float("nan")
    return float(np.median(together)), float(together.max())
