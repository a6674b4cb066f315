"""``specsim.export``: the best draft lengths by load, in an inference engine's own words."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import ClassVar

from specsim.acceptance import AcceptanceLaw, AlphaLike
from specsim.api.by_load import extrapolated
from specsim.api.result import Result, Row
from specsim.batching.point import MARGIN, points_of_cell
from specsim.batching.schedule import Plan, plan
from specsim.batching.source import Source
from specsim.batching.step_cost import StepLoadCost
from specsim.batching.workload import BatchWorkload
from specsim.checks import InvalidArgumentError, UnsupportedError, integer
from specsim.deployment.deployment import Deployment
from specsim.engines import (
    Drafting,
    Engine,
    Method,
    Order,
    Schedule,
    engine_named,
    fewest_ranges,
    gamma_at,
    largest,
    merged,
)
from specsim.profiles import Mode

# Largest batch that is planned for where none is named.
_MOST = 256


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
    most: int = _MOST,
    batch: int | None = None,
    gamma_max: int | None = None,
    method: Method | None = None,
    model: str | None = None,
    lookup_max: int | None = None,
    lookup_min: int | None = None,
) -> EngineConfiguration:
    """What ``engine`` should draft at every batch, as its configuration wants it.

    engine : vllm, sglang, tensorrt-llm, llama.cpp or transformers
    deployment, profile, alpha, temperature, mode, acceptance_law, gamma_max : as in ``optimize`` by
        load
    context : tokens in the cache of each request; the smallest of a profile, or 512, by default
    most : largest batch to plan for
    batch : where the engine takes one length for all batches, the one to plan it for; by default 1
    method : draft_model, eagle3, mtp, dflash, ngram or suffix; costs are those given, whatever it;
        by default as in an acceptance file, or draft_model
    model : the draft's name or path for the engine; by default as in the profile, for draft_model
    lookup_max, lookup_min : with ngram, the longest and the shortest run of tokens to look up;
        by default the engine's

    Neighbouring batches have one length wherever that loses no batch more than MARGIN of its best.
    Raises UnsupportedError where the engine does not have the method.
    """
    chosen = engine_named(engine)
    source = Source(alpha, deployment, profile, temperature, mode, acceptance_law)
    workload = _only(source.workloads(gamma_max))
    method = method or workload.method or "draft_model"
    drafting = chosen.drafting(method)
    if batch is not None and drafting.by_batch:
        raise InvalidArgumentError(
            f"batch has no meaning for {engine} with {method}, which takes a length for each batch"
        )
    lookups = _lookups(chosen, method, lookup_max=lookup_max, lookup_min=lookup_min)
    draft = _draft_name(chosen, method, model, workload)
    where = workload.contexts(None if context is None else [integer("context", context)])[0]
    planned = plan(workload, range(1, integer("most", most, low=1) + 1), where)
    schedule = _schedule(workload, planned)
    at = batch or 1
    if not largest(schedule):
        text, notes = "", [f"speculation never gains {MARGIN:.0%} or more here: leave it off"]
    elif not drafting.by_batch and not gamma_at(schedule, at):
        text, notes = "", [f"speculation does not pay at batch {at}: leave it off"]
    else:
        configuration = chosen.write(Order(schedule, drafting, draft, at, **lookups))
        text = configuration.text
        notes = [
            *_method_notes(method, workload, measured=alpha is None),
            *_law_notes(chosen, drafting, workload),
            *configuration.notes,
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
            "method": method,
            "model": draft,
            **lookups,
        },
        warnings=(*_notes(workload, planned), *notes),
    )


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
            f"model is missing: what {chosen.title} should load as the draft with {method}"
        )
    return name or ""


def _schedule(workload: BatchWorkload, planned: Plan) -> Schedule:
    """A draft length for every batch, 0 where the best gains less than the margin."""
    looked_at = [point.batch for point in planned.points]
    speedups = [
        [
            point.speedup
            for point in points_of_cell(
                workload.gains, workload.cost, batch, planned.context, workload.gamma_max
            )
        ]
        for batch in looked_at
    ]
    # Batches that were not looked at lie between two that decide alike.
    ends = [*looked_at[1:], planned.largest + 1]
    gammas: list[int] = []
    for batch, end, gamma in zip(looked_at, ends, fewest_ranges(speedups, MARGIN), strict=True):
        gammas += [gamma] * (end - batch)
    return merged(gammas)


_LAW = {
    "ratio-test": "samples drafts and accepts them with the ratio test",
    "greedy-drafts": "drafts greedily and accepts a draft with its probability in the target",
    "exact-match": "samples drafts and accepts those that the target samples too",
}


def _law_notes(chosen: Engine, drafting: Drafting, workload: BatchWorkload) -> list[str]:
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


def _method_notes(method: Method, workload: BatchWorkload, measured: bool) -> list[str]:
    """What a draft model's plan leaves out; ``measured``: its acceptance is a profile's."""
    known, timed, notes = workload.method, isinstance(workload.cost, StepLoadCost), []
    if known not in (None, method):
        notes.append(
            f"planned with the acceptance{' and step times' if timed else ''} of {known}, which "
            f"are not those of {method}"
        )
    if method == "draft_model" or (known is not None and timed):
        return notes
    of_pair = "acceptance and costs" if measured and known is None else "costs"
    notes.append(
        f"planned with the {of_pair} of a draft model that runs once for each draft token, which "
        f"are not those of {method}"
    )
    if method == "dflash":
        notes.append(
            "a DFlash drafter accepts differently at another length than it was trained for"
        )
    return notes


def _notes(workload: BatchWorkload, planned: Plan) -> list[str]:
    lengths = sorted({span.first.gamma for span in planned.spans})
    carried = dict.fromkeys(line for gamma in lengths for line in workload.notes(gamma))
    notes = [*workload.doubts, *carried]
    if planned.missing:
        notes.append(f"not planned from batch {planned.missing[0]:,} on: {planned.why_missing}")
    notes.append(f"planned for batch 1 to {planned.largest:,} at context {planned.context:,}")
    if outside := extrapolated(workload, planned.points):
        notes.append(outside)
    return notes
