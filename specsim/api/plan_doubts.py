"""How sure a plan is, up to which load its drafts pay, and what binds there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from math import ceil, exp, isnan, log

from specsim.api.plan_ranking import rate_of_each
from specsim.api.plan_result import SELDOM, Answer, Sequences
from specsim.api.plan_setups import PlannedSetUp
from specsim.api.serving_doubts import beyond_graphs
from specsim.api.serving_error import known_speed
from specsim.batching.cost import CellUnavailableError, NoRoomError
from specsim.batching.decision import decide
from specsim.batching.losses import diagnose
from specsim.batching.parts import step_of
from specsim.checks import significant
from specsim.intervals import Interval
from specsim.serving.analytic.replica import Replica
from specsim.serving.arrivals import ScheduledArrivals
from specsim.serving.levels import ServiceLevel
from specsim.serving.planning.crossing import Crossing, binds_at, crossing
from specsim.serving.planning.sizing import replicas_needed, sustained
from specsim.serving.planning.span import STAYS, lasts, requests_wanted
from specsim.serving.workload import ServingWorkload
from specsim.serving.workload_summary import WorkloadSummary

# Of the capacity, for what has no law at all of it.
_FULL = 0.999

# As factors, with the 95 % interval; None where nobody knows.
Speed = Interval[float] | None

_WHY = {
    "cache": "the KV cache, of which the drafter and its drafts take their part, is full",
    "sequences": "all sequences are in use",
    "budget": "the token budget of a step, of which every request takes 1 + K, is used up",
    "graph": "steps with drafts are larger than the largest CUDA graph",
}


def _decoding(answer: Answer, rate: float) -> tuple[int, int]:
    """Requests that decode together in a replica, in the mean, >= 1, and what is drafted for each
    of so many.
    """
    replica = answer.planned.replica
    mean = replica.shared(_own_rate(answer, rate)).mean
    batch = max(1, round(mean))
    return batch, int(replica.gammas[min(batch, replica.gammas.size - 1)])


def _own_rate(answer: Answer, rate: float) -> float:
    """Of one replica, below its analytic capacity, for more than which prompts that are in the
    cache may leave room.
    """
    replica = answer.planned.replica
    return min(rate_of_each(rate, answer.replicas, replica), _FULL * replica.capacity)


def speed_of(planned: PlannedSetUp, answer: Answer, rate: float, context: int) -> Speed:
    """How much faster or slower it may be."""
    if not planned.speculates:
        return known_speed(planned.deployment, None, 0, 1, context, chosen=False)
    if planned.deployment is None and planned.source.profile is None:
        return None
    batch, gamma = _decoding(answer, rate)
    workload = planned.workload()
    return known_speed(planned.deployment, workload, gamma, batch, context, chosen=True)


def _slower(replica: Replica, factor: float) -> Replica:
    """The same at a speed of ``factor``."""
    times = replica.times
    return replace(
        replica,
        times=replace(
            times,
            decode_s=times.decode_s / factor,
            read_s=times.read_s / factor,
        ),
    )


def replicas_interval(
    best: Answer,
    rate: float,
    levels: Sequence[ServiceLevel],
    speed: Speed,
) -> Interval[float] | None:
    """At the ends of the speed: fewer where it is faster.  Simulation may have found that more are
    needed than analytically, or fewer, and is taken to do so at the ends by the same share.
    """
    if speed is None or not best.replicas or not best.sustained:
        return None
    analytic = replicas_needed(rate, best.sustained)
    ends = []
    for factor in (speed.high, speed.low):
        each = sustained(_slower(best.planned.replica, factor), levels)
        if each > 0:
            ends.append(float(ceil(replicas_needed(rate, each) * best.replicas / analytic)))
        else:
            ends.append(float("inf"))
    return Interval(min(ends[0], best.replicas), best.replicas, max(ends[1], best.replicas))


def sequences_of(best: Answer, rate: float) -> Sequences | None:
    """How many of them a replica needs; None beyond the capacity without a cache of prompts.

    A run that was simulated is too short for the moments of long outputs, and the analytic law has
    no bursts and no steps that are long because one before them was: whichever asks for more.
    """
    replica, setup = best.planned.replica, best.planned.setup
    own = rate_of_each(rate, best.replicas, replica)
    if own >= replica.capacity:
        return None
    fit = replica.times.cap
    all_in_use = replica.crowded(own, fit - 1)
    if all_in_use > SELDOM:
        return Sequences(fit, all_in_use)
    most = setup.engine.settings(setup.drafts).max_seqs
    held = bisect_left(range(fit), True, key=lambda most: replica.crowded(own, most) <= SELDOM)
    if best.settled is not None:
        held = max(held, int(best.settled.engine["running_p999"]))
    return Sequences(min(8 * ceil(max(held, 1) / 8), most), all_in_use)


def stops_paying(
    drafting: Replica, plain: Replica, speed: Speed, margin: float
) -> tuple[Crossing | None, Crossing | None, Crossing | None]:
    """At the low end of the speed, as predicted, and at the high end; against the margin."""
    least = 1.0 / (1.0 + margin)
    low, high = (speed.low, speed.high) if speed else (1.0, 1.0)
    found = [crossing(drafting, plain, least * factor) for factor in (low, 1.0, high)]
    return found[0], found[1], found[2]


def reason_at(
    drafting: Answer, plain: Answer, found: Crossing | None, context: int, margin: float
) -> tuple[str | None, str]:
    """What keeps drafts from gaining the margin there."""
    if found is None:
        return None, ""
    planned = drafting.planned
    graphs = None
    if planned.deployment is not None:
        graphs = planned.deployment.efficiency.graph_tokens
    limit = binds_at(planned.replica, plain.planned.replica, found, graphs)
    if limit is not None:
        return limit, _WHY[limit]
    if planned.deployment is None and planned.source.profile is None:
        return None, "a round costs as much as its tokens take in plain steps"
    workload = planned.workload()
    batch = max(1, round(found.batch))
    gammas = planned.replica.gammas
    gamma = int(gammas[min(batch, gammas.size - 1)]) or planned.drafts.gamma_max
    try:
        point = decide(workload, batch, context, 0.0, gamma).point
        here, alone = (
            step_of(workload.cost, each, batch, context, float(workload.gains.bonus[gamma]))
            for each in (gamma, 0)
        )
    except NoRoomError:
        return "cache", _WHY["cache"]
    except CellUnavailableError as why:
        return None, str(why)  # so many were not timed, whatever the cache holds
    reading = planned.replica.read_s(1) / plain.planned.replica.read_s(1)
    if point.pays(margin) and reading > 1.0:
        return "prompts", (
            f"prompts, whose reading takes {reading:.3g} times as long, as the drafter reads them "
            f"too: the rounds alone still gain {point.speedup:.3g} times"
        )
    said = diagnose(point, here, alone, float(workload.gains.tokens[1]) - 1.0, graphs)
    return said.reason, said.words


def error_budget(
    best: Answer, rate: float, context: int, levels: Sequence[ServiceLevel]
) -> dict[str, float | None]:
    """Half of 95 % intervals as shares: what acceptance and costs leave of the speedup of drafts at
    the mean batch, and chance of the figures that levels limit; None where nobody knows.
    """
    planned = best.planned
    found: dict[str, float | None] = {"acceptance": None, "cost": None, "sampling": None}
    if planned.deployment is not None:
        found["cost"] = planned.deployment.error
    if planned.speculates and (planned.deployment is not None or planned.source.profile):
        (batch, gamma), workload = _decoding(best, rate), planned.workload()
        if planned.deployment is None:
            found["cost"] = workload.basis.error(batch, context)
        ends = workload.gains_interval
        if ends is not None:
            low, high = (float(each.tokens[gamma]) for each in ends)
            found["acceptance"] = exp(log(high / low) / 2) - 1.0
    if best.settled is not None:
        widths = []
        for each in levels:
            value = best.settled.figures.get(each.name)
            if value is not None and value.high == value.high and value.best > 0:
                widths.append((value.high - value.low) / 2 / value.best)
        found["sampling"] = max(widths, default=None)
    return found


def warnings_of(workload: ServingWorkload, told: Sequence[Answer], rate: float) -> tuple[str, ...]:
    """Of the answer, which is first, and of what it is held against."""
    best = told[0]
    found = dict.fromkeys(workload.notes)
    kinds = list(dict.fromkeys(each.planned.accelerator for each in told))
    if best.price is None and len(kinds) > 1:
        prices = ",".join(f"{name}=..." for name in kinds)
        found[
            f"without prices fewer cards are the cheaper ones, of whatever kind: --price {prices}"
        ] = None
    for each in told:
        found |= dict.fromkeys(each.planned.warnings)
    arrivals = getattr(workload, "arrivals", None)
    if isinstance(arrivals, ScheduledArrivals):
        most = significant(max(arrivals.rates))
        found[
            f"the rate changes, up to {most} requests/s: what the analytic mode says, other rates, "
            f"{best.planned.setup.engine.limit} and where drafts stop paying are of its mean, "
            f"{significant(rate, 3)}"
        ] = None
    if best.replicas:
        planned, (batch, _) = best.planned, _decoding(best, rate)
        found |= dict.fromkeys(beyond_graphs(planned.setup, planned.deployment, batch))
    replica = best.planned.replica
    own = rate_of_each(rate, best.replicas, replica)
    # Beyond the capacity, which prompts in the cache may leave behind, doubts of the load are none.
    doubts = replica.at(own if own < replica.capacity else 1e-6 * replica.capacity).doubts
    found |= dict.fromkeys(f"analytic mode: {doubt}" for doubt in doubts)
    return tuple(found)


def too_short(summary: WorkloadSummary, rate: float, stay_s: float) -> tuple[str, ...]:
    """Whether requests come for too short a time to show what lasts, of which one stays so long."""
    if lasts(summary, stay_s):
        return ()
    within, stays = f"within {significant(summary.duration_s, 3)} s", significant(stay_s, 3)
    come = "at one moment" if isnan(summary.duration_s) else within
    return (
        f"the simulated requests come {come}, less than {STAYS} times the {stays} s that "
        "one stays: fewer replicas than the analytic mode asks for are not tried, and may be too "
        f"few yet; take {requests_wanted(rate, stay_s):,} requests",
    )
