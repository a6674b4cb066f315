"""Step times of an engine, from sets of requests that were timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.engine.asked import Asked
from calibrate.engine.rounds import RoundsOfSet
from calibrate.engine.sets import TimedSet
from specsim.checks import Floats, UnsupportedError
from specsim.counts.steps import StepTime
from specsim.predict.engine_sets import rounds_at_batches, step_seconds


def step_times(
    repeats: Sequence[Sequence[TimedSet]],
    asked: Asked,
    rounds: RoundsOfSet,
) -> list[StepTime]:
    """A row for every repeat, draft length and batch.

    Larger sets shrink, so that what they took is shared out between steps of their own batch and
    those of smaller ones.  Where nothing is left for its own in some repeat, the batch is left out
    as if it had not been timed: of all repeats and draft lengths, whose ratios need one another.

    rounds : of a set (``calibrate.engine.rounds``)

    Raises UnsupportedError where no batch is left.
    """
    lines = [
        _Line(number, gamma, [(each, rounds(each)) for each in sets if each.gamma == gamma])
        for number, sets in enumerate(repeats)
        for gamma in sorted({each.gamma for each in sets})
    ]
    timed = sorted({each.batch for sets in repeats for each in sets})
    batches = list(timed)
    while batches:
        solved = [line.solved(batches) for line in lines]
        shortest = np.min([seconds for seconds, _ in solved], axis=0)
        if (shortest > 0).all():
            return [
                row
                for line, (seconds, steps) in zip(lines, solved, strict=True)
                for row in line.rows(batches, seconds, steps, asked)
            ]
        # Those of larger batches follow from it.
        batches.pop(int(np.argmax(shortest <= 0)))
    raise UnsupportedError(
        f"sets of {', '.join(map(str, timed))} requests took no longer than until their first "
        "tokens, so that no step is known; time another batch, or requests with more tokens"
    )


def batch_warnings(timed: Sequence[int], times: Sequence[StepTime]) -> list[str]:
    """What to know of the batches of sets.

    timed : batches of the sets
    times : of ``step_times``
    """
    known = {round(each.batch) for each in times}
    found = [
        f"batch {batch} is left out of the steps of sets: in some repeat its sets were over sooner "
        "than steps of the other batches explain; time it with more repeats, or another batch"
        for batch in timed
        if batch not in known
    ]
    if (least := min(known)) > 1:
        found.append(
            f"steps of fewer than {least} requests were timed in no sets: where fewer are left of "
            f"a set, a step counts as one of {least}, which then looks shorter than it is; time "
            "batch 1, too"
        )
    return found


@dataclass(frozen=True)
class _Line:
    """Sets of one repeat and draft length, with the rounds of each."""

    repeat: int
    gamma: int
    sets: Sequence[tuple[TimedSet, Floats]]

    def solved(self, batches: Sequence[int]) -> tuple[Floats, Floats]:
        """Seconds of a step of each batch, and how many steps were timed in its sets, shapes (J,);
        of sets of other batches nothing is known.
        """
        counts = np.array(
            [
                sum(
                    rounds_at_batches(rounds, batches)
                    for each, rounds in self.sets
                    if each.batch == batch
                )
                for batch in batches
            ]
        )
        decode_s = np.array(
            [sum(each.seconds - each.first_s for each in self._of(batch)) for batch in batches]
        )
        return step_seconds(decode_s, counts), counts.sum(axis=1)

    def rows(
        self, batches: Sequence[int], seconds: Floats, steps: Floats, asked: Asked
    ) -> list[StepTime]:
        """Of each batch."""
        found = []
        for place, batch in enumerate(batches):
            same = self._of(batch)
            found.append(
                StepTime(
                    gamma=self.gamma,
                    batch=batch,
                    seconds=float(seconds[place]),
                    steps=float(steps[place]),
                    context=_mean_context(same, asked),
                    repeat=self.repeat,
                    first_s=sum(each.first_s for each in same) / len(same),
                )
            )
        return found

    def _of(self, batch: int) -> list[TimedSet]:
        return [each for each, _ in self.sets if each.batch == batch]


def _mean_context(sets: Sequence[TimedSet], asked: Asked) -> float:
    """Tokens in the cache of a request halfway through its output."""
    sizes = [
        len(asked.prompts[number]) + asked.tokens[number] / 2
        for each in sets
        for number in each.requests
    ]
    return sum(sizes) / len(sizes)
