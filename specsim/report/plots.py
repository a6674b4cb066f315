"""Figures, all in one look: colour-blind safe, labelled directly, units on the axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart with every common colour vision.
BLUE, ORANGE, BLACK, GREY = "#0072B2", "#D55E00", "#000000", "#8C8C8C"

STYLE: Any = {
    "figure.dpi": 110,
    "savefig.dpi": 150,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


def speedup_by_gamma(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """One panel per temperature, set of prompts and batch, as far as rows have them: the papers'
    formula, the prediction and what was measured, both with their intervals.

    The draft length that is recommended has a ring (column ``chosen``).
    """
    names = [name for name in ("temperature", "prompts", "batch") if name in rows[0]]
    told = [name for name in names if name != "prompts" or len({row[name] for row in rows}) > 1]
    panels = sorted({tuple(row[name] for name in names) for row in rows})
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(panels), figsize=(4.4 * len(panels), 3.6), sharey=True, squeeze=False
        )
        for axis, panel in zip(axes[0], panels, strict=True):
            where = dict(zip(names, panel, strict=True))
            of_panel = [row for row in rows if all(row[name] == where[name] for name in names)]
            _speedup_panel(axis, sorted(of_panel, key=lambda row: row["gamma"]))
            axis.set_title(", ".join(_words(name, where[name]) for name in told), fontsize=10)
            axis.set_xlabel("draft tokens per target call, gamma")
        axes[0][0].set_ylabel("speedup over plain decoding (times)")
        axes[0][0].legend(loc="lower left", fontsize=9)
        figure.suptitle(title, fontsize=11)
        figure.tight_layout()
    return figure


def _words(name: str, value: Any) -> str:
    """What a panel is of."""
    return f"{value} prompts" if name == "prompts" else f"{name} {value:g}"


def _speedup_panel(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    gamma = np.array([row["gamma"] for row in rows])

    def column(name: str) -> Any:
        return np.array([row[name] for row in rows], dtype=float)

    measured, predicted = column("measured_speedup"), column("predicted_speedup")
    axis.axhline(1.0, color=GREY, linewidth=1)
    if "formula_speedup" in rows[0]:
        formula = column("formula_speedup")
        axis.plot(gamma, formula, "--", color=ORANGE, label="papers' formula (alpha, c)")
    axis.plot(gamma, predicted, color=BLUE, label="predicted, 95 % interval")
    low, high = column("predicted_low"), column("predicted_high")
    axis.fill_between(gamma, low, high, color=BLUE, alpha=0.15, linewidth=0)
    axis.errorbar(
        gamma,
        measured,
        # Percentiles of a bootstrap over a handful of requests need not lie around the figure.
        yerr=np.maximum(
            [measured - column("measured_low"), column("measured_high") - measured], 0.0
        ),
        fmt="o",
        color=BLACK,
        markersize=4,
        capsize=2,
        label="measured, 95 % interval",
    )
    if "chosen" in rows[0]:
        chosen = column("chosen") > 0
        ring: Any = {"markersize": 11, "markerfacecolor": "none", "color": BLUE}
        # No draft length is recommended where plain decoding is: it has the line at 1.
        where, what = (gamma[chosen], predicted[chosen]) if chosen.any() else ([0], [1.0])
        axis.plot(where, what, "o", **ring, label="recommended")
        gamma = gamma if chosen.any() else np.array([0, *gamma])
    axis.set_xticks(gamma)
    axis.set_ylim(bottom=0)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG, whole or not at all."""
    import io

    from specsim.files import write_atomically

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    plt.close(figure)
    write_atomically(path, buffer.getvalue())


def write(figure: Figure, path: Path) -> None:
    """The same of a command, which says where."""
    save(figure, path)
    click.echo(f"figure: {path}", err=True)
