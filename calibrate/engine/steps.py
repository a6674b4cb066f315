"""Step times of an engine, from sets of requests that were timed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrate.engine.asked import Asked
from calibrate.engine.rounds import RoundsOfSet
from calibrate.engine.sets import TimedSet
from specsim.counts.steps import StepTime
from specsim.predict.engine_sets import rounds_at_batches, step_seconds


def step_times(
    repeats: Sequence[Sequence[TimedSet]],
    asked: Asked,
    rounds: RoundsOfSet,
) -> list[StepTime]:
    """A row for every repeat, draft length and batch.

    rounds : of a set (``calibrate.engine.rounds``)
    """
    found = []
    for number, sets in enumerate(repeats):
        for gamma in sorted({each.gamma for each in sets}):
            of_gamma = [each for each in sets if each.gamma == gamma]
            found += _of_gamma(number, gamma, of_gamma, asked, rounds)
    return found


def _of_gamma(
    repeat: int, gamma: int, sets: Sequence[TimedSet], asked: Asked, rounds: RoundsOfSet
) -> list[StepTime]:
    batches = sorted({each.batch for each in sets})
    by_batch = [[each for each in sets if each.batch == batch] for batch in batches]
    counts = np.array(
        [sum(rounds_at_batches(rounds(each), batches) for each in same) for same in by_batch]
    )
    decode_s = np.array([sum(each.seconds - each.first_s for each in same) for same in by_batch])
    return [
        StepTime(
            gamma=gamma,
            batch=batch,
            seconds=float(seconds),
            steps=float(count.sum()),
            context=_mean_context(same, asked),
            repeat=repeat,
            first_s=sum(each.first_s for each in same) / len(same),
        )
        for batch, same, seconds, count in zip(
            batches, by_batch, step_seconds(decode_s, counts), counts, strict=True
        )
    ]


def _mean_context(sets: Sequence[TimedSet], asked: Asked) -> float:
    """Tokens in the cache of a request halfway through its output."""
    sizes = [
        len(asked.prompts[number]) + asked.tokens[number] / 2
        for each in sets
        for number in each.requests
    ]
    return sum(sizes) / len(sizes)
