"""The pictures of ``cascades``: quality against calls, latency, rejections, and rules in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
from matplotlib.figure import Figure

from specsim.frontier import OPTIMUM
from specsim.report.frontier_plots import AMBER, GREEN, LINES, SKY
from specsim.report.plots import BLACK, BLUE, GREY, ORANGE
from studies.common.decoded import by_temperature
from studies.common.figures import legend_right, panels, points
from studies.common.study import Row, where

# Colour is the family, dashes the log variant; rules of fixed thresholds are dots.
_LINES = {
    OPTIMUM: (BLACK, "-", 2.0),
    "TokenCascade": (BLUE, ":", 1.8),
    **LINES,
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


def rejection(rows: Sequence[Row]) -> Figure:
    """Quality against rejections of every rule, on held-out text; dots are rules with fixed
    thresholds.
    """
    return _curves(rows, ["rejection"])


def latency(rows: Sequence[Row]) -> Figure:
    """Narasimhan24 Figures 2, 3, 6, 7 and 9, ours: quality against time per token, by block
    size.
    """
    return _curves(rows, [name for name in rows[0] if name.startswith("latency_")])


def _curves(rows: Sequence[Row], columns: Sequence[str]) -> Figure:
    """A column of panels per temperature, a row per thing on the x axis."""
    found = by_temperature(rows)
    size = (3.7 * len(found) + 2.3, 3.1 * len(columns) + 0.5)
    figure, axes = plt.subplots(
        len(columns), len(found), figsize=size, sharex="row", sharey="col", squeeze=False
    )
    for column, line in zip(columns, axes, strict=True):
        for (_, here), axis in zip(found, line, strict=True):
            _rules(axis, [row for row in here if row[column] is not None], column)
            axis.set_xlabel(_label(column))
            if column.startswith("latency"):
                axis.axvline(1.0, color=GREY, linewidth=0.8, linestyle=":")
        line[0].set_ylabel(_QUALITY)
    for (temperature, _), axis in zip(found, axes[0], strict=True):
        axis.set_title(f"temperature {temperature:g}", fontsize=10)
    legend_right(figure, axes.flat, 2.2)
    return figure


def _label(column: str) -> str:
    if column == "rejection":
        return "mean probability that\na draft token is rejected"
    return f"time per token over plain decoding\n(times), gamma = {column.rsplit('_', 1)[1]}"


def _rules(axis: Any, rows: Sequence[Row], column: str) -> None:
    def draw(rule: str, mark: str, **look: Any) -> None:
        found = where(rows, rule=rule)
        points(axis, found, column, "quality", mark, label=_NAMES.get(rule, rule), **look)

    for rule, (color, dash, width) in _LINES.items():
        draw(rule, dash, color=color, linewidth=width)
    for rule, (mark, face, edge) in _DOTS.items():
        look = {"markerfacecolor": face, "markeredgecolor": edge, "markersize": 4.5}
        draw(rule, mark, linewidth=0, **look)
    for row in where(rows, rule="Lossless"):
        axis.axhline(row["quality"], color=GREY, linewidth=1, linestyle=":")
        interval = (row["quality_low"], row["quality_high"])
        axis.plot([row[column]] * 2, interval, color=GREY, linewidth=1)


def deferral(rows: Sequence[Row]) -> Figure:
    """Narasimhan24 Figure 1, ours: quality against calls of the target, for rules run token by
    token and speculatively.
    """
    figure, found = panels(rows, 3.5, 3.7, beside=2.3, sharey=False)
    for axis, here in found:
        for (rule, execution), (color, mark, label) in _EXECUTIONS.items():
            shown = where(here, rule=rule, execution=execution)
            look: Any = {"color": color, "markersize": 6, "label": label}
            points(axis, shown, "calls_per_token", "quality", mark, **look)
        axis.set_xlabel("target calls per token")
        axis.set_xlim(0, 1.03)
    found[0][0].set_ylabel(_QUALITY)
    legend_right(figure, [found[0][0]], 2.2)
    return figure


def token_rules(rows: Sequence[Row]) -> Figure | None:
    """Rejections of the token rules over those of Diff at the same quality, with 95 % intervals."""
    if all(row["rejection_ratio"] is None for row in rows):
        return None
    figure, found = panels(rows, 3.6, 3.7, beside=1.4)
    for axis, here in found:
        axis.axhline(1.0, color=GREY, linewidth=1)
        for rule, color in (("TokenV1", BLUE), ("TokenV2", GREEN), ("TokenV3", ORANGE)):
            shown = where(here, rule=rule, against="Diff")
            points(axis, shown, "quality", "rejection_ratio", "o", "ratio_low", "ratio_high",
                   color=color, linewidth=0, elinewidth=1, label=rule)  # fmt: skip
        axis.set_xlabel(_QUALITY)
    found[0][0].set_ylabel("rejections over those of Diff\nat the same quality (ratio)")
    legend_right(figure, [found[0][0]], 1.1)
    return figure
