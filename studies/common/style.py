"""How the pictures of all studies look: what ``specsim.report`` leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.checks import Floats
from specsim.report.frontier_plots import GREEN, PURPLE
from specsim.report.plots import BLUE, ORANGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from studies.common.study import Row

# Of series that have no colour of their own.
COLORS = (BLUE, ORANGE, GREEN, PURPLE)


def error_bars(rows: Sequence[Row], best: str, low: str = "low", high: str = "high") -> Any:
    """How far the interval reaches below and above the best estimate, (2, rows), none below 0."""
    middle, below, above = (np.array([row[name] for row in rows]) for name in (best, low, high))
    bars: Floats = np.maximum([middle - below, above - middle], 0.0)
    return bars


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
    figure.legend(
        **_of_all(axes), loc="lower center", ncols=columns, fontsize=9, title=title,
        title_fontsize=9,
    )  # fmt: skip


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
