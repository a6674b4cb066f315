"""A deferral rule at every threshold, and the optimum that no deferral rule can beat.

A deferral rule emits p where its score exceeds the threshold t and q elsewhere; a token of q is
rejected with probability TV(p, q) where it defers and never elsewhere (Narasimhan24 Lemma 5).
Positions sorted by falling score once, cumulative sums are the whole curve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.checks import Floats, Ints, InvalidArgumentError
from specsim.frontier.positions import LabelledPositions, Outcome
from specsim.rules import DecideOn


def relative_to_tv(gap: Floats, tv: Floats) -> Floats:
    """gap / TV.  Where TV = 0 the sign decides at any finite threshold, and 0 does not defer."""
    at_once = np.where(gap > 0, np.inf, -np.inf)
    return np.divide(gap, tv, out=at_once, where=tv > 0)


@dataclass(frozen=True)
class Score:
    """How a rule decides: it defers where ``of(*needs)`` exceeds the threshold.

    needs : statistics of a position (``positions.STATISTICS``, or tv)
    floor : the lowest threshold that the rule has
    """

    needs: tuple[str, ...]
    of: Callable[..., Floats]
    floor: float = -np.inf


# The deferral rules of ``specsim.rules``.
SCORES: dict[str, Score] = {
    "Chow": Score(("draft_max",), lambda q: 1.0 - q, floor=0.0),
    "ChowLog": Score(("draft_entropy",), lambda hq: hq, floor=0.0),
    "Diff": Score(("draft_max", "target_max"), lambda q, p: p - q, floor=-1.0),
    "DiffLog": Score(("draft_entropy", "target_entropy"), lambda hq, hp: hq - hp),
    "Opt": Score(("draft_max", "target_max", "tv"), lambda q, p, tv: relative_to_tv(p - q, tv)),
    "OptLog": Score(
        ("draft_entropy", "target_entropy", "tv"),
        lambda hq, hp, tv: relative_to_tv(hq - hp, tv),
    ),
    "BildStar greedy": Score(("bild_greedy",), lambda distance: distance, floor=0.0),
    "BildStar expectation": Score(("bild_expectation",), lambda distance: distance, floor=0.0),
}


@dataclass(frozen=True)
class Curve:
    """What a rule does at each of its K settings.

    setting : thresholds, or the settings of a rule in words, shape (K,)
    rejection : mean probability that a draft token is rejected, shape (K,)
    loss : mean loss, shape (K,)
    """

    setting: npt.NDArray[Any]
    rejection: Floats
    loss: Floats


@dataclass(frozen=True)
class Sweep:
    """Which positions are deferred at which threshold.  Ties keep the draft, so do the rules.

    order : positions by falling score, those that are never deferred left out
    threshold : falling, one for every set of deferred positions, shape (K,)
    deferred : how many of ``order`` have a score above the threshold, shape (K,); from 0
    """

    order: Ints
    threshold: Floats
    deferred: Ints

    @staticmethod
    def of(score: Floats, floor: float = -np.inf) -> Sweep:
        """Every threshold >= ``floor`` that makes a difference."""
        if np.isnan(score).any():
            first = int(np.isnan(score).argmax())
            raise InvalidArgumentError(f"scores must be numbers, got nan at {first}")
        falling = np.argsort(-score, kind="stable")
        falling = falling[: int((score > floor).sum())]
        ranked = score[falling]
        ends = np.flatnonzero(ranked != np.append(ranked[1:], np.nan)) + 1
        lowest = min([*ranked[-1:].tolist(), 1.0])
        # Any threshold below it defers all: a finite one, which a rule can be given.
        last = floor if np.isfinite(floor) else min(lowest - 1, np.nextafter(lowest, -np.inf))
        threshold = np.concatenate([ranked[ends - 1], [last]])
        return Sweep(falling, threshold, np.concatenate([[0], ends]))

    def curve(
        self, tv: Floats, draft: Floats, target: Floats, weights: Floats | None = None
    ) -> Curve:
        """Mean rejection and loss; ``tv`` and the two losses are of shape (T,).

        ``weights`` of the positions, shape (T,), for the bootstrap; equal if not given.
        """
        weights = np.ones_like(tv) if weights is None else weights
        total = weights.sum()
        rejected = self._running(weights * tv)
        change = self._running(weights * (target - draft))
        return Curve(self.threshold, rejected / total, (weights @ draft + change) / total)

    def _running(self, values: Floats) -> Floats:
        """Sum over the deferred positions, at each threshold."""
        sums = np.concatenate([[0.0], np.cumsum(values[self.order])])
        return np.asarray(sums[self.deferred])

    def outcome(self, at: int, tv: Floats, draft: Floats, target: Floats) -> Outcome:
        """What happens at every position at the threshold number ``at``."""
        deferred = np.zeros(len(tv), dtype=np.bool_)
        deferred[self.order[: self.deferred[at]]] = True
        return Outcome(np.where(deferred, tv, 0.0), np.where(deferred, target, draft))


def sweeps(positions: LabelledPositions, decide_on: DecideOn) -> dict[str, Sweep]:
    """Every deferral rule that the columns allow, at every threshold."""
    found = {}
    for rule, score in SCORES.items():
        columns = [positions.statistic(decide_on, name) for name in score.needs]
        known = [column for column in columns if column is not None]
        if len(known) == len(score.needs):
            found[rule] = Sweep.of(score.of(*known), score.floor)
    return found


def optimum(tv: Floats, draft: Floats, target: Floats) -> Sweep:
    """Where to defer for the least mean loss under a budget on mean rejection, every budget.

    minimise sum_t r_t (l_p - l_q)_t subject to sum_t r_t TV_t <= budget, 0 <= r_t <= 1: a
    fractional knapsack.  Defer in the order of (l_q - l_p)/TV, which is Narasimhan24 Lemma 6 with
    its cost alpha as the threshold, and never where the target is no better; positions with
    TV = 0 are free.  The last position of a budget is deferred in part, so the frontier is
    straight between the points of the curve (``frontier``).

    It knows the label: rules that do not see it fall short of it, however good.
    """
    return Sweep.of(relative_to_tv(draft - target, tv), floor=0.0)


def frontier(curve: Curve, budget: npt.ArrayLike) -> Floats:
    """Least mean loss at each budget on mean rejection, from the curve of ``optimum``."""
    last_at = np.append(np.diff(curve.rejection) > 0, True)  # what is free is deferred first
    found = np.interp(
        np.asarray(budget, dtype=float), curve.rejection[last_at], curve.loss[last_at]
    )
    return np.asarray(found)


def best_within(curve: Curve, start: float, budget: npt.ArrayLike) -> Floats:
    """Least loss among the settings with mean rejection <= budget, each a setting of its own.

    ``start`` is the loss without any rejection: the draft alone, which every budget allows.
    """
    rejection, loss = _envelope(curve, start)
    found: Floats = loss[np.searchsorted(rejection, budget, side="right") - 1]
    return found


def _envelope(curve: Curve, start: float) -> tuple[Floats, Floats]:
    order = np.argsort(curve.rejection, kind="stable")
    rejection = np.concatenate([[0.0], curve.rejection[order]])
    return rejection, np.minimum.accumulate(np.concatenate([[start], curve.loss[order]]))


def mean_regret(curve: Curve, best: Curve, start: float, widest: float) -> float:
    """Mean over the budgets in [0, widest] of the loss above the optimum's at the same budget.

    ``best`` is the curve of ``optimum``; ``start`` the loss of the draft alone; ``widest`` the
    rejection of the target itself, mean TV.  0 where that is 0.  Exact: one function is constant
    between its points, the other straight.
    """
    if widest == 0:
        return 0.0
    rejection, loss = _envelope(curve, start)
    inside = rejection < widest
    steps = loss[inside] @ np.diff(np.append(rejection[inside], widest))
    knots = best.rejection[best.rejection < widest]
    knots = np.concatenate([[0.0], knots, [widest]])
    return float(steps - np.trapezoid(frontier(best, knots), knots)) / widest
