"""What the rows of a plan by load do not say and a person should know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specsim.api.result import LeftOut
from specsim.batching.cost import CellUnavailableError
from specsim.batching.point import BatchPoint
from specsim.batching.schedule import Plan, ranges
from specsim.batching.serving import CardCost, Room
from specsim.batching.workload import BatchWorkload


@dataclass(frozen=True)
class Missing:
    """Batches of one setting, by its name, that have no price at a context."""

    setting: str
    batches: tuple[int, ...]
    context: int
    why: str


def left_out(missing: Sequence[Missing], settings: int) -> tuple[LeftOut, ...]:
    """What has no price, once where that is the same in all of so many settings."""
    alike: dict[tuple[tuple[int, ...], int, str], list[str]] = {}
    for each in missing:
        alike.setdefault((each.batches, each.context, each.why), []).append(each.setting)
    found = []
    for (batches, context, why), names in alike.items():
        what = f"batch {ranges(batches)} at context {context:,}"
        told = [""] if len(names) == settings > 1 else names
        found += [LeftOut(f"{name}, {what}" if name else what, why) for name in told]
    return tuple(found)


def said_once(notes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Lines by the setting that they are of; those of all settings without a name, and once."""
    found: dict[str, None] = {}
    for name, lines in notes.items():
        for line in lines:
            alone = len(notes) == 1 or all(line in others for others in notes.values())
            found[line if alone else f"{name}, {line}"] = None
    return tuple(found)


def extrapolated(workload: BatchWorkload, points: Sequence[BatchPoint]) -> str:
    """Says which of the points lie beyond the measured grid; empty where none does."""
    outside = workload.extrapolated(points)
    return f"extrapolated beyond the measured grid: {_listed(outside)}" if outside else ""


def notes_on_plans(workload: BatchWorkload, plans: Sequence[Plan]) -> list[str]:
    """What to know of one setting, one line each."""
    points = [point for each in plans for point in each.points]
    notes = [*workload.doubts, *_changed_places(workload, points[0])]
    lengths = sorted({point.gamma for point in points})
    notes += dict.fromkeys(line for each in lengths for line in workload.notes(each))
    bounded = [point for point in points if point.gamma == workload.gamma_max > 0]
    if bounded and plans[0].gamma is None and workload.gamma_max != workload.longest:
        notes.append(
            f"gamma {workload.gamma_max}, the longest that was considered, is best at "
            f"{_listed(bounded)}: a longer one may pay more"
        )
    notes += [line for each in plans for line in _without_room(workload, each)]
    if outside := extrapolated(workload, points):
        notes.append(outside)
    notes += [
        f"context {each.context:,}: {each.looked_at:,} of {each.priced:,} batches were looked at, "
        "closer to each other where the best length changes"
        for each in plans
        if each.looked_at < each.priced
    ]
    return notes


def loaded_words(plans: Sequence[Plan]) -> list[str]:
    """What a loaded drafter costs where a schedule has batches without drafts."""
    off = [
        (decision.loaded, decision.batch, planned.context)
        for planned in plans
        if planned.gamma is None
        for decision in planned.decisions
        if not decision.point.gamma and decision.loaded is not None
    ]
    if not off:
        return []
    worst, batch, context = min(off)
    return [
        f"gamma 0 with the drafter still loaded runs at {worst:.3g} of plain decoding (batch "
        f"{batch:,}, context {context:,}): without a drafter nothing is lost there"
    ]


def room_words(rooms: Sequence[Room]) -> list[str]:
    """How many requests have room with the drafter and without, all contexts in a line."""
    words = []
    for room in rooms:
        requests = "request" if room.with_drafter == 1 else "requests"
        line = (
            f"context {room.context:,}: room for {room.with_drafter:,} {requests} with the "
            f"drafter, {room.without:,} without it"
        )
        if room.speedup_equal_cards is not None:
            times = f"{room.speedup_equal_cards:.3g} times the tokens per second"
            line += f"; with each at its largest, {times}"
        words.append(line)
    return ["; ".join(words)] if words else []


def _changed_places(workload: BatchWorkload, first: BatchPoint) -> list[str]:
    """A draft that is slower than its target."""
    try:
        draft = workload.cost.draft_s(1, first.batch, first.context, 0.0)
    except CellUnavailableError:
        return []
    plain = first.spent.plain_step_s
    if draft <= plain:
        return []
    return [
        f"to draft one token takes {draft / plain:.3g} times as long as a plain step: have "
        "target and draft changed places?"
    ]


def _without_room(workload: BatchWorkload, planned: Plan) -> list[str]:
    """From which batch on memory has no room for the drafter."""
    if not isinstance(workload.cost, CardCost):
        return []
    most, _ = workload.cost.room(planned.context, 1)
    if planned.largest <= most:
        return []
    return [
        f"context {planned.context:,}: from batch {most + 1:,} on there is no room for the "
        "drafter, so gamma is 0 there"
    ]


def _listed(points: Sequence[BatchPoint]) -> str:
    """``batch 65-100 at context 64, 128; batch 1, 2 at context 256``."""
    batches: dict[float, list[int]] = {}
    for point in points:
        batches.setdefault(point.context, []).append(point.batch)
    alike: dict[str, list[str]] = {}
    for context, found in batches.items():
        alike.setdefault(ranges(found), []).append(f"{context:,.0f}")
    return "; ".join(f"batch {b} at context {', '.join(c)}" for b, c in alike.items())
