"""Decisions by load: the best draft length of every batch and context, and where it pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from specsim.api.load_notes import (
    Missing,
    left_out,
    loaded_words,
    notes_on_plans,
    room_words,
    said_once,
)
from specsim.api.load_notes import extrapolated as extrapolated  # as specsim.export says it
from specsim.api.progress import Progress, quiet
from specsim.api.result import Result, Row
from specsim.batching.best_drafter import BestDrafters, best_drafters
from specsim.batching.cost import CellUnavailableError
from specsim.batching.point import DEFAULT_MARGIN, BatchPoint
from specsim.batching.schedule import EVERY, Plan, Span, looked_at, plan, ranges
from specsim.batching.serving import Room, prefill_s, room_of
from specsim.batching.source import Source
from specsim.batching.workload import BatchWorkload, Load, draft_length
from specsim.checks import number, significant


@dataclass(frozen=True)
class PlannedWorkload:
    """One setting and its plans, one for each context.

    rooms : how many requests fit, for each context where that is known
    prefill_s : seconds of reading the prompt, plainly and with the drafter; None: not asked
    """

    workload: BatchWorkload
    plans: tuple[Plan, ...]
    rooms: tuple[Room, ...] = ()
    prefill_s: tuple[float, float] | None = None

    @property
    def points(self) -> list[BatchPoint]:
        """All that were looked at."""
        return [point for each in self.plans for point in each.points]

    @property
    def named(self) -> Row:
        """What tells it from other settings, as columns."""
        workload = self.workload
        setting: Row = {} if workload.drafter is None else {"drafter": workload.drafter}
        if workload.temperature is not None:
            setting["temperature"] = workload.temperature
        return setting


@dataclass(frozen=True, kw_only=True)
class LoadPlan(Result):
    """Draft lengths by load, for every sampling setting.

    settings : one for each drafter of a deployment; for a profile one for each temperature
    margin : what drafts must gain over plain decoding, or none are made
    gamma : the draft length that was given; None: the best was looked for
    prompt : tokens of the prompt whose reading was asked for

    Rows are batches, or, where many were asked for, ranges of batches with one draft length: then
    ``batch`` and ``speedup`` are those of the first batch of the range, ``last_batch`` and
    ``last_speedup`` of the last.  ``low`` and ``high``, ``last_low`` and ``last_high`` are the
    95 % intervals of these, where anything is known of them (``specsim.batching.decision``),
    ``gamma_low`` and ``gamma_high`` the shortest and the longest that would be chosen inside the
    acceptance's, ``regret`` what share of the best speedup the choice loses if the acceptance rate
    is 0.05 off, ``gamma_0_loaded`` the speedup of a step without drafts while the drafter stays
    loaded.
    """

    schema: ClassVar[str] = "specsim.load-plan"

    settings: tuple[PlannedWorkload, ...]
    margin: float = DEFAULT_MARGIN
    gamma: int | None = None
    prompt: int | None = None

    @property
    def title(self) -> str:
        """Of a table: what is shown, and what its prices rest on."""
        length = "best draft length" if self.gamma is None else f"draft length {self.gamma}"
        words = dict.fromkeys(each.workload.basis.of_times for each in self.settings)
        unread = ", no prefill" if self.bound and self.prompt is None else ""
        return f"{length} by load, {'; '.join(words)}{unread}"

    @property
    def of(self) -> str:
        """The models and the cards that are asked about, where a deployment names them."""
        deployment = self.inputs.get("deployment")
        if deployment is None:
            return ""
        drafters = " or ".join(each.label for each in deployment.drafters)
        return f"{deployment.name} on {deployment.card.name} with {drafters}"

    @property
    def bound(self) -> bool:
        """Whether the prices are bounds that no engine reaches."""
        return any(each.workload.basis.is_bound for each in self.settings)

    def rows(self) -> list[Row]:
        return [
            _row(each, planned, span)
            for each in self.settings
            for planned in each.plans
            for span in planned.spans
        ]

    def table(self) -> list[Row]:
        """The price of a loaded drafter that drafts nothing is shown where there is such a row."""
        rows = self.rows()
        if all(row["gamma"] for row in rows):
            rows = [{k: v for k, v in row.items() if k != "gamma_0_loaded"} for row in rows]
        return rows

    @property
    def essential(self) -> tuple[str, ...]:
        return (
            *("drafter", "temperature", "batch", "last_batch", "context", "gamma", "speedup"),
            *("low", "high", "last_speedup", "last_low", "last_high"),
            *("tokens_per_s", "plain_tokens_per_s", "tokens_per_call"),
        )

    @cached_property
    def best(self) -> tuple[BestDrafters, ...]:
        """The best of several drafters by ranges of batches, one for each context."""
        return best_drafters([(each.workload, each.plans) for each in self.settings])

    def summary(self) -> Row:
        """Up to which batch speculation gains the margin, what to draft, and how many requests
        have room, by setting and context.
        """
        found: Row = {
            "title": self.title,
            "bound": self.bound,
            "margin": self.margin,
            "pays": [
                {**each.named, **_pays(planned)} for each in self.settings for planned in each.plans
            ],
        }
        if self.gamma is None:
            found["schedule"] = [
                {
                    **each.named,
                    "context": planned.context,
                    "ranges": [
                        {"first_batch": first, "last_batch": last, "gamma": gamma}
                        for first, last, gamma in planned.schedule
                    ],
                }
                for each in self.settings
                for planned in each.plans
            ]
        if self.best:
            found["best"] = [each.row() for each in self.best]
        if rooms := [{**each.named, **vars(room)} for each in self.settings for room in each.rooms]:
            found["room"] = rooms
        if self.prompt is not None:
            found["prefill_ms"] = [
                {**each.named, "plain": 1e3 * plain, "with_drafter": 1e3 * loaded}
                for each in self.settings
                for plain, loaded in ([each.prefill_s] if each.prefill_s else [])
            ]
        return found

    def sentences(self) -> list[str]:
        lines = [each.sentence for each in self.best]
        for each in self.settings:
            said = [planned.sentence for planned in each.plans]
            if len(self.settings) > 1:
                said = ["; ".join(said)]  # a line a setting, or they hide what follows
            said += [*loaded_words(each.plans), *room_words(each.rooms)]
            if each.prefill_s is not None and self.prompt is not None:
                plain, loaded = (1e3 * seconds for seconds in each.prefill_s)
                said.append(
                    f"a prompt of {self.prompt:,} tokens takes {significant(plain, 3)} ms to read, "
                    f"{significant(loaded, 3)} ms with the drafter"
                )
            lines += [_said_of(each.workload, line, len(self.settings)) for line in said]
        return lines


def plan_load(
    load: Load,
    source: Source,
    gamma_max: int | None = None,
    gamma: int | None = None,
    margin: float | None = None,
    progress: Progress = quiet,
) -> LoadPlan:
    """The best draft length of every batch and context, or what ``gamma`` gives there.

    gamma_max, gamma : at most 256
    progress : called with what is going on, how much of it is done and how much there is
    margin : what drafts must gain over plain decoding; None: 0.05

    Batches without a price are left out and named; CellUnavailableError if that is all of them.
    """
    margin = DEFAULT_MARGIN if margin is None else number("margin", margin, low=0.0)
    gamma, gamma_max = draft_length("gamma", gamma), draft_length("gamma_max", gamma_max)
    workloads = source.workloads(gamma if gamma_max is None else gamma_max)
    settings: list[PlannedWorkload] = []
    missing: list[Missing] = []
    first_reason: CellUnavailableError | None = None
    asked = [(each, each.batches(load.batches), each.contexts(load.contexts)) for each in workloads]
    done, total = 0, sum(looked_at(len(batches)) * len(those) for _, batches, those in asked)
    for workload, batches, contexts in asked:
        plans = []
        for context in contexts:
            before, done = done, done + looked_at(len(batches))
            try:
                told = _told(progress, before, total)
                planned = plan(workload, batches, context, gamma, margin, told)
            except CellUnavailableError as reason:
                first_reason = first_reason or reason
                missing.append(Missing(workload.name, tuple(batches), context, str(reason)))
                continue
            plans.append(planned)
            if planned.missing:
                why = planned.why_missing
                missing.append(Missing(workload.name, planned.missing, context, why))
        if plans:
            rooms = [room_of(workload, each.context, gamma) for each in plans]
            read = None if load.prompt is None else prefill_s(workload, load.prompt)
            known = tuple(room for room in rooms if room is not None)
            settings.append(PlannedWorkload(workload, tuple(plans), known, read))
    if first_reason is not None and not settings:
        raise first_reason
    notes = {each.workload.name: notes_on_plans(each.workload, each.plans) for each in settings}
    return LoadPlan(
        settings=tuple(settings),
        margin=margin,
        gamma=gamma,
        prompt=load.prompt,
        inputs={
            **vars(source),
            "batches": _echo(load.batches),
            "contexts": _echo(load.contexts),
            "prompt": load.prompt,
            "gamma_max": [workload.gamma_max for workload in workloads],
            "gamma": gamma,
            "margin": margin,
        },
        warnings=said_once(notes),
        left_out=left_out(missing, len(workloads)),
    )


def _told(progress: Progress, before: int, total: int) -> Callable[[int], None]:
    """What hears how many batches of a cell are done."""
    return lambda count: progress("batches", before + count, total)


def _echo(numbers: Sequence[int] | None) -> Any:
    """As asked for; of very many, their ranges in words."""
    return ranges(numbers) if numbers is not None and len(numbers) > EVERY else numbers


def _row(setting: PlannedWorkload, planned: Plan, span: Span) -> Row:
    point = span.first.point
    row = {**setting.named, **span.first.row()}
    longest = setting.workload.gamma_max
    row["at_gamma_max"] = planned.gamma is None and point.gamma == longest > 0
    if span.last is not span.first:
        last, known = span.last.point, span.last.speedup
        row |= {"last_batch": last.batch, "last_speedup": last.speedup}
        if known is not None:
            row |= {"last_low": known.low, "last_high": known.high}
    return row


def _pays(planned: Plan) -> Row:
    def until(stops: int | None) -> int:
        return (stops or planned.largest + 1) - 1

    found: Row = {"context": planned.context, "up_to_batch": until(planned.stops)}
    if planned.is_sure is not None:
        found["up_to_batch_low"] = until(planned.stops_low)
        found["up_to_batch_high"] = until(planned.stops_high)
    found["at_every_priced_batch"] = planned.stops is None and not planned.off
    found["largest_priced_batch"] = planned.largest
    return found


def _said_of(workload: BatchWorkload, line: str, settings: int) -> str:
    return line if settings == 1 else f"{workload.name}, {line}"
