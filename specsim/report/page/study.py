"""The page of ``specsim study``: the papers' printed numbers, and ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.report.page.chart import (
    BLUE,
    GREEN,
    GREY,
    PURPLE,
    VERMILLION,
    Axis,
    Chart,
    Content,
    Level,
    Look,
    Row,
    Table,
)

if TYPE_CHECKING:
    from studies.common.reproduce import Reproduction
    from studies.common.study import Check

_MATCHES, _SELF, _REASON, _OPEN, _MISSING = (
    "as printed",
    "agrees with other printed numbers",
    "differs for a known reason",
    "unexplained",
    "cannot be computed",
)
_LOOKS = {
    _MATCHES: Look(BLUE),
    _SELF: Look(GREEN, (), "square"),
    _REASON: Look(GREY, (), "diamond"),
    _OPEN: Look(VERMILLION, (), "cross"),
    _MISSING: Look(PURPLE, (), "triangle-up"),
}
# Units of the tolerance beyond which a number is drawn at the edge.
_FURTHEST = 20.0


def reproduction(found: Reproduction) -> Content:
    """How many printed numbers come out again, and how far off each is."""
    rows = found.rows()
    printed = sum(row["printed"] for row in rows)
    matching = sum(row["reproduced"] + row["consistent"] for row in rows)
    unexplained = len(found.unexplained)
    answer = (
        f"{matching:,} of {printed:,} printed numbers do, "
        f"{'one is' if unexplained == 1 else f'{unexplained:,} are'} unexplained."
    )
    checks = [_check_row(study, each) for study, those in found.checks.items() for each in those]
    charts = [_counts(found)]
    if any(check["ours"] is not None for check in checks):
        charts.append(_errors(checks))
    return Content(
        "Do the papers' printed numbers come out again?",
        answer,
        [f"Tables, figures and prose of every study are in {found.out}."],
        charts,
        [Table("checks", "Every printed number", checks)] if checks else [],
    )


def _verdict(check: Check) -> str:
    if check.ours is None:
        return _MISSING if check.reason else _OPEN
    if check.matches:
        return _SELF if check.printed_twice else _MATCHES
    return _REASON if check.reason else _OPEN


def _check_row(study: str, check: Check) -> dict[str, object]:
    return {
        "study": study,
        "where": check.where,
        "item": check.item,
        "printed": check.printed,
        "ours": check.ours,
        "tolerance": check.tolerance,
        "verdict": _verdict(check),
        "reason": check.reason or None,
    }


def _counts(found: Reproduction) -> Chart:
    """A bar for each study, by verdict."""
    rows: list[Row] = []
    for study, checks in found.checks.items():
        verdicts = [_verdict(check) for check in checks]
        for verdict in _LOOKS:
            if count := verdicts.count(verdict):
                rows.append({"series": verdict, "study": study, "numbers": count})
    rows.sort(key=lambda row: list(_LOOKS).index(row["series"]))
    return Chart(
        "printed",
        "Printed numbers of each paper",
        rows,
        Axis("numbers", "printed numbers"),
        Axis("study", "", "name"),
        mark="bar",
        looks=_LOOKS,
    )


def _errors(checks: list[dict[str, object]]) -> Chart:
    """How far each number is from the printed one, in units of its tolerance."""
    rows: list[Row] = []
    for check in checks:
        printed, ours, tolerance = (check[name] for name in ("printed", "ours", "tolerance"))
        if not isinstance(ours, (int, float)) or not isinstance(printed, (int, float)):
            continue
        unit = float(tolerance) if isinstance(tolerance, (int, float)) and tolerance else 1.0
        off = (float(ours) - float(printed)) / unit
        shown = min(max(off, -_FURTHEST), _FURTHEST)
        rows.append({**check, "series": check["verdict"], "off": off, "shown": shown})
    return Chart(
        "errors",
        "Ours less the printed number, in units of what rounding allows",
        rows,
        Axis("shown", "ours less printed, over the tolerance"),
        Axis("study", "", "name"),
        mark="point",
        looks=_LOOKS,
        details={"where": "where", "item": "item", "printed": "printed", "ours": "ours"},
        levels=[Level(-1.0, "rounding", "x"), Level(1.0, "rounding", "x")],
        note=f"Points further off than {_FURTHEST:g} tolerances stand at {_FURTHEST:g}.",
    )
