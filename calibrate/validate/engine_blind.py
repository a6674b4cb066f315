"""A prediction of an engine's speedups that was fixed before, beside what servers then take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from calibrate.engine.asked import Asked
from calibrate.engine.rounds import drawn_rounds, replayed_rounds
from calibrate.engine.sets import TimedSet, request_sets
from calibrate.measure.trace import DECODING
from specsim.checks import Floats, Ints
from specsim.counts.steps import StepTime, StreamedSteps
from specsim.intervals import Interval, apart, t_quantile
from specsim.predict.engine_sets import AskedSets, SetSpeedup, StepRepeats

# Times that requests are drawn again, whose variance is then known to a tenth.
_BOOTSTRAP = 200


def checked_sets(
    asked: Asked, batches: Sequence[int], start: int
) -> dict[int, list[tuple[int, ...]]]:
    """By batch, the sets of requests that are judged, from half a set behind request ``start`` on,
    so that they are mostly other ones than were timed.
    """
    size = len(asked.requests)
    return {batch: request_sets(batch, size, start + batch // 2) for batch in batches}


def sets_of_pass(
    asked: Asked, batches: Sequence[int], start: int, number: int
) -> dict[int, list[tuple[int, ...]]]:
    """The same in one pass.  Above temperature 0, where texts are drawn, the next requests."""
    if asked.check.sampling.greedy:
        return checked_sets(asked, batches, start)
    size = len(asked.requests)
    steps = {batch: sum(map(len, request_sets(batch, size, 0))) for batch in batches}
    return {batch: request_sets(batch, size, start + number * steps[batch]) for batch in batches}


def predicted(
    steps: Sequence[StepTime],
    asked: Asked,
    sets: Mapping[int, Sequence[tuple[int, ...]]],
    gammas: Sequence[int],
    streamed: Sequence[StreamedSteps] = (),
    starts: int = 1,
) -> list[SetSpeedup]:
    """Speedups of the sets by step times of the engine and the replay of each request's text.

    streamed : steps under load that were timed beside them
    starts : of the servers that are judged
    """
    repeats = StepRepeats.of(steps).beside(streamed)
    rounds = {gamma: np.array(replayed_rounds(asked, gamma)) for gamma in (0, *gammas)}
    found = []
    for batch, requests in sets.items():
        of_sets = AskedSets(
            batch,
            {gamma: [each[list(some)] for some in requests] for gamma, each in rounds.items()},
        )
        found += [repeats.speedup(of_sets, gamma, starts=starts) for gamma in gammas]
    return found


def predicted_of_draws(
    steps: Sequence[StepTime],
    asked: Asked,
    batches: Sequence[int],
    gammas: Sequence[int],
    seed: int,
    streamed: Sequence[StreamedSteps] = (),
    starts: int = 1,
) -> list[SetSpeedup]:
    """Speedups of sets of requests like all that are asked, above temperature 0.

    Each text of the trace stands for one that the engine may write; sets are of neighbours in the
    circle of requests, each of which begins one.  What the requests leave open is a bootstrap over
    them.
    """
    repeats = StepRepeats.of(steps).beside(streamed)
    size = len(asked.requests)
    rounds = {gamma: drawn_rounds(asked, gamma, seed) for gamma in (0, *gammas)}
    draws = max(len(each) for each in rounds.values())
    random = np.random.default_rng([DECODING, seed])
    again = random.integers(size, size=(_BOOTSTRAP, size))

    def asked_sets(batch: int, gamma: int, requests: Ints) -> AskedSets:
        circle = (np.arange(size)[:, None] + np.arange(batch)) % size
        # Every draw of the rounds beside as many of plain decoding, whose are known.
        rows = {k: np.broadcast_to(rounds[k], (draws, size))[:, requests] for k in (0, gamma)}
        return AskedSets(
            batch, {k: [*row[:, circle].reshape(-1, batch)] for k, row in rows.items()}
        )

    return [
        repeats.speedup(
            asked_sets(batch, gamma, np.arange(size)),
            gamma,
            [asked_sets(batch, gamma, each) for each in again],
            size,
            starts=starts,
        )
        for batch in batches
        for gamma in gammas
    ]


def judged(
    predictions: Sequence[SetSpeedup],
    passes: Sequence[Sequence[TimedSet]],
    rounds: Mapping[int, Floats],
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, in the order of the predictions.

    The measured speedup is the mean over passes of the logarithm of plain seconds over seconds
    with drafts, each ratio of sets in one pass; ``measured_error`` is its standard error, and its
    interval Student's of 95 %.

    rounds : by draft length, those of each request by the replay; counted and replayed ones are
        means over passes
    """
    rows = []
    for each in predictions:
        cells = [_Cell(one, each.gamma, each.batch) for one in passes]
        logs = np.log([cell.speedup for cell in cells])
        measured = float(np.exp(logs.mean()))
        sets = [one for cell in cells for one in cell.drafted]
        error = float(logs.std(ddof=1)) / np.sqrt(logs.size)
        reach = float(np.exp(t_quantile(0.95, logs.size - 1) * error))
        seen = Interval(measured / reach, measured, measured * reach)
        rows.append(
            {
                "gamma": each.gamma,
                "batch": each.batch,
                "requests": sum(len(one.requests) for one in sets) // len(cells),
                "predicted_speedup": each.speedup.best,
                "predicted_low": each.speedup.low,
                "predicted_high": each.speedup.high,
                "measured_speedup": measured,
                "measured_error": measured * error,
                "measured_low": seen.low,
                "measured_high": seen.high,
                "relative_error": each.speedup.best / measured - 1,
                "inside": apart(each.speedup, seen) <= 1,
                "passes": len(cells),
                "replayed_rounds": sum(
                    float(rounds[each.gamma][n]) for one in sets for n in one.requests
                )
                / len(cells),
                "counted_rounds": sum(one.rounds or 0.0 for one in sets) / len(cells),
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
