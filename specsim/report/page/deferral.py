"""The page of ``specsim defer``: quality against rejection and latency, and the rules' choices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.api.result import plain
from specsim.checks import significant
from specsim.intervals import Interval
from specsim.report.page.chart import (
    BLUE,
    DASHED,
    GREEN,
    GREY,
    INK,
    PURPLE,
    VERMILLION,
    Axis,
    Chart,
    Content,
    Level,
    Look,
    Mark,
    Row,
    with_interval,
)
from specsim.report.page.words import sentence

if TYPE_CHECKING:
    from specsim.api.defer import RuleComparison
    from specsim.frontier import Comparison, Curve

_OPTIMUM = "optimum (knows the label)"
# Colour is the family; the log variant is dashed.
_LOOKS = {
    _OPTIMUM: Look(INK),
    "Chow": Look(BLUE),
    "ChowLog": Look(BLUE, DASHED),
    "Diff": Look(GREEN),
    "DiffLog": Look(GREEN, DASHED),
    "Opt": Look(VERMILLION),
    "OptLog": Look(VERMILLION, DASHED),
    "BildStar greedy": Look(PURPLE),
    "BildStar expectation": Look(PURPLE, DASHED),
    "draft": Look(GREY, (), "diamond"),
    "target": Look(INK, (), "diamond"),
}
_QUALITY = {
    "0-1": "quality: share of right tokens",
    "log": "quality: mean log-probability (nats)",
    "sampled": "quality: mean probability of the label",
}
_REJECTION = "mean rejection of a draft token"
# Points of a line; a curve may have a million.
_POINTS = 100
# What is asked for, in words, and the columns that may hold it.
_ASKED = (("regret", "regret"), ("rejection", _REJECTION), ("quality", "quality"))


def rule_comparison(found: RuleComparison) -> Content:
    """All rules at all settings, and the ones that were chosen, with their intervals."""
    comparison = found.comparison
    said = [sentence(line) for line in found.sentences()]
    charts = [_curves(comparison, latency=False)]
    if comparison.prices is not None:
        charts.append(_curves(comparison, latency=True))
    charts += [
        chart for column, title in _ASKED if (chart := _choices(found, column, title)) is not None
    ]
    question = "Which rule buys the most quality for its rejections?"
    return Content(question, _answer(found), said, charts)


def _answer(found: RuleComparison) -> str:
    """The first rule behind the optimum, which no rule reaches."""
    by_speed = found.inputs.get("speedup") is not None
    asked = [name for name, _ in _ASKED if name != "rejection" or not by_speed]
    for row in found.choices[1:]:
        name = next((each for each in asked if isinstance(row.get(each), Interval)), None)
        if name is not None:
            value: Interval[float] = row[name]
            ends = f"{significant(value.low)} to {significant(value.high)}"
            return f"{row['rule']}: {name} {significant(value.best)} ({ends}); asked: {found.wish}."
    return sentence(found.wish)


def _curves(comparison: Comparison, latency: bool) -> Chart:
    """Every rule; lines have a threshold that is free, points were measured at fixed ones."""

    def x(rejection: Any) -> Any:
        if not latency or comparison.prices is None:
            return rejection
        return 1 / comparison.prices.speedup(np.clip(rejection, 0, 1))[0]

    def points(series: str, curve: Curve) -> list[Row]:
        kept = np.unique(np.linspace(0, len(curve.loss) - 1, _POINTS).astype(int))
        quality = comparison.quality(curve.loss[kept])
        settings = curve.setting[kept].tolist()
        found = zip(x(curve.rejection[kept]).tolist(), quality.tolist(), settings, strict=True)
        return [
            {"series": series, "x": place, "quality": value, "setting": plain(setting)}
            for place, value, setting in found
        ]

    rows = points(_OPTIMUM, comparison.best.curve())
    marks: dict[str, Mark] = {}
    for rule, measured in comparison.rules.items():
        curve = measured.curve()
        rows += points(rule, curve)
        if rule not in _LOOKS or len(curve.loss) == 1:
            marks[rule] = "point"
    widest = float(comparison.positions.tv.mean())
    for name, rejection, loss in (
        ("draft", 0.0, comparison.draft_loss),
        ("target", widest, comparison.target_loss),
    ):
        marks[name] = "point"
        quality = float(comparison.quality(loss))
        rows.append({"series": name, "x": float(x(rejection)), "quality": quality})
    against = "latency" if latency else "rejection"
    title = "time per token over plain decoding (times)" if latency else _REJECTION
    return Chart(
        f"quality-by-{against}",
        f"Quality against {against}",
        rows,
        Axis("x", title, zero=not latency),
        Axis("quality", _QUALITY[comparison.loss], zero=False),
        marks=marks,
        looks=_LOOKS,
        details={"setting": "setting"},
        levels=[Level(float(comparison.quality(comparison.target_loss)), "the target's")],
        note="No deferral rule can lie above the optimum.",
    )


def _choices(found: RuleComparison, column: str, title: str) -> Chart | None:
    """The chosen setting of every rule; None where this was not asked."""
    rows: list[Row] = []
    for row in found.choices:
        value = row.get(column)
        if isinstance(value, Interval):
            ends = {"low": value.low, "high": value.high}
            rows.append({"series": "a rule", "rule": row["rule"], column: value.best, **ends})
        elif isinstance(value, float):
            rows.append({"series": _OPTIMUM, "rule": row["rule"], column: value})
    if not any("low" in row for row in rows):
        return None
    return Chart(
        f"chosen-{column}",
        f"{title.capitalize()} of every rule",
        rows,
        Axis(column, title, zero=False),
        Axis("rule", "", "name"),
        mark="point",
        looks=_LOOKS,
        interval=with_interval(rows, "low", "high"),
        note="Bars are 95 % intervals over requests.",
    )
