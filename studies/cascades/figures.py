"""The pictures of ``cascades``: quality against calls, latency, rejections, and rules in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend

from specsim.frontier import OPTIMUM
from specsim.report.frontier_plots import AMBER, GREEN, PURPLE, SKY
from specsim.report.plots import BLACK, BLUE, GREY, ORANGE, STYLE
from studies.common.study import Row, Tables
from studies.common.style import error_bars, legend_right

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colour is the family, dashes the log variant; rules of fixed thresholds are dots.
_LINES = {
    OPTIMUM: (BLACK, "-", 2.0),
    "Chow": (BLUE, "-", 1.3),
    "ChowLog": (BLUE, "--", 1.3),
    "TokenCascade": (BLUE, ":", 1.8),
    "Diff": (GREEN, "-", 2.6),  # wide, since OPT lies on top of it at temperature 0
    "DiffLog": (GREEN, "--", 1.3),
    "Opt": (ORANGE, "-", 1.3),
    "OptLog": (ORANGE, "--", 1.3),
    "BildStar greedy": (PURPLE, "-", 1.3),
    "BildStar expectation": (PURPLE, "--", 1.3),
}
# Marker, face and edge; the token rules share a colour, V3 is the paper's own.
_DOTS = {
    "TokenV1": ("v", "white", SKY),
    "TokenV2": ("s", SKY, SKY),
    "TokenV3": ("o", SKY, BLACK),
    "TopBeta": ("x", BLACK, BLACK),
    "Lossy": ("o", AMBER, AMBER),
    "LossyStar": ("*", "white", BLACK),
    "Lossless": ("D", GREY, GREY),
}
_NAMES = {
    OPTIMUM: "optimum (knows the text)",
    "TokenCascade": "Chow, token by token",
    "Lossless": "lossless (the target),\n95 % interval",
    "LossyStar": "Lossy*",
    "Opt": "OPT",
    "OptLog": "OPTLog",
    "BildStar greedy": "BiLD* greedy",
    "BildStar expectation": "BiLD* expectation",
    "TopBeta": "top beta within tau",
}
_QUALITY = "quality: mean probability\nof the text's own token"


def draw(tables: Tables) -> dict[str, Figure]:
    if not tables["frontier"]:
        return {}
    drawn = {
        "deferral": _deferral(tables["deferral"]),
        "rejection": _frontier(tables["frontier"], ["rejection"]),
    }
    latencies = [name for name in tables["frontier"][0] if name.startswith("latency_")]
    if latencies:
        drawn["latency"] = _frontier(tables["frontier"], latencies)
    if any(row["rejection_ratio"] is not None for row in tables["token_against_deferral"]):
        drawn["token_rules"] = _pairs(tables["token_against_deferral"])
    return drawn


def _temperatures(rows: Sequence[Row]) -> list[float]:
    return sorted({row["temperature"] for row in rows})


def _frontier(rows: Sequence[Row], columns: Sequence[str]) -> Figure:
    """A column of panels per temperature, a row per thing on the x axis."""
    temperatures = _temperatures(rows)
    width, height = 3.7 * len(temperatures) + 2.3, 3.1 * len(columns) + 0.5
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            len(columns),
            len(temperatures),
            figsize=(width, height),
            sharex="row",
            sharey="col",
            squeeze=False,
        )
        for column, line in zip(columns, axes, strict=True):
            for temperature, axis in zip(temperatures, line, strict=True):
                here = [row for row in rows if row["temperature"] == temperature]
                _curves(axis, [row for row in here if row[column] is not None], column)
                axis.set_xlabel(_label(column))
                if column.startswith("latency"):
                    axis.axvline(1.0, color=GREY, linewidth=0.8, linestyle=":")
            line[0].set_ylabel(_QUALITY)
        for temperature, axis in zip(temperatures, axes[0], strict=True):
            axis.set_title(f"temperature {temperature:g}", fontsize=10)
        legend_right(figure, axes.flat, 2.2)
    return figure


def _label(column: str) -> str:
    if column == "rejection":
        return "mean probability that\na draft token is rejected"
    return f"time per token over plain decoding\n(times), gamma = {column.rsplit('_', 1)[1]}"


def _curves(axis: Any, rows: Sequence[Row], column: str) -> None:
    def of(rule: str) -> tuple[list[float], list[float]]:
        found = [row for row in rows if row["rule"] == rule]
        return [row[column] for row in found], [row["quality"] for row in found]

    for rule, (color, dash, width) in _LINES.items():
        x, y = of(rule)
        if x:
            label = _NAMES.get(rule, rule)
            axis.plot(x, y, dash, color=color, linewidth=width, label=label)
    for rule, (marker, face, edge) in _DOTS.items():
        x, y = of(rule)
        if x:
            axis.plot(
                x,
                y,
                marker,
                markerfacecolor=face,
                markeredgecolor=edge,
                markersize=4.5,
                linewidth=0,
                label=_NAMES.get(rule, rule),
            )
    for row in rows:
        if row["rule"] == "Lossless":
            axis.axhline(row["quality"], color=GREY, linewidth=1, linestyle=":")
            interval = (row["quality_low"], row["quality_high"])
            axis.plot([row[column]] * 2, interval, color=GREY, linewidth=1)


_EXECUTIONS = {
    (OPTIMUM, "token by token"): (BLACK, "-", "optimum (knows the text),\ntoken by token"),
    ("Diff", "token by token"): (GREEN, "-", "Diff, token by token"),
    ("Chow", "token by token"): (BLUE, "-", "Chow, token by token"),
    ("Diff", "speculative"): (GREEN, "--", "Diff, speculative"),
    ("Chow", "speculative"): (BLUE, "--", "Chow, speculative"),
    ("Lossless", "speculative"): (GREY, "D", "lossless speculation"),
    ("Lossless", "speculative, replayed"): (
        GREY,
        "s",
        "lossless, replayed on\nthe target's own text",
    ),
}


def _deferral(rows: Sequence[Row]) -> Figure:
    temperatures = _temperatures(rows)
    width = 3.5 * len(temperatures) + 2.3
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(temperatures), figsize=(width, 3.7), squeeze=False)
        for temperature, axis in zip(temperatures, axes[0], strict=True):
            here = [row for row in rows if row["temperature"] == temperature]
            for (rule, execution), (color, mark, label) in _EXECUTIONS.items():
                found = [
                    row for row in here if (row["rule"], row["execution"]) == (rule, execution)
                ]
                if found:
                    x = [row["calls_per_token"] for row in found]
                    y = [row["quality"] for row in found]
                    axis.plot(x, y, mark, color=color, markersize=6, label=label)
            axis.set_title(f"temperature {temperature:g}", fontsize=10)
            axis.set_xlabel("target calls per token")
            axis.set_xlim(0, 1.03)
        axes[0][0].set_ylabel(_QUALITY)
        legend_right(figure, axes[0], 2.2)
    return figure


def _pairs(rows: Sequence[Row]) -> Figure:
    """Rejections of the token rules over Diff's, by quality; below 1 the token rule is better."""
    temperatures = _temperatures(rows)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1,
            len(temperatures),
            figsize=(3.6 * len(temperatures) + 1.4, 3.7),
            sharey=True,
            squeeze=False,
        )
        for temperature, axis in zip(temperatures, axes[0], strict=True):
            axis.axhline(1.0, color=GREY, linewidth=1)
            for rule, color in (("TokenV1", BLUE), ("TokenV2", GREEN), ("TokenV3", ORANGE)):
                found = [
                    row
                    for row in rows
                    if (row["temperature"], row["rule"], row["against"])
                    == (temperature, rule, "Diff")
                    and row["rejection_ratio"] is not None
                ]
                if not found:
                    continue
                axis.errorbar(
                    [row["quality"] for row in found],
                    [row["rejection_ratio"] for row in found],
                    yerr=error_bars(found, "rejection_ratio", "ratio_low", "ratio_high"),
                    fmt="o",
                    color=color,
                    markersize=4,
                    capsize=2,
                    label=rule,
                )
            axis.set_title(f"temperature {temperature:g}", fontsize=10)
            axis.set_xlabel(_QUALITY)
        axes[0][0].set_ylabel("rejections over those of Diff\nat the same quality (ratio)")
        legend_right(figure, axes[0], 1.1)
    return figure
