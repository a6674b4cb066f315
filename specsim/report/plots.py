"""Figures, all in one look: colour-blind safe, labelled directly, units on the axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    """One panel per temperature: the papers' formula, the replay, measured with its interval."""
    temperatures = sorted({row["temperature"] for row in rows})
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(temperatures), figsize=(4.4 * len(temperatures), 3.6), sharey=True, squeeze=False
        )
        for axis, temperature in zip(axes[0], temperatures, strict=True):
            _speedup_panel(axis, [row for row in rows if row["temperature"] == temperature])
            axis.set_title(f"temperature {temperature:g}", fontsize=10)
            axis.set_xlabel("draft tokens per target call, gamma")
        axes[0][0].set_ylabel("speedup over plain decoding (times)")
        axes[0][0].legend(loc="lower left", fontsize=9)
        figure.suptitle(title, fontsize=11)
        figure.tight_layout()
    return figure


def _speedup_panel(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    gamma = np.array([row["gamma"] for row in rows])
    column = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "prompts"}
    measured = column["measured_speedup"]
    axis.axhline(1.0, color=GREY, linewidth=1)
    axis.plot(
        gamma, column["formula_speedup"], "--", color=ORANGE, label="papers' formula (alpha, c)"
    )
    axis.plot(
        gamma, column["predicted_speedup"], color=BLUE, label="specsim: replay and measured costs"
    )
    if "predicted_low" in column:
        axis.fill_between(
            gamma,
            column["predicted_low"],
            column["predicted_high"],
            color=BLUE,
            alpha=0.15,
            linewidth=0,
        )
    axis.errorbar(
        gamma,
        measured,
        # Percentiles of a bootstrap over a handful of requests need not lie around the figure.
        yerr=np.maximum(
            [measured - column["measured_low"], column["measured_high"] - measured], 0.0
        ),
        fmt="o",
        color=BLACK,
        markersize=4,
        capsize=2,
        label="measured, 95 % interval",
    )
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
