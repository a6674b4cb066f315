"""The page of ``specsim optimize`` by load: what to draft at which batch, and what that gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from specsim.report.page.chart import (
    DASHED,
    PALETTE,
    Axis,
    Chart,
    Content,
    Level,
    Look,
    Row,
    figure_scale,
    number_scale,
    with_interval,
)
from specsim.report.page.words import sentence

if TYPE_CHECKING:
    from specsim.api.by_load import LoadPlan

# More lines than this are no longer told apart, and become a map of colours.
_LINES = 8
# Series whose tokens are drawn with and without drafts.
_PAIRS = len(PALETTE)
# Contexts that the answer speaks of.
_SAID = 3
_BATCH = "batch (requests that share iterations)"
_CONTEXT = "context (tokens)"
_SPEEDUP = "speedup over plain decoding (times)"
_BOUND = (
    "these are bounds that no engine reaches: peak rates, and no time for launches or the host, "
    "which --fit, or --efficiency, --layer-us and --overhead-us, would add"
)
_DETAILS = {
    "gamma": "draft tokens, gamma",
    "tokens_per_call": "tokens per call",
    "regret": "regret",
}


def load_plan(found: LoadPlan) -> Content:
    """Speedup, draft length and tokens per second by batch."""
    said = [sentence(line) for line in found.sentences()]
    given = found.gamma is not None
    where = f" for {found.of}" if found.of else ""
    question = f"Which draft length pays best{where}, at which load?"
    if given:
        question = f"What does draft length {found.gamma} give{where}, at which load?"
    charts = [chart for each in _groups(found) for chart in _of(*each, given)]
    # The first lines are of the contexts, where there is one setting.
    count = len(found.settings[0].plans) if len(found.settings) == 1 else 1
    count = count if count <= _SAID else 1
    answer = " ".join(said[:count]) or sentence(found.title)
    if found.bound:
        answer += " " + sentence(_BOUND)
    return Content(question, answer, said[count:], charts)


def _groups(found: LoadPlan) -> Iterator[tuple[str, str, list[Row]]]:
    """Name, title and rows of the charts that belong together: of one setting all contexts, of
    several the settings at each context.
    """
    several = len(found.settings) > 1
    rows: dict[str, list[Row]] = {}
    for setting in found.settings:
        for planned in setting.plans:
            context = f"context {planned.context:,}"
            group, series = (context, setting.workload.name) if several else ("", context)
            rows.setdefault(group, []).extend(
                {"series": series, **decision.row()} for decision in planned.decisions
            )
    for number, (title, of_group) in enumerate(rows.items()):
        yield f"-{number + 1}" if len(rows) > 1 else "", title, of_group


def _of(name: str, title: str, rows: list[Row], given: bool) -> list[Chart]:
    """given : whether the draft length was, so that there is none to show"""
    at = f", {title}" if title else ""
    series = {row["series"] for row in rows}
    if len(series) > _LINES:
        return [_map(name, at, rows)]
    along = _along(rows)
    interval = with_interval(rows, "low", "high")
    found = [
        Chart(
            f"speedup{name}",
            f"Speedup{at}",
            rows,
            along,
            Axis("speedup", _SPEEDUP),
            interval=interval,
            details=_DETAILS,
            levels=[Level(1.0, "plain decoding")],
            note="Bands are 95 % intervals." if interval else "",
        )
    ]
    if not given:
        found.append(_lengths(name, at, rows, along))
    if len(series) <= _PAIRS:
        found.append(_tokens(name, at, rows, along))
    return found


def _lengths(name: str, at: str, rows: Sequence[Row], along: Axis) -> Chart:
    interval = with_interval(rows, "gamma_low", "gamma_high")
    reach = "Bars reach over the lengths that are best inside the interval of the acceptance."
    note = "0 is plain decoding. Batches between the points were not worked out."
    return Chart(
        f"gamma{name}",
        f"Best draft length{at}",
        rows,
        along,
        Axis("gamma", "draft tokens per target call, gamma"),
        mark="point",
        interval=interval,
        note=f"{note} {reach}" if interval else note,
    )


def _along(rows: Sequence[Row]) -> Axis:
    """Batches, or contexts where there is one batch."""
    batches = [row["batch"] for row in rows]
    contexts = [row["context"] for row in rows]
    if len(set(batches)) == 1 and len(set(contexts)) > 1:
        return Axis("context", _CONTEXT, number_scale(contexts), zero=False)
    return Axis("batch", _BATCH, number_scale(batches), zero=False)


def _tokens(name: str, at: str, rows: Sequence[Row], along: Axis) -> Chart:
    """Of all requests together, with drafts whole and without them dashed."""
    looks: dict[str, Look] = {}
    both: list[dict[str, Any]] = []
    columns = {"with drafts": "tokens_per_s", "plain": "plain_tokens_per_s"}
    for row in rows:
        for kind, column in columns.items():
            series = f"{row['series']}, {kind}" if row["series"] else kind
            colour = PALETTE[len(looks) // 2 % len(PALETTE)]
            looks.setdefault(series, Look(colour, DASHED if kind == "plain" else ()))
            both.append({**row, "series": series, "throughput": row[column]})
    title = "output tokens per second, all requests"
    axis = Axis("throughput", title, figure_scale([row["throughput"] for row in both]))
    details = {"gamma": "draft tokens, gamma"}
    return Chart(
        f"tokens{name}",
        f"Throughput with drafts and without{at}",
        both,
        along,
        axis,
        looks=looks,
        details=details,
    )


def _map(name: str, at: str, rows: Sequence[Row]) -> Chart:
    """All of many series: the colour is the speedup, and the best draft length stands in it."""
    return Chart(
        f"speedup{name}",
        f"The best draft length, and what it gives{at}",
        [{**row, "line": row["series"], "series": ""} for row in rows],
        Axis("batch", _BATCH, "name"),
        Axis("line", "", "name"),
        mark="cell",
        figure=Axis("speedup", _SPEEDUP),
        label="gamma",
        details={**_DETAILS, "low": "from", "high": "to"},
        note="A number is the draft length; 0 is plain decoding. Intervals are in the tooltips and "
        "in the table.",
    )
