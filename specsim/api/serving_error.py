"""How much faster or slower steps under load may be than they are taken for."""

from __future__ import annotations

from specsim.batching.decision import decide
from specsim.batching.workload import BatchWorkload
from specsim.checks import SpecsimError
from specsim.deployment.deployment import Deployment
from specsim.intervals import Interval


def known_speed(
    deployment: Deployment | None,
    workload: BatchWorkload | None,
    gamma: int,
    batch: int,
    context: float,
    *,
    chosen: bool,
) -> Interval[float] | None:
    """As a factor, 1 with its 95 % interval; None where nobody knows.

    With drafts it is that of their speedup over plain decoding, which both costs and acceptance
    leave open; without, what a fit says of a speedup on the kind of card that it was made on.  What
    plain steps and rounds have in common, as the machine of another day, is not in it.

    workload : what rounds gain and cost; None: nothing is drafted
    batch : requests that decode together, in the mean
    chosen : whether the length was taken as the best by the same costs, which flatters it, and not
        as somebody asked for it
    """
    if workload is None or not gamma:
        if deployment is None or deployment.error is None:
            return None
        return Interval(1.0 / (1.0 + deployment.error), 1.0, 1.0 + deployment.error)
    try:
        speedup = decide(workload, batch, context, 0.0, gamma).speedup
        best = decide(workload, batch, context, 0.0) if chosen else None
    except SpecsimError:
        return None
    if best is not None and best.point.gamma == gamma:
        speedup = best.speedup
    if speedup is None:
        return None
    return Interval(speedup.low / speedup.best, 1.0, speedup.high / speedup.best)
