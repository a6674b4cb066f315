"""A prediction of an engine's speedups that was fixed before, beside what servers then take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from calibrate.engine.asked import Asked
from calibrate.engine.sets import TimedSet, replayed_rounds, request_sets
from specsim.counts.steps import StepTime
from specsim.intervals import t_quantile
from specsim.predict.engine_sets import AskedSets, SetSpeedup, StepRepeats


def checked_sets(
    asked: Asked, batches: Sequence[int], start: int
) -> dict[int, list[tuple[int, ...]]]:
    """By batch, the sets of requests that are judged, from request ``start`` on."""
    return {batch: request_sets(batch, len(asked.requests), start) for batch in batches}


def predicted(
    steps: Sequence[StepTime],
    asked: Asked,
    sets: Mapping[int, Sequence[tuple[int, ...]]],
    gammas: Sequence[int],
) -> list[SetSpeedup]:
    """Speedups of the sets by step times of the engine and the replay of each request's text."""
    repeats = StepRepeats.of(steps)
    rounds = {gamma: np.array(replayed_rounds(asked, gamma)) for gamma in (0, *gammas)}
    found = []
    for batch, requests in sets.items():
        of_sets = AskedSets(
            batch,
            {gamma: [each[list(some)] for some in requests] for gamma, each in rounds.items()},
        )
        found += [repeats.speedup(of_sets, gamma) for gamma in gammas]
    return found


def judged(
    predictions: Sequence[SetSpeedup],
    passes: Sequence[Sequence[TimedSet]],
    rounds: Mapping[int, Sequence[int]],
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, in the order of the predictions.

    The measured speedup is the mean over passes of the logarithm of plain seconds over seconds
    with drafts, each ratio of sets in one pass; ``measured_error`` is the relative standard
    error of that mean, and its interval Student's of 95 %.

    rounds : by draft length, those of each request by the replay
    """
    rows = []
    for each in predictions:
        cells = [_Cell(one, each.gamma, each.batch) for one in passes]
        logs = np.log([cell.speedup for cell in cells])
        measured = float(np.exp(logs.mean()))
        first = cells[0].drafted
        low, high = each.speedup.low, each.speedup.high
        error = float(logs.std(ddof=1)) / np.sqrt(logs.size)
        reach = np.exp(t_quantile(0.95, logs.size - 1) * error)
        rows.append(
            {
                "gamma": each.gamma,
                "batch": each.batch,
                "requests": sum(len(one.requests) for one in first),
                "predicted_speedup": each.speedup.best,
                "predicted_low": low,
                "predicted_high": high,
                "measured_speedup": measured,
                "measured_error": error,
                "measured_low": measured / reach,
                "measured_high": measured * reach,
                "relative_error": each.speedup.best / measured - 1,
                "inside": low <= measured <= high,
                "passes": len(cells),
                "replayed_rounds": sum(
                    rounds[each.gamma][n] for one in first for n in one.requests
                ),
                "counted_rounds": sum(one.rounds or 0.0 for one in first),
            }
        )
    return rows


class _Cell:
    """The sets of one draft length and batch in one pass, and the plain ones beside them."""

    def __init__(self, sets: Sequence[TimedSet], gamma: int, batch: int) -> None:
        self.drafted = [one for one in sets if (one.gamma, one.batch) == (gamma, batch)]
        self.plain = [one for one in sets if (one.gamma, one.batch) == (0, batch)]

    @property
    def speedup(self) -> float:
        """Seconds of a set without drafts over those with; plain sets are measured more often."""
        plain = fmean(one.seconds for one in self.plain)
        return plain / fmean(one.seconds for one in self.drafted)
