"""The page of ``specsim compare``: what changed, beside what chance explains."""

from __future__ import annotations

from collections import Counter
from math import exp, log
from typing import TYPE_CHECKING

from specsim.checks import significant
from specsim.intervals import Interval, joint_half_width
from specsim.report.page.chart import (
    BLUE,
    GREY,
    VERMILLION,
    Axis,
    Chart,
    Content,
    Level,
    Look,
    Row,
    figure_scale,
    is_known,
    with_interval,
)
from specsim.report.page.words import sentence

if TYPE_CHECKING:
    from specsim.api.compare_result import Difference, Differences
    from specsim.api.compared import FigureKey

# Figures of the chart of changes; fewest of one name, and most, that are drawn side against side.
_MOST, _SEVERAL, _POINTS = 30, 3, 1000
_ENDS = ("low", "high")
_LOOKS = {
    "beyond chance": Look(VERMILLION, (), "diamond"),
    "chance": Look(BLUE),
    "not judged": Look(GREY, (), "square"),
    "same": Look(GREY, (), "cross"),
}


def differences(found: Differences) -> Content:
    """Every figure that changed, the furthest apart first, and the figures of one name."""
    *said, verdict = found.sentences()
    charts = [_changes(found), _both_sides(found)]
    return Content(
        "Did anything change by more than chance?",
        f"{_answer(found)}: {verdict}.",
        [f"{found.names[0]} is the first, {found.names[1]} the second.", *map(sentence, said)],
        [chart for chart in charts if chart.rows],
    )


def _answer(found: Differences) -> str:
    if found.differs:
        return "Yes" if found.can_tell else "Cannot be told"
    return "No"


def _changes(found: Differences) -> Chart:
    """The second over the first, of what is not the same."""
    shared = found.shared()
    rows: list[Row] = []
    for each in found.figures:
        ratio = None if each.is_same else _ratio(each)
        if ratio is not None:
            verdict = each.verdict(found.limit)
            place = {"series": verdict, "said": _said(each.key), "apart": each.apart}
            own = _said(each.key.without(shared.get(each.key.table, ())))
            rows.append({**place, "own": own, **ratio.columns("ratio")})
    order = list(_LOOKS)
    rows.sort(key=lambda row: (order.index(row["series"]), -(row["apart"] or 0.0)))
    # What all of them share, or all of a table, would take the room of what tells them apart.
    first = [set(row["said"]) for row in rows[:_MOST]]
    common = set.intersection(*first) if len(first) > 1 else set()
    shown: list[Row] = []
    for row in rows[:_MOST]:
        own = [each for each in row["own"] if each not in common]
        known = {name: value for name, value in row.items() if name not in ("said", "own")}
        shown.append({**known, "name": ", ".join(own or row["said"])})
    shared_words = ", ".join(each for each in rows[0]["said"] if each in common) if rows else ""
    interval = with_interval(shown, "ratio_low", "ratio_high")
    notes = []
    if interval:
        notes.append(
            f"Bars are what chance explains of a figure alone (95 %); of all {found.judged:,} it "
            f"explains {significant(found.limit, 3)} times as much."
        )
    if len(rows) > _MOST:
        notes.append(f"The first {_MOST} of {len(rows):,} that differ.")
    scale = figure_scale([row["ratio"] for row in shown])
    return Chart(
        "changes",
        f"What changed, {shared_words}" if shared_words else "What changed",
        shown,
        Axis("ratio", "second over first (times)", scale, zero=False),
        Axis("name", "", "name"),
        mark="point",
        looks=_LOOKS,
        interval=interval,
        details={"apart": "apart, in what intervals explain"},
        levels=[Level(1.0, "the same", "x")] if shown else [],
        note=" ".join(notes),
    )


def _ratio(each: Difference) -> Interval[float] | None:
    """With what both intervals leave open; None where one of them is no positive number."""
    sides = each.first, each.second
    if not all(isinstance(side, Interval) and side.best > 0 for side in sides):
        return None
    first, second = (side for side in sides if isinstance(side, Interval))
    middle = log(second.best / first.best)
    nothing = Interval(float("nan"), exp(middle), float("nan"))
    if not (first.low > 0 and second.low > 0):  # nan, too: no interval
        return nothing
    logs = [Interval(log(side.low), log(side.best), log(side.high)) for side in (first, second)]
    half = joint_half_width(*logs)
    return Interval(exp(middle - half), exp(middle), exp(middle + half)) if half else nothing


def _both_sides(found: Differences) -> Chart:
    """The figures of the name of which most changed, first against second."""
    pairs = [
        (each, each.first.best, each.second.best)
        for each in found.figures
        if isinstance(each.first, Interval) and isinstance(each.second, Interval)
    ]
    known = [each for each in pairs if is_known(each[1]) and is_known(each[2])]
    changed = Counter(each.key.figure for each, _, _ in known if not each.is_same)
    name = changed.most_common(1)[0][0] if changed else ""
    count = sum(each.key.figure == name for each, _, _ in known)
    rows: list[Row] = []
    rows += [
        {
            "series": each.verdict(found.limit),
            "first": first,
            "second": second,
            "where": each.key.where,
        }
        for each, first, second in known
        if each.key.figure == name and count >= _SEVERAL
    ][:_POINTS]
    words = name.replace("_", " ")
    scale = figure_scale([row[side] for row in rows for side in ("first", "second")])
    return Chart(
        "sides",
        sentence(f"{words}, second against first").removesuffix("."),
        rows,
        Axis("first", f"{words}, first", scale, zero=False),
        Axis("second", f"{words}, second", scale, zero=False),
        mark="point",
        looks=_LOOKS,
        details={"where": "of"},
        diagonal=True,
        note="On the line both are equal.",
    )


def _said(key: FigureKey) -> list[str]:
    """Of what a figure is, piece by piece."""
    return [*filter(None, key.where.split(", ")), key.figure.replace("_", " ")]
