"""``specsim.export``: the best draft lengths by load, in an inference engine's own words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, ClassVar

from specsim.acceptance import AcceptanceLaw, AlphaLike
from specsim.api.export_drafter import (
    check_draft_tensor,
    drafter_of,
    measured_lookups,
    method_of,
    tree_of,
)
from specsim.api.export_notes import (
    card_notes,
    law_notes,
    loaded_notes,
    lookup_notes,
    method_notes,
    one_length_notes,
    plan_notes,
    serving_notes,
)
from specsim.api.plan_file import planned_serving
from specsim.api.result import Result, Row
from specsim.batching.decision import decide
from specsim.batching.loaded import WithDrafterLoaded
from specsim.batching.point import DEFAULT_MARGIN, batch_point
from specsim.batching.schedule import Plan, plan
from specsim.batching.source import Source
from specsim.batching.workload import BatchWorkload, draft_length
from specsim.checks import InvalidArgumentError, UnsupportedError, integer, number, refuse
from specsim.deployment.deployment import Deployment
from specsim.deployment.drafters import KINDS, Parallel
from specsim.engines import (
    Deployed,
    Drafting,
    Engine,
    Method,
    Order,
    Schedule,
    Tree,
    engine_named,
    gamma_at,
    largest,
    merged,
    method_named,
)
from specsim.profiles import Mode

if TYPE_CHECKING:
    from specsim.api.plan_result import CapacityPlan

# Largest batch that is planned for where none is named.
_MOST = 256
# And at most, each batch on its own.
_LARGEST_BATCH = 100_000


@dataclass(frozen=True, kw_only=True)
class EngineConfiguration(Result):
    """What an engine should draft at every batch.

    engine : its name
    method : where its drafts come from
    text : what the engine reads; empty where speculation is better left off
    schedule : (first batch, last batch, gamma), both ends included, from batch 1 on
    acceptance_law : how the engine accepts drafts unless told otherwise
    read_at : the version of the engine whose declarations ``text`` follows
    """

    schema: ClassVar[str] = "specsim.export"

    engine: str
    method: Method
    text: str
    schedule: tuple[tuple[int, int, int], ...]
    acceptance_law: AcceptanceLaw
    read_at: str

    def rows(self) -> list[Row]:
        return [
            {"first_batch": first, "last_batch": last, "gamma": gamma}
            for first, last, gamma in self.schedule
        ]

    def summary(self) -> Row:
        return {
            "engine": self.engine,
            "method": self.method,
            "configuration": self.text or None,
            "acceptance_law": self.acceptance_law,
            "read_at": self.read_at,
        }


def export(
    engine: str,
    *,
    deployment: Deployment | None = None,
    profile: str | PathLike[str] | None = None,
    alpha: AlphaLike | None = None,
    temperature: float | None = None,
    mode: Mode | None = None,
    acceptance_law: AcceptanceLaw | None = None,
    context: int | None = None,
    most: int | None = None,
    batch: int | None = None,
    gamma_max: int | None = None,
    margin: float | None = None,
    method: Method | None = None,
    model: str | None = None,
    lookup_max: int | None = None,
    lookup_min: int | None = None,
    capacity_plan: CapacityPlan | str | PathLike[str] | None = None,
) -> EngineConfiguration:
    """What ``engine`` should draft at every batch, as its configuration wants it.

    engine : vllm, sglang, tensorrt-llm, llama.cpp or transformers
    deployment, profile, alpha, temperature, mode, acceptance_law, gamma_max, margin : as in
        ``optimize`` by load
    context : tokens in the cache of each request; by default the smallest of a profile, or beside a
        deployment those of ``capacity_plan`` in the mean, or 512
    most : largest batch to plan for, by default 256
    batch : where the engine takes one length for all batches, the one to plan it for; by default 1
    method : where drafts come from, with costs of a profile; by default as in an acceptance file,
        or draft_model.  A deployment's drafter says it itself
    model : the draft's name or path for the engine; by default as in the profile, for draft_model
    lookup_max, lookup_min : with ngram, the longest and the shortest run of tokens to look up;
        by default as in a profile of prompt lookup, else the engine's
    capacity_plan : of ``specsim.plan``, or its JSON: its schedule is written, up to its largest
        number of sequences, in place of the best one at one context; the deployment or profile that
        was planned for stands beside it

    An engine is started with one drafter and keeps it, so in a deployment a batch that drafts
    nothing costs what the engine makes of that, and what has no room beside the drafter is not
    planned.  Neighbouring batches have one length wherever that loses no batch more than a
    fifth of the margin, as a share of its best.
    Raises UnsupportedError where the engine does not have the method.
    """
    chosen = engine_named(engine)
    serving = None if capacity_plan is None else planned_serving(capacity_plan)
    if serving is not None and deployment is None and profile is None:
        raise InvalidArgumentError(
            "capacity_plan needs beside it what was planned for: target, drafter and accelerator, "
            "or a profile"
        )
    if serving is not None:
        refuse(
            {"most": most, "margin": margin},
            "has no meaning with capacity_plan, whose schedule is written as it is",
        )
        serving.check_same(deployment)
    margin = DEFAULT_MARGIN if margin is None else number("margin", margin, low=0.0)
    said = None if method is None else method_named(method)
    drafter = drafter_of(deployment)
    if drafter is not None:
        said = method_of(drafter, said)
    if deployment is not None and isinstance(drafter, Parallel) and said in KINDS:
        # Which has a price of its own.
        drafter = replace(drafter, kind=said)
        deployment = replace(deployment, drafters=(drafter,))
    source = Source(alpha, deployment, profile, temperature, mode, acceptance_law)
    workload = _only(source.workloads(draft_length("gamma_max", gamma_max)))
    method = said or workload.method or "draft_model"
    drafting, tree = _drafting(chosen, method, deployment)
    check_draft_tensor(chosen, deployment, drafter)
    if batch is not None and drafting.by_batch:
        raise InvalidArgumentError(
            f"batch has no meaning for {engine} with {method}, which takes a length for each batch"
        )
    lookup_max, lookup_min = measured_lookups(chosen, method, workload, lookup_max, lookup_min)
    lookups = _lookups(chosen, method, lookup_max=lookup_max, lookup_min=lookup_min)
    under_load = [] if serving is None else serving.schedule
    drafts = not under_load or largest(under_load) > 0
    draft = _draft_name(chosen, method, model, workload) if drafts else ""
    if context is None and serving is not None and deployment is not None:
        context = serving.context
    where = workload.contexts(None if context is None else [integer("context", context)])[0]
    served = _served(workload, deployment, drafting)
    if under_load and largest(under_load) > workload.gamma_max:
        raise InvalidArgumentError(
            f"gamma_max must be >= {largest(under_load)}, which the plan drafts, got "
            f"{workload.gamma_max}"
        )
    if under_load:
        most = under_load[-1][1]
    else:
        most = integer("most", _MOST if most is None else most, low=1, high=_LARGEST_BATCH)
    planned = plan(served, range(1, most + 1), where, margin=margin)
    if under_load:
        gains, schedule = any(gamma for _, _, gamma in under_load), under_load
    else:
        gains = _gains(workload, planned)
        schedule = planned.schedule if gains else merged([0] * planned.largest)
    best = None
    if gains and not drafting.by_batch and not under_load:
        # Ranges of a schedule pass over what is a little better at one batch.
        point = decide(served, batch or 1, where, margin).point
        best = point.gamma if point.pays(margin) else 0
    order = Order(
        schedule,
        drafting,
        draft,
        batch=batch or 1,
        best=best,
        lookup_max=lookup_max,
        lookup_min=lookup_min,
        tree=tree,
        modules=1 if deployment is None else max(deployment.shape.mtp_modules, 1),
        deployed=_deployed(deployment, served, planned, schedule),
    )
    if not gains:
        reason = f"speculation never gains {100 * margin:.3g}% or more here"
        if serving is not None:
            reason = f"{serving.name} drafts nothing"
        text, notes = "", [f"{reason}: leave it off"]
    elif not drafting.by_batch and not order.one_length:
        text, notes = "", [f"speculation does not pay at batch {order.batch}: leave it off"]
    else:
        configuration = chosen.write(order)
        text = configuration.text
        notes = [
            *lookup_notes(chosen, workload, lookup_max, lookup_min),
            *method_notes(method, workload, order.deployed, measured=alpha is None),
            *law_notes(chosen, drafting, workload),
            *configuration.notes,
            *(
                []
                if drafting.by_batch or chosen.one_request
                else one_length_notes(planned, schedule, order.one_length, bool(under_load))
            ),
            *loaded_notes(served, planned, schedule),
            *card_notes(chosen, order.deployed),
            *serving_notes(chosen, serving),
            f"written as {chosen.read_at} reads it",
        ]
    return EngineConfiguration(
        engine=engine,
        method=method,
        text=text,
        schedule=tuple(schedule),
        acceptance_law=drafting.acceptance_law,
        read_at=chosen.read_at,
        inputs={
            "engine": engine,
            **vars(source),
            "temperature": workload.temperature,
            "context": where,
            "most": most,
            "batch": batch,
            "gamma_max": workload.gamma_max,
            "margin": margin,
            "method": method,
            "model": draft,
            "under_load": under_load or None,
            **lookups,
        },
        warnings=(*plan_notes(workload, planned, schedule), *notes),
    )


def _drafting(
    chosen: Engine, method: Method, deployment: Deployment | None
) -> tuple[Drafting, Tree | None]:
    """How the engine does it in the deployment, and the tree that it drafts."""
    drafting = chosen.drafting(method)
    tree = tree_of(chosen, drafting, drafter_of(deployment))
    if tree is not None and drafting.tree is not None:
        return drafting.tree, tree
    if deployment is not None and not chosen.by_batch(deployment.parallel):
        return replace(drafting, by_batch=False), tree
    return drafting, tree


def _only(workloads: list[BatchWorkload]) -> BatchWorkload:
    """The only setting, as an engine is configured once."""
    if len(workloads) > 1:
        known = ", ".join(f"{each.temperature:g}" for each in workloads)
        raise InvalidArgumentError(f"temperature is missing, one of {known}")
    return workloads[0]


def _lookups(chosen: Engine, method: Method, **given: int | None) -> dict[str, int | None]:
    """The bounds of ngram's lookup, refused where they mean nothing."""
    for name, bound in given.items():
        if bound is None:
            continue
        if method != "ngram":
            raise InvalidArgumentError(f"{name} has no meaning with {method}, only with ngram")
        if name not in chosen.lookups:
            raise UnsupportedError(f"{name} cannot be told to {chosen.title}")
        integer(name, bound, low=1)
    longest, shortest = given["lookup_max"], given["lookup_min"]
    if longest is not None and shortest is not None and shortest > longest:
        raise InvalidArgumentError(
            f"lookup_min must be <= lookup_max, which is {longest}, got {shortest}"
        )
    return given


def _example(chosen: Engine, method: Method) -> str:
    """Of what an engine loads: a draft model, or a head that was trained for one target."""
    if chosen.title == "llama.cpp":
        return "draft.gguf"
    known = {
        "draft_model": "Qwen/Qwen3-0.6B",
        "eagle": "yuhuili/EAGLE-LLaMA3-Instruct-8B",
        "eagle3": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    }
    return known.get(method, "path/to/head")


def _draft_name(chosen: Engine, method: Method, model: str | None, workload: BatchWorkload) -> str:
    needed = chosen.drafting(method).model
    if needed == "none":
        if model is not None:
            raise InvalidArgumentError(
                f"model has no meaning for {chosen.title} with {method}: nothing is loaded by name"
            )
        return ""
    # The profile's draft is a model of its own; heads have another name.
    name = model or (workload.draft_name if method == "draft_model" else None)
    if not name and needed == "needed":
        raise InvalidArgumentError(
            f"model is missing: what {chosen.title} should load as the draft with {method}, by its "
            f"name on the Hub or its path, such as --model {_example(chosen, method)}"
        )
    return name or ""


def _served(
    workload: BatchWorkload, deployment: Deployment | None, drafting: Drafting
) -> BatchWorkload:
    """The same on a server that has the drafter loaded, where the costs tell what that is."""
    if deployment is None:
        return workload
    in_step = drafting.in_step and drafting.by_batch
    return replace(workload, cost=WithDrafterLoaded(workload.cost, in_step))


def _gains(workload: BatchWorkload, planned: Plan) -> bool:
    """Whether some batch gains the margin over the same server without a drafter."""
    for point in planned.points:
        if gamma := gamma_at(planned.schedule, point.batch):
            alone = batch_point(workload.gains, workload.cost, gamma, point.batch, planned.context)
            if alone.pays(planned.margin):
                return True
    return False


def _deployed(
    deployment: Deployment | None, served: BatchWorkload, planned: Plan, schedule: Schedule
) -> Deployed | None:
    if deployment is None:
        return None
    in_step = _in_step(served, planned, schedule)
    graph_tokens = deployment.efficiency.graph_tokens
    return Deployed(deployment.parallel, deployment.card.name, graph_tokens, in_step)


def _in_step(served: BatchWorkload, planned: Plan, schedule: Schedule) -> tuple[int, float] | None:
    """The batch without drafts that the loaded drafter costs most, and that over a plain step."""
    found = []
    for point in planned.points:
        if gamma_at(schedule, point.batch) == 0:
            loaded = served.cost.loaded_s(point.batch, planned.context)
            found.append((loaded / (point.spent.plain_step_s - loaded), point.batch))
    share, batch = max(found, default=(0.0, 0))
    return (batch, share) if share else None
