"""How the pictures of all studies are drawn: columns of rows on axes, one panel a temperature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
import numpy as np
from matplotlib.figure import Figure

from specsim.report.frontier_plots import GREEN, PURPLE
from specsim.report.plots import BLUE, GREY, ORANGE
from studies.common.decoded import by_temperature
from studies.common.study import Row

# Of series that have no colour of their own.
COLORS = (BLUE, ORANGE, GREEN, PURPLE)
# A column's name, or what a row gives.
Column = str | Callable[[Row], Any]


def panels(
    rows: Sequence[Row], width: float, height: float, beside: float = 0.0, sharey: bool = True
) -> tuple[Figure, list[tuple[Any, list[Row]]]]:
    """A panel per temperature, each with its rows; inches of a panel, and beside them all."""
    found = by_temperature(rows)
    size = (width * len(found) + beside, height)
    figure, axes = plt.subplots(1, len(found), figsize=size, sharey=sharey, squeeze=False)
    for axis, (temperature, _) in zip(axes[0], found, strict=True):
        axis.set_title(f"temperature {temperature:g}", fontsize=10)
    return figure, [(axis, here) for axis, (_, here) in zip(axes[0], found, strict=True)]


def values(rows: Sequence[Row], column: Column) -> list[Any]:
    return [row[column] if isinstance(column, str) else column(row) for row in rows]


def points(
    axis: Any,
    rows: Sequence[Row],
    x: Column,
    y: Column,
    mark: str = "o",
    low: str = "",
    high: str = "",
    **look: Any,
) -> None:
    """One column against another, where both are known; nothing where they never are.

    low, high : columns of a 95 % interval of ``y``, or of ``x`` where that is a column and ``y``
        is a place
    """
    pairs = zip(rows, values(rows, x), values(rows, y), strict=True)
    known = [(row, a, b) for row, a, b in pairs if a is not None and b is not None]
    if not known:
        return
    shown, at, best = ([each[part] for each in known] for part in range(3))
    if not low:
        axis.plot(at, best, mark, **look)
        return
    sideways = not isinstance(y, str)
    middle = at if sideways else best
    bars = error_bars(shown, middle, low, high)
    look = {"capsize": 2, "markersize": 4, "linewidth": 1, **look}
    axis.errorbar(at, best, **{"xerr" if sideways else "yerr": bars}, fmt=mark, **look)


def error_bars(rows: Sequence[Row], best: Sequence[Any], low: str, high: str) -> Any:
    """How far the interval reaches below and above the best estimate, (2, rows), none below 0."""
    middle, below, above = (
        np.array(each) for each in (best, values(rows, low), values(rows, high))
    )
    return np.maximum([middle - below, above - middle], 0.0)


def listed_down(axis: Any, names: Sequence[str], fontsize: float = 9) -> None:
    """A name per line, the first on top; ``points`` are at y = 0, 1, ..."""
    axis.set_yticks(range(len(names)), names, fontsize=fontsize)
    axis.set_ylim(len(names) - 0.4, -0.6)


def grouped_bars(
    axis: Any,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    colors: Iterable[str],
) -> None:
    """Bars side by side in every group, one of each series, with their values on top."""
    width = 0.8 / len(series)
    for number, ((label, heights), color) in enumerate(zip(series.items(), colors, strict=False)):
        shift = (number - (len(series) - 1) / 2) * width
        known = [(at + shift, height) for at, height in enumerate(heights) if height is not None]
        drawn = axis.bar(*zip(*known, strict=True), 0.92 * width, color=color, label=label)
        axis.bar_label(drawn, fmt="%.2f", fontsize=8, padding=2)
    axis.set_axisbelow(True)
    axis.axhline(1, color=GREY, linewidth=1, zorder=0.9)
    axis.set_xticks(range(len(groups)), groups)
    axis.grid(axis="x", visible=False)


def end_label(axis: Any, x: Sequence[float], y: Sequence[float], text: str, color: str) -> None:
    """A line's name behind its end."""
    axis.annotate(
        text,
        (x[-1], y[-1]),
        (5, 0),
        textcoords="offset points",
        color=color,
        va="center",
        fontsize=9,
        annotation_clip=False,
    )


def legend_right(figure: Figure, axes: Iterable[Any], inches: float) -> None:
    """One legend for all panels, beside them, so many inches wide."""
    inside = 1 - inches / figure.get_figwidth()
    figure.tight_layout(rect=(0, 0, inside, 1))
    figure.legend(**_of_all(axes), loc="center left", bbox_to_anchor=(inside, 0.5), fontsize=9)


def legend_below(
    figure: Figure, axes: Iterable[Any], columns: int, inches: float, title: str | None = None
) -> None:
    """One legend for all panels, under them, so many inches high."""
    figure.tight_layout(rect=(0, inches / figure.get_figheight(), 1, 1))
    look: Any = {"loc": "lower center", "ncols": columns, "fontsize": 9, "title_fontsize": 9}
    figure.legend(**_of_all(axes), title=title, **look)


def legend_above(figure: Figure, axes: Iterable[Any], columns: int) -> None:
    """One legend for all panels, over them."""
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / figure.get_figheight()))
    figure.legend(**_of_all(axes), loc="upper right", ncols=columns, fontsize=9)


def _of_all(axes: Iterable[Any]) -> dict[str, Any]:
    """Handles and labels, each label once."""
    handles: dict[str, Any] = {}
    for axis in axes:
        lines, labels = axis.get_legend_handles_labels()
        handles |= dict(zip(labels, lines, strict=True))
    return {"handles": list(handles.values()), "labels": list(handles)}
