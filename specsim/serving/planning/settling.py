"""The set-ups that the analytic mode ranks first, simulated with the same requests and luck."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from specsim.intervals import Interval
from specsim.serving.levels import ServiceLevel
from specsim.serving.metrics import measure
from specsim.serving.planning.sizing import slack
from specsim.serving.service import SetUp, engine_figures, serve_requests
from specsim.serving.spread import intervals
from specsim.serving.workload import ServingWorkload, serving_seed

# The engine starts empty, and requests that find it so see less than they would later.
WARMUP = 0.1
# Replicas beyond those that the analytic mode asks for that are tried.
_MORE = 4


@dataclass(frozen=True, eq=False)
class Settled:
    """A set-up as it was simulated.

    replicas : of the set-up
    figures : latencies, throughput and goodput, each with its 95 % interval
    engine : what the engine did, such as ``preemptions`` and ``cache_peak``
    met : whether the levels are met, and the queue did not grow without end
    """

    replicas: int
    figures: Mapping[str, Interval[float]]
    engine: Mapping[str, float]
    met: bool

    def best(self) -> dict[str, float]:
        """The figures without their intervals."""
        return {name: each.best for name, each in self.figures.items()}


def simulate(
    setup: SetUp, workload: ServingWorkload, levels: Sequence[ServiceLevel], seed: int
) -> Settled:
    """The set-up under the workload, once; its intervals are of batches of requests."""
    served = serve_requests(
        setup,
        workload.draw(seed),
        seed=serving_seed(seed, 0),
        keep=("steps", "rounds"),
    )
    figures = intervals([measure(served.times, levels, WARMUP)])
    best = {name: each.best for name, each in figures.items()}
    return Settled(
        replicas=setup.replicas,
        figures=figures,
        engine=engine_figures(served, setup),
        met=slack(best, levels) <= 1.0 and not served.queue_grew,
    )


def settle(
    setup: SetUp,
    wanted: int,
    least: int,
    simulated: Callable[[SetUp], Settled],
) -> list[Settled]:
    """The fewest replicas that meet the levels in simulation, first, and what else was tried.

    wanted : replicas that the analytic mode asks for
    least : fewer have less capacity than is asked for
    simulated : what ``simulate`` finds of a set-up

    Where none of them does up to four more than ``wanted``, the last one is first.
    """
    tried: dict[int, Settled] = {}

    def at(replicas: int) -> Settled:
        if replicas not in tried:
            tried[replicas] = simulated(replace(setup, replicas=replicas))
        return tried[replicas]

    count = wanted
    if at(count).met:
        while count > least and at(count - 1).met:
            count -= 1
    else:
        while not at(count).met and count < wanted + _MORE:
            count += 1
    return [tried.pop(count), *(tried[each] for each in sorted(tried))]
