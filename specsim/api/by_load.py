"""Decisions by load: the best draft length of every batch and context, and where it pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from specsim.api.result import LeftOut, Result, Row
from specsim.batching.cost import CellUnavailableError
from specsim.batching.point import MARGIN, BatchPoint
from specsim.batching.schedule import EVERY, Plan, Span, plan, ranges
from specsim.batching.source import Source
from specsim.batching.workload import BatchWorkload, Load


@dataclass(frozen=True)
class PlannedWorkload:
    """One sampling setting and its plans, one for each context."""

    workload: BatchWorkload
    plans: tuple[Plan, ...]

    @property
    def points(self) -> list[BatchPoint]:
        """All that were looked at."""
        return [point for each in self.plans for point in each.points]


@dataclass(frozen=True, kw_only=True)
class LoadPlan(Result):
    """Draft lengths by load, for every sampling setting.

    settings : one for each drafter of a deployment; for a profile one for each temperature

    Rows are batches, or, where many were asked for, ranges of batches with one draft length: then
    ``batch`` and ``speedup`` are those of the first batch of the range, ``last_batch`` and
    ``last_speedup`` of the last.
    """

    schema: ClassVar[str] = "specsim.load-plan"

    settings: tuple[PlannedWorkload, ...]

    def rows(self) -> list[Row]:
        return [
            _row(each.workload, planned, span)
            for each in self.settings
            for planned in each.plans
            for span in planned.spans
        ]

    def summary(self) -> Row:
        """Up to which batch speculation gains the margin, by setting and context."""
        return {
            "margin": MARGIN,
            "pays": [
                {
                    **_setting(each.workload),
                    "context": planned.context,
                    "up_to_batch": (planned.stops or planned.largest + 1) - 1,
                    "at_every_priced_batch": planned.stops is None and not planned.off,
                    "largest_priced_batch": planned.largest,
                }
                for each in self.settings
                for planned in each.plans
            ],
        }

    def sentences(self) -> list[str]:
        return [
            _said_of(each.workload, planned.sentence, len(self.settings))
            for each in self.settings
            for planned in each.plans
        ]


def plan_load(
    load: Load, source: Source, gamma_max: int | None = None, gamma: int | None = None
) -> LoadPlan:
    """The best draft length of every batch and context, or what ``gamma`` gives there.

    Batches without a price are left out and named; CellUnavailableError if that is all of them.
    """
    workloads = source.workloads(gamma if gamma_max is None else gamma_max)
    settings, left_out = [], []
    first_reason: CellUnavailableError | None = None
    for workload in workloads:
        plans = []
        batches = workload.batches(load.batches)
        for context in workload.contexts(load.contexts):
            try:
                planned = plan(workload, batches, context, gamma)
            except CellUnavailableError as reason:
                first_reason = first_reason or reason
                left_out.append(_left_out(workload, batches, context, str(reason)))
                continue
            plans.append(planned)
            if planned.missing:
                left_out.append(_left_out(workload, planned.missing, context, planned.why_missing))
        if plans:
            settings.append(PlannedWorkload(workload, tuple(plans)))
    if first_reason is not None and not settings:
        raise first_reason
    warnings = [
        _said_of(each.workload, doubt, len(settings))
        for each in settings
        for doubt in _doubts(each)
    ]
    return LoadPlan(
        settings=tuple(settings),
        inputs={
            **vars(source),
            "batches": _echo(load.batches),
            "contexts": _echo(load.contexts),
            "gamma_max": [workload.gamma_max for workload in workloads],
            "gamma": gamma,
        },
        warnings=tuple(dict.fromkeys(warnings)),
        left_out=tuple(left_out),
    )


def extrapolated(workload: BatchWorkload, points: Sequence[BatchPoint]) -> str:
    """Says which of the points lie beyond the measured grid; empty where none does."""
    outside = workload.extrapolated(points)
    return f"extrapolated beyond the measured grid: {_listed(outside)}" if outside else ""


def _echo(numbers: Sequence[int] | None) -> Any:
    """As asked for; of very many, their ranges in words."""
    return ranges(numbers) if numbers is not None and len(numbers) > EVERY else numbers


def _row(workload: BatchWorkload, planned: Plan, span: Span) -> Row:
    point = span.first
    row = {**_setting(workload), **point.row()}
    row["at_gamma_max"] = planned.gamma is None and point.gamma == workload.gamma_max > 0
    if span.last is not point:
        row |= {"last_batch": span.last.batch, "last_speedup": span.last.speedup}
    return row


def _setting(workload: BatchWorkload) -> Row:
    setting: Row = {} if workload.drafter is None else {"drafter": workload.drafter}
    if workload.temperature is not None:
        setting["temperature"] = workload.temperature
    return setting


def _said_of(workload: BatchWorkload, line: str, settings: int) -> str:
    return line if settings == 1 else f"{workload.name}, {line}"


def _left_out(workload: BatchWorkload, batches: Sequence[int], context: int, why: str) -> LeftOut:
    named = f"{workload.name}, " if workload.name else ""
    return LeftOut(f"{named}batch {ranges(batches)} at context {context:,}", why)


def _doubts(planned: PlannedWorkload) -> list[str]:
    """What the rows do not say and a person should know."""
    workload, points = planned.workload, planned.points
    doubts = [*workload.doubts]
    first = points[0]
    try:
        draft = workload.cost.draft_s(1, first.batch, first.context, 0.0)
    except CellUnavailableError:
        draft = 0.0
    plain = first.spent.plain_step_s
    if draft > plain:
        doubts.append(
            f"to draft one token takes {draft / plain:.3g} times as long as a plain step: have "
            "target and draft changed places?"
        )
    for gamma in sorted({point.gamma for point in points}):
        doubts += workload.notes(gamma)
    bounded = [point for point in points if point.gamma == workload.gamma_max > 0]
    if bounded and planned.plans[0].gamma is None:
        doubts.append(
            f"gamma {workload.gamma_max}, the longest that was considered, is best at "
            f"{_listed(bounded)}: a longer one may pay more"
        )
    if outside := extrapolated(workload, points):
        doubts.append(outside)
    doubts += [
        f"context {each.context:,}: {each.looked_at:,} of {each.priced:,} batches were looked at, "
        "closer to each other where the best length changes"
        for each in planned.plans
        if each.looked_at < each.priced
    ]
    return doubts


def _listed(points: Sequence[BatchPoint]) -> str:
    """``batch 65-100 at context 64, 128; batch 1, 2 at context 256``."""
    batches: dict[float, list[int]] = {}
    for point in points:
        batches.setdefault(point.context, []).append(point.batch)
    alike: dict[str, list[str]] = {}
    for context, found in batches.items():
        alike.setdefault(ranges(found), []).append(f"{context:,.0f}")
    return "; ".join(f"batch {b} at context {', '.join(c)}" for b, c in alike.items())
