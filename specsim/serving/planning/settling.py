"""The set-ups that the analytic mode ranks first, simulated with the same requests and luck."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from specsim.intervals import Interval
from specsim.serving.levels import ServiceLevel
from specsim.serving.metrics import measure
from specsim.serving.planning.sizing import slack
from specsim.serving.service import SetUp, engine_figures, serve_requests
from specsim.serving.spread import intervals, widened
from specsim.serving.workload import ServingWorkload, serving_seed

# The engine starts empty, and requests that find it so see less than they would later.
WARMUP = 0.1
# So many times as many replicas as the analytic mode asks for, and so many more, are tried: it
# takes the mean rate, and a rate that changes, or bursts, may need several times as many.
_MOST_TIMES, _MORE = 8, 4


@dataclass(frozen=True, eq=False)
class Settled:
    """A set-up as it was simulated.

    replicas : of the set-up
    figures : latencies, throughput and goodput, each with its 95 % interval
    engine : what the engine did, such as ``preemptions`` and ``cache_peak``
    met : whether the levels are met, and the queue did not grow without end
    speed : as a factor, 1 with its 95 % interval, how much faster or slower steps may be, where the
        intervals of ``figures`` hold that, too; None: they are of chance alone
    """

    replicas: int
    figures: Mapping[str, Interval[float]]
    engine: Mapping[str, float]
    met: bool
    speed: Interval[float] | None = None

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
    figures = intervals([measure(served.times, levels, WARMUP, resample=True)])
    best = {name: each.best for name, each in figures.items()}
    return Settled(
        replicas=setup.replicas,
        figures=figures,
        engine=engine_figures(served, setup),
        met=slack(best, levels) <= 1.0 and not served.queue_grew,
    )


def with_errors(
    settled: Settled, speed: Interval[float], simulated: Callable[[float], Settled]
) -> Settled:
    """The same with intervals that hold both ends of what steps may take.

    speed : as in ``Settled``
    simulated : the set-up, its requests and luck, with steps that are so much faster
    """
    ends = [simulated(each).best() for each in (speed.low, speed.high)]
    return replace(settled, figures=widened(settled.figures, settled.best(), ends), speed=speed)


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

    Where none of them does up to eight times ``wanted``, and four more, the last one is first.
    More replicas are taken to meet whatever fewer do: steps grow with the distance from ``wanted``,
    and halves find the place between.
    """
    tried: dict[int, Settled] = {}

    def at(replicas: int) -> Settled:
        if replicas not in tried:
            tried[replicas] = simulated(replace(setup, replicas=replicas))
        return tried[replicas]

    few, enough = wanted, wanted
    if at(wanted).met:
        few = max(wanted - 1, least - 1)
        while few >= least and at(few).met:
            enough = few
            few = max(few - max(1, (wanted - few) // 2), least - 1)
    else:
        most = _MOST_TIMES * wanted + _MORE
        enough = wanted + 1
        while enough < most and not at(enough).met:
            few = enough
            enough = min(2 * enough - wanted, most)
        if not at(enough).met:
            few = enough
    while enough - few > 1:
        middle = (few + enough) // 2
        if at(middle).met:
            enough = middle
        else:
            few = middle
    return [tried.pop(enough), *(tried[each] for each in sorted(tried))]
