"""One decision by load, and how sure it is.

A speedup is tokens per call over what a round costs, in plain steps, so its logarithm errs by the
error of the one less that of the other.  The two know nothing of each other: with T the tokens per
call, T_low and T_high the ends of its 95 % interval, and e the half-width of the interval that the
costs alone leave the speedup, as a logarithm,

    log low  = log speedup - sqrt(log(T / T_low)^2 + e^2)
    log high = log speedup + sqrt(log(T_high / T)^2 + e^2)

Where only one of the two is known, it alone counts.  e is, in quadrature again, what the repeats of
run times leave open, by draws of them, and what is not seen in repeats: how far a fit is off at
batches that were not timed, and what machines do later.  The best of several lengths is mostly one
whose costs chance favours: how much, the draws say too, and that is taken off its low end.

A round takes no less than a plain step, so the high end is at most T_high.  What a round costs is
taken at the acceptance itself, also at its ends, where a little more or less of the first draft run
is to be read.

Of lengths whose costs were drawn the one is chosen that loses least in the mean over the draws: an
estimate that chance favours is the best in few of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from specsim.batching.point import BatchPoint, batch_point, best_of, points_of_cell
from specsim.batching.workload import BatchWorkload
from specsim.checks import Floats
from specsim.intervals import Interval


@dataclass(frozen=True, eq=False)
class Decision:
    """What is drafted at one batch and context.

    points : what every draft length from 0 on gives; plain decoding alone where a drafter has no
        room; the one alone that was asked for
    margin : what drafts must gain over plain decoding, or none are made
    given : whether one length was asked for
    """

    workload: BatchWorkload
    points: tuple[BatchPoint, ...]
    margin: float
    given: bool = False

    @cached_property
    def point(self) -> BatchPoint:
        """What was chosen: of the lengths that gain the margin the one of the smallest expected
        regret over what the costs' repeats leave open (``specsim.predict.measured.choose``); where
        nobody knows that, the one with the best estimate.
        """
        best = best_of(self.points, self.margin)
        if self.given or not best.gamma or self._drawn is None:
            return best
        # Where the mean over the draws is largest.
        means = self._drawn.mean(axis=1)
        paying = [
            at for at, each in enumerate(self.points) if each.gamma and each.pays(self.margin)
        ]
        return self.points[max(paying, key=means.__getitem__)]

    @property
    def batch(self) -> int:
        return self.point.batch

    @cached_property
    def pays(self) -> Interval[float]:
        """Whether drafts pay, 1 or 0: at the low end of the interval, as predicted, and at the high
        end, each with its own best draft length.
        """
        drafts = np.array(self._gammas) > 0
        least = 1.0 + self.margin
        low, best, high = self._curves
        ends = (low * (1.0 - self._flattered), best, high)
        return Interval(*(float((curve[drafts] >= least).any()) for curve in ends))

    @property
    def speedup(self) -> Interval[float] | None:
        """Of what was chosen; None where nothing is known of its error."""
        if not self._known:
            return None
        low, best, high = self._ends(self.point.gamma)
        return Interval(low * (1.0 - self._flattered), best, high)

    def speedup_with(self, gamma: int) -> Interval[float] | None:
        """Of a draft length that has a price here, as if nobody had chosen it; None where nothing
        is known of its error.
        """
        return Interval(*self._ends(gamma)) if self._known else None

    def _ends(self, gamma: int) -> tuple[float, float, float]:
        at = self._gammas.index(gamma)
        low, best, high = (float(curve[at]) for curve in self._curves)
        return low, best, high

    @cached_property
    def gammas(self) -> tuple[int, int] | None:
        """The shortest and the longest of the draft lengths that are best at the low end of the
        acceptance's interval, as predicted, and at the high end; None where that interval is not
        known, or where the length was given.
        """
        ends = self.workload.gains_interval
        if ends is None or self.given:
            return None
        found = [self.point.gamma, *(self._chosen_with(end.tokens) for end in ends)]
        return min(found), max(found)

    @cached_property
    def regret(self) -> float | None:
        """What share of the best speedup the chosen length loses if the acceptance rate is 0.05
        off, the worse of more and less (``rates_off``); None where the length was given.
        """
        if self.given:
            return None
        at = self.points.index(self.point)
        curves = [self._with(tokens) for tokens in self.workload.rates_off]
        return max(float(1.0 - curve[at] / curve.max()) for curve in curves)

    @cached_property
    def loaded(self) -> float | None:
        """Speedup of a step without drafts while the drafter stays loaded, below 1; None where it
        costs nothing, or nobody knows what.
        """
        if len(self.points) == 1 and not self.point.gamma:
            return None
        point = self.point
        more = self.workload.cost.loaded_s(point.batch, point.context)
        plain = point.spent.plain_step_s
        return plain / (plain + more) if more > 0 else None

    def row(self) -> dict[str, Any]:
        """The result row: that of the point, and what is known of its errors."""
        found: dict[str, Any] = {}
        known = self.speedup
        for name, value in self.point.row().items():
            found[name] = value
            if name == "gamma" and self.gammas is not None:
                found["gamma_low"], found["gamma_high"] = self.gammas
            if name == "speedup":
                if known is not None:
                    found["low"], found["high"] = known.low, known.high
                if self.regret is not None:
                    found["regret"] = self.regret
        if self.loaded is not None:
            found["gamma_0_loaded"] = self.loaded
        return found

    @cached_property
    def _speedups(self) -> Floats:
        return np.array([point.speedup for point in self.points])

    @cached_property
    def _gammas(self) -> list[int]:
        return [point.gamma for point in self.points]

    @cached_property
    def _error(self) -> float | None:
        """What the costs leave open."""
        first = self.points[0]
        return self.workload.basis.error(first.batch, first.context)

    @cached_property
    def _drawn(self) -> Floats | None:
        """Speedups by draft length in draws of what the costs' repeats leave open, (K + 1, D);
        None where nobody knows what they do.
        """
        cost = self.workload.drawn_cost
        if cost is None or self._error is None:
            return None
        at = self.points[0].batch, self.points[0].context
        points = [batch_point(self.workload.gains, cost, gamma, *at) for gamma in self._gammas]
        return np.array(np.broadcast_arrays(*(point.speedup for point in points)))

    @cached_property
    def _of_costs(self) -> tuple[Floats, Floats]:
        """What the costs leave open of logarithms, downwards and upwards, shapes (K + 1,)."""
        drafts = np.array(self._gammas) > 0
        unseen = np.where(drafts, np.log1p(self._error or 0.0), 0.0)
        if self._drawn is None:
            return unseen, unseen
        ends = np.log(np.quantile(self._drawn, [0.025, 0.975], axis=1) / self._speedups)
        low, high = np.hypot(unseen, np.maximum(ends * [[-1.0], [1.0]], 0.0))
        return low, high

    @cached_property
    def _flattered(self) -> float:
        """How much being chosen flatters the speedup in the mean, as a share of it."""
        if self._drawn is None or self.given or not self.point.gamma:
            return 0.0
        more = self._drawn.max(axis=0) - self._speedups[self._drawn.argmax(axis=0)]
        return min(max(float(more.mean()), 0.0) / self.point.speedup, 0.9)

    @property
    def _known(self) -> bool:
        return self._error is not None or self.workload.gains_interval is not None

    @cached_property
    def _curves(self) -> tuple[Floats, Floats, Floats]:
        """Speedup by draft length: at the low end, as predicted, and at the high end."""
        best = self._speedups
        if not self._known:
            return best, best, best
        reach = list(self._of_costs)
        most = tokens = self.workload.gains.tokens[self._gammas]
        if (ends := self.workload.gains_interval) is not None:
            reach = [
                np.hypot(of_costs, np.log(end.tokens[self._gammas] / tokens))
                for of_costs, end in zip(reach, ends, strict=True)
            ]
            most = ends[1].tokens[self._gammas]
        high = np.minimum(best * np.exp(reach[1]), most)
        return best * np.exp(-reach[0]), best, np.maximum(high, best)

    def _with(self, tokens: Floats) -> Floats:
        """Speedup by draft length with other tokens per call, shape (K + 1,), at the same costs."""
        ratio: Floats = tokens[self._gammas] / self.workload.gains.tokens[self._gammas]
        return self._speedups * ratio

    def _chosen_with(self, tokens: Floats) -> int:
        curve = self._with(tokens)
        best = int(curve.argmax())
        return self._gammas[best] if curve[best] >= 1.0 + self.margin else 0


def decide(
    workload: BatchWorkload,
    batch: int,
    context: float,
    margin: float,
    gamma: int | None = None,
) -> Decision:
    """The best draft length, or what ``gamma`` gives.

    Raises CellUnavailableError where the batch has no price.
    """
    gains, cost = workload.gains, workload.cost
    if gamma is not None:
        return Decision(workload, (batch_point(gains, cost, gamma, batch, context),), margin, True)
    points = points_of_cell(gains, cost, batch, context, workload.gamma_max)
    return Decision(workload, tuple(points), margin)
