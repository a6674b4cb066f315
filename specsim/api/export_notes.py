"""What ``specsim.export`` says beside a configuration: what was planned, and what it left out."""

from __future__ import annotations

from specsim.api.by_load import extrapolated
from specsim.api.plan_file import PlannedServing
from specsim.batching.decision import Decision
from specsim.batching.loaded import WithDrafterLoaded
from specsim.batching.schedule import Plan, ranges
from specsim.batching.serving import CardCost
from specsim.batching.step_cost import StepLoadCost
from specsim.batching.workload import BatchWorkload
from specsim.engines import (
    ENGINES,
    Deployed,
    Drafting,
    Engine,
    Method,
    Schedule,
    gamma_at,
    largest,
)

# Share of a speedup below which it is not worth a word that another draft length were better.
_REGRET = 0.01
_LAW = {
    "ratio-test": "samples drafts and accepts them with the ratio test",
    "greedy-drafts": "drafts greedily and accepts a draft with its probability in the target",
    "exact-match": "samples drafts and accepts those that the target samples too",
}


def plan_notes(workload: BatchWorkload, planned: Plan, schedule: Schedule) -> list[str]:
    """What was planned for, and how far acceptance and costs went from what is known."""
    lengths = sorted({gamma for _, _, gamma in schedule})
    carried = dict.fromkeys(line for gamma in lengths for line in workload.notes(gamma))
    notes = [*workload.doubts, *carried]
    if planned.missing:
        beside = f"not planned from batch {planned.missing[0]:,} on: {planned.why_missing}"
        if isinstance(workload.cost, CardCost):
            _, alone = workload.cost.room(planned.context, 1)
            beside += f", without the drafter for {alone:,}"
        notes.append(beside)
    notes.append(
        f"planned for batch 1 to {planned.largest:,} at context {planned.context:,}: "
        f"{workload.basis.of_times}"
    )
    if largest(schedule) and schedule == planned.schedule and planned.is_sure is False:
        notes.append(planned.sentence)
    regrets = [each.regret or 0.0 for each in planned.decisions]
    if largest(schedule) and max(regrets) >= _REGRET:
        notes.append(
            f"if the acceptance rate is 0.05 off, the best draft length of a batch loses up to "
            f"{max(regrets):.1%} against what is best then"
        )
    if outside := extrapolated(workload, planned.points):
        notes.append(outside)
    return notes


def loaded_notes(served: BatchWorkload, planned: Plan, schedule: Schedule) -> list[str]:
    """Where drafts pay only because the drafter is loaded, and costs something without drafts too:
    a plan that may do without it has none there.

    served, planned : with the drafter loaded
    """
    cost = served.cost
    if not isinstance(cost, WithDrafterLoaded):
        return []
    shares = {}
    for decision in planned.decisions:
        if not gamma_at(schedule, decision.batch):
            continue
        loaded = cost.loaded_s(decision.batch, planned.context)
        step = decision.point.spent.plain_step_s
        drafted = max(point.speedup for point in decision.points if point.gamma)
        if drafted * (step - loaded) / step < 1.0 + planned.margin:
            shares[decision.batch] = loaded / (step - loaded)
    if not shares:
        return []
    return [
        f"a drafter that is loaded anyway costs up to {max(shares.values()):.1%} of a plain step "
        f"at draft length 0, and drafts need only beat that: at batch {ranges(list(shares))} they "
        f"gain less than {100 * planned.margin:.3g}% over a server without a drafter, where "
        "specsim optimize says off"
    ]


def one_length_notes(planned: Plan, schedule: Schedule, length: int, under_load: bool) -> list[str]:
    """What the one draft length of all batches gives at the largest planned.

    under_load : whether the schedule is of a plan, or else that of what is best at each batch
    """
    best = planned.decisions[-1].point.gamma
    if under_load:
        best = gamma_at(schedule, planned.largest)
    if length == best:
        return []
    decision = planned.decisions[-1]
    points = decision.points
    where = f"at batch {planned.largest:,}"
    if length < len(points):
        gives = f"{where} draft length {length} gives {_times(decision, length)}"
    else:
        gives = f"{where} there is no room for draft length {length}"
    # A plan under load may draft where no request of this context has room for it.
    if best >= len(points):
        other = f"{best} is planned"
    else:
        other = f"{best} would give {_times(decision, best)}" if best else "none is better"
    return [f"{gives}, where {other}; --batch says for which batch"]


def _times(decision: Decision, gamma: int) -> str:
    """The speedup of a draft length, with the interval where one is known."""
    known = decision.speedup_with(gamma)
    interval = "" if known is None else f" ({known.low:.2f} to {known.high:.2f})"
    return f"{decision.points[gamma].speedup:.2f}x{interval}"


def law_notes(chosen: Engine, drafting: Drafting, workload: BatchWorkload) -> list[str]:
    """How the engine accepts drafts, and whether that was planned; at temperature 0 all is one."""
    if workload.temperature == 0:
        return []
    said = f"{chosen.title} {_LAW[drafting.acceptance_law]} ({drafting.acceptance_law})"
    planned = workload.acceptance_law
    if planned == drafting.acceptance_law:
        return [f"{said}, as was planned"]
    flag = drafting.ratio_test
    if planned is None:
        unless = f", unless told {flag} (ratio-test)" if flag else ""
        return [
            f"{said}, also above temperature 0{unless}: acceptance must have been measured in the "
            "same way"
        ]
    ways = [
        f"plan with --acceptance-law {drafting.acceptance_law}, after calibrate --acceptance-law "
        f"{drafting.acceptance_law} where the trace is too old to tell"
    ]
    if flag and planned == "ratio-test":
        ways.append(f"tell {chosen.title} {flag}")
    return [
        f"{said}, and this is planned for {planned}, which above temperature 0 accepts otherwise: "
        f"{', or '.join(ways)}"
    ]


def method_notes(
    method: Method, workload: BatchWorkload, deployed: Deployed | None, measured: bool
) -> list[str]:
    """Where acceptance or costs are those of another method.

    deployed : what was priced; its drafter has its own costs.  None: costs are a profile's
    measured : acceptance is a profile's
    """
    known, timed, notes = workload.method, isinstance(workload.cost, StepLoadCost), []
    if known not in (None, method):
        of_others = (
            f"acceptance and step times of {known}, which are not those"
            if timed
            else f"acceptance of {known}, which is not that"
        )
        notes.append(f"planned with the {of_others} of {method}")
    if deployed is None and method != "draft_model" and known is None:
        of_pair = "acceptance and costs" if measured else "costs"
        notes.append(
            f"planned with the {of_pair} of a draft model that runs once for each draft token, "
            f"which are not those of {method}"
        )
    if method == "dflash":
        notes.append(
            "a DFlash drafter accepts differently at another length than it was trained for"
        )
    return notes


def lookup_notes(
    chosen: Engine, workload: BatchWorkload, lookup_max: int | None, lookup_min: int | None
) -> list[str]:
    """How the lookup that was measured matches, where the engine's may match otherwise."""
    longest = workload.longest_match
    if longest is None:
        return []
    notes = [
        f"measured with matches of 1 to {longest} tokens, the longest one first and of several the "
        f"leftmost; {chosen.title} may take another of several"
    ]
    bounds = {"lookup_max": (lookup_max, longest), "lookup_min": (lookup_min, 1)}
    other = [
        f"{name} {'as by default' if asked is None else asked}"
        for name, (asked, known) in bounds.items()
        if asked != known
    ]
    return [*notes, f"{chosen.title} matches with {', '.join(other)}"] if other else notes


def card_notes(chosen: Engine, deployed: Deployed | None) -> list[str]:
    """How the engine is told what was priced: it is started with its own options for that."""
    if deployed is None or deployed.parallel.cards == 1:
        return []
    parallel = deployed.parallel
    if words := chosen.degrees(parallel):
        return [f"planned for {parallel.cards} cards; start {chosen.title} with {words}"]
    degrees = ", ".join(f"{name} {degree}" for name, degree in vars(parallel).items() if degree > 1)
    return [
        f"planned for {parallel.cards} cards ({degrees}), degrees that {chosen.title} does not take"
    ]


def serving_notes(chosen: Engine, serving: PlannedServing | None) -> list[str]:
    """How many requests the engine should serve at a time, which it is told beside all this, and
    whether another one was planned with.
    """
    if serving is None:
        return []
    notes = []
    if serving.max_num_seqs is not None and chosen.most_requests is not None:
        most = serving.max_num_seqs
        notes = [f"planned for up to {most:,} requests at a time: {chosen.most_requests} {most}"]
    other = ENGINES.get(serving.engine or "")
    if other is not None and other is not chosen:
        notes.append(
            f"planned with the scheduler of {other.title}: {chosen.title} puts other requests "
            "into a step"
        )
    return notes
