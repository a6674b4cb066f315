"""``specsim.export``: the best draft lengths by load, in an inference engine's own words."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import ClassVar

from specsim.acceptance import AlphaLike
from specsim.api.by_load import extrapolated
from specsim.api.result import Result, Row
from specsim.batching.point import MARGIN
from specsim.batching.schedule import Plan, plan
from specsim.batching.workload import BatchWorkload, Shapes, Source
from specsim.checks import InvalidArgumentError, integer
from specsim.engines import Engine, Schedule, engine_named, gamma_at, largest, merged
from specsim.profiles import Mode

# Largest batch that is planned for where none is named.
_MOST = 256


@dataclass(frozen=True, kw_only=True)
class EngineConfiguration(Result):
    """What an engine should draft at every batch.

    engine : its name
    text : what the engine reads; empty where speculation is better left off
    schedule : (first batch, last batch, gamma), both ends included, from batch 1 on
    """

    schema: ClassVar[str] = "specsim.export"

    engine: str
    text: str
    schedule: tuple[tuple[int, int, int], ...]

    def rows(self) -> list[Row]:
        return [
            {"first_batch": first, "last_batch": last, "gamma": gamma}
            for first, last, gamma in self.schedule
        ]

    def summary(self) -> Row:
        return {"engine": self.engine, "configuration": self.text or None}


def export(
    engine: str,
    *,
    shapes: Shapes | None = None,
    profile: str | PathLike[str] | None = None,
    alpha: AlphaLike | None = None,
    temperature: float | None = None,
    mode: Mode | None = None,
    context: int | None = None,
    most: int = _MOST,
    batch: int | None = None,
    gamma_max: int | None = None,
    model: str | None = None,
) -> EngineConfiguration:
    """What ``engine`` should draft at every batch, as its configuration wants it.

    engine : vllm, sglang, tensorrt-llm, llama.cpp or transformers
    shapes, profile, alpha, temperature, mode, gamma_max : as in ``optimize`` by load
    context : tokens in the cache of each request; the smallest of a profile, or 512, by default
    most : largest batch to plan for
    batch : where the engine takes one length for all batches, the one to plan it for; by default 1
    model : the draft's name or path for the engine; by default as in the profile
    """
    chosen = engine_named(engine)
    if batch is not None and not chosen.one_batch:
        raise InvalidArgumentError(
            f"batch has no meaning for {engine}, which takes a length for each batch"
        )
    source = Source(alpha, shapes, profile, temperature, mode)
    workload = _only(source.workloads(gamma_max))
    draft = _draft_name(engine, chosen, model, workload)
    where = workload.contexts(None if context is None else [integer("context", context)])[0]
    planned = plan(workload, range(1, integer("most", most, low=1) + 1), where)
    schedule = _schedule(planned)
    at = batch or 1
    if not largest(schedule):
        text, notes = "", [f"speculation never gains {MARGIN:.0%} or more here: leave it off"]
    elif chosen.one_batch and not gamma_at(schedule, at):
        text, notes = "", [f"speculation does not pay at batch {at}: leave it off"]
    else:
        configuration = chosen.write(schedule, draft, at)
        text, notes = configuration.text, list(configuration.notes)
    return EngineConfiguration(
        engine=engine,
        text=text,
        schedule=tuple(schedule),
        inputs={
            "engine": engine,
            **vars(source),
            "temperature": workload.temperature,
            "context": where,
            "most": most,
            "batch": batch,
            "gamma_max": workload.gamma_max,
            "model": draft,
        },
        warnings=(*_notes(workload, planned), *notes),
    )


def _only(workloads: list[BatchWorkload]) -> BatchWorkload:
    """The only setting, as an engine is configured once."""
    if len(workloads) > 1:
        known = ", ".join(f"{each.temperature:g}" for each in workloads)
        raise InvalidArgumentError(f"temperature is missing, one of {known}")
    return workloads[0]


def _draft_name(engine: str, chosen: Engine, model: str | None, workload: BatchWorkload) -> str:
    if not chosen.names_draft:
        if model is not None:
            raise InvalidArgumentError(
                f"model has no meaning for {engine}, whose assistant is an object"
            )
        return ""
    name = model or workload.draft_name
    if not name:
        raise InvalidArgumentError(f"model is missing: what {engine} should load as the draft")
    return name


def _schedule(planned: Plan) -> Schedule:
    """A draft length for every batch, 0 where the best gains less than the margin."""
    gammas: list[int] = []
    for span in planned.spans:
        gamma = span.first.gamma if span.first.pays else 0
        gammas += [gamma] * (span.last.batch - span.first.batch + 1)
    return merged(gammas)


def _notes(workload: BatchWorkload, planned: Plan) -> list[str]:
    notes = [*workload.doubts]
    if planned.missing:
        notes.append(f"not planned from batch {planned.missing[0]:,} on: {planned.why_missing}")
    notes.append(f"planned for batch 1 to {planned.largest:,} at context {planned.context:,}")
    if outside := extrapolated(workload, planned.points):
        notes.append(outside)
    return notes
