"""How far off a speedup may be that rests on the step times of an engine.

Repeats of a timing differ, and servers of one configuration that are started again do: their steps
lie off the line in K that they have in common.  Steps that were timed once tell neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import expm1, log

import numpy as np

from specsim.batching.step_cost import StepLoadCost
from specsim.batching.workload import unknown_error
from specsim.checks import UnsupportedError
from specsim.counts.steps import PromptTime, StepTime, StreamedSteps
from specsim.intervals import sum_half_width
from specsim.predict.engine_sets import off_the_line

# Servers whose steps a speedup is a ratio of: with and without drafts, those that were timed and
# those that will run.
_SERVERS = 4


def step_error(
    cost: StepLoadCost,
    steps: Sequence[StepTime],
    prompts: Sequence[PromptTime],
    streamed: Sequence[StreamedSteps],
) -> Callable[[int, float], float | None]:
    """Half of the 95 % interval that the step times leave a speedup, as a share of it, at a batch
    and context; None where nothing was repeated, or a batch was not timed.

    cost : of all of them, at whole batches

    What repeats leave open is told by leaving out each in turn (the jackknife), in the mean over
    the draft lengths that were timed.  What machines do later is not in it.
    """
    repeats = {each.repeat for each in steps} | {each.repeat for each in streamed}
    if len(repeats) < 2 or None in repeats:
        return unknown_error
    try:
        without = [
            StepLoadCost.of(
                [each for each in steps if each.repeat != repeat],
                prompts,
                [each for each in streamed if each.repeat != repeat],
            )
            for repeat in sorted(each for each in repeats if each is not None)
        ]
        times = [
            [cost.timed_s(gamma, batch) / cost.timed_s(0, batch) for gamma in cost.drafted]
            for batch in cost.batches
        ]
    except UnsupportedError:  # some were not timed in all repeats, or at all batches
        return unknown_error
    off, freedom = off_the_line(cost.drafted, np.array(times))

    @cache
    def error(batch: int, context: float) -> float | None:
        def ratio(cost: StepLoadCost, gamma: int) -> float:
            return log(cost.verify_s(gamma, batch, context) / cost.verify_s(0, batch, context))

        try:
            logs = np.array([[ratio(each, gamma) for gamma in cost.drafted] for each in without])
        except UnsupportedError:
            return None
        # The jackknife's variance of a mean of R: (R - 1) / R times the sum of squares.
        of_repeats = (len(logs) - 1) * float(logs.var(axis=0).mean())
        return expm1(sum_half_width([(of_repeats, len(logs) - 1), (_SERVERS * off, freedom)]))

    return error
