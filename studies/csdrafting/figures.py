"""The pictures of Chen23: allocations, acceptance by position, SWI, and the best cascade."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
import numpy as np
from matplotlib.figure import Figure

from specsim.report.frontier_plots import GREEN, PURPLE
from specsim.report.plots import BLACK, BLUE, GREY, ORANGE
from studies.common.figures import grouped_bars, legend_below, listed_down, panels, points, values
from studies.common.study import Row
from studies.csdrafting.paper import shares_of, t5_speed

# Tokens of T5-small behind five of T5-base.
_SECOND = np.arange(0, 16)
_KINDS = {
    "speculative": BLACK,
    "horizontal-cascade": BLUE,
    "vertical-cascade": GREEN,
    "full-cascade": ORANGE,
}
_TIMES = "times plain decoding"


def allocation(rows: Sequence[Row]) -> Figure:
    """Chen23 Table 1: EWIF by the second drafter's share, printed and best."""
    cascades = [row for row in rows if "," in row["allocation"]]
    size = (4.4 * len(cascades), 3.4)
    figure, axes = plt.subplots(1, len(cascades), figsize=size, squeeze=False)
    for axis, row in zip(axes[0], cascades, strict=True):
        (first, count), (second, printed) = shares_of(row["allocation"]).items()
        speeds = [t5_speed(row["dataset"], {first: count, second: int(n)}) for n in _SECOND]
        best = int(np.argmax(speeds))
        axis.plot(_SECOND, speeds, color=BLUE, marker=".")
        axis.plot(printed, row["printed"], "o", color=ORANGE, markersize=8, fillstyle="none")
        axis.annotate(
            f"printed: {row['printed']:.2f}", (printed, row["printed"]), (8, -22),
            textcoords="offset points", color=ORANGE,
        )  # fmt: skip
        axis.plot(best, speeds[best], "D", color=BLACK, markersize=6)
        axis.annotate(
            f"best: {speeds[best]:.3f}", (best, speeds[best]), (0, 9),
            textcoords="offset points", ha="center",
        )  # fmt: skip
        axis.margins(y=0.2)
        axis.set_xticks(_SECOND[::3])
        axis.set_title(f"{row['dataset']}, {count} of {first} first", fontsize=10)
        axis.set_xlabel(f"tokens of {second} behind them")
    axes[0][0].set_ylabel(f"EWIF ({_TIMES})")
    figure.suptitle("Chen23 Table 1: horizontal cascades of T5", fontsize=11)
    figure.tight_layout()
    return figure


def positions(rows: Sequence[Row]) -> Figure:
    """Chen23 Figure 1 on our models. The dashed lines take acceptance as the same alpha
    everywhere.
    """
    figure, found = panels(rows, 4.4, 3.8)
    for axis, here in found:
        alpha = here[0]["alpha"]
        axis.axhline(alpha, color=GREEN, linestyle="--", label="the same alpha everywhere")
        label = "alpha to the power of the position"
        points(axis, here, "position", "iid_survival", "--", color=ORANGE, label=label)
        for name, color, label in (
            ("conditional", GREEN, "accepted, given all before it"),
            ("survival", BLACK, "accepted, and all before it"),
        ):
            bounds = (f"{name}_low", f"{name}_high")
            points(axis, here, "position", name, "o", *bounds, color=color, label=label)
        axis.set_xticks(values(here, "position"))
        axis.set_ylim(0, 1)
        axis.set_title(f"{axis.get_title()}, alpha = {alpha:.2f}", fontsize=10)
        axis.set_xlabel("position in the block")
    found[0][0].set_ylabel("share of draft tokens, 95 % interval")
    figure.suptitle("Chen23 Figure 1, on our models", fontsize=11)
    legend_below(figure, [found[0][0]], 2, 0.57)
    return figure


def swi(rows: Sequence[Row]) -> Figure:
    """Chen23 Table 2 on our models: SWI, which charges every verifying run 1, beside the speedup by
    the clock.
    """
    names = list(dict.fromkeys((row["scheme"], row["setting"]) for row in rows))

    def place(row: Row) -> int:
        return names.index((row["scheme"], row["setting"]))

    figure, found = panels(rows, 3.4, 6.0, beside=3.4)
    for axis, here in found:
        axis.axvline(1, color=GREY, linewidth=1)
        for mark, color, key, label in (
            ("s", BLUE, "swi_parameters", "SWI, parameters"),
            ("^", PURPLE, "swi_measured", "SWI, measured costs"),
        ):
            points(axis, here, key, place, mark, color=color, markersize=5,
                   label=f"{label}: counted")  # fmt: skip
            points(axis, here, f"{key}_law", place, mark, color=color, markersize=9,
                   fillstyle="none", label=f"{label}: law")  # fmt: skip
        points(axis, here, "measured_speedup", place, "o", "measured_low", "measured_high",
               color=BLACK, label="speedup by the clock, 95 %")  # fmt: skip
        axis.set_xlabel(_TIMES)
        axis.set_xlim(left=0)
    first = found[0][0]
    listed_down(first, [setting for _, setting in names])
    for label, (scheme, _) in zip(first.get_yticklabels(), names, strict=True):
        label.set_color(_KINDS[scheme])
    figure.suptitle(
        "Chen23 Table 2, on our models (blue: horizontal, green: vertical, orange: both)",
        fontsize=11,
    )
    legend_below(figure, [first], 3, 0.66)
    return figure


def search(rows: Sequence[Row]) -> Figure:
    """The best cascade of the law at both sets of costs, with its matrix of lengths (first line:
    before the target).
    """
    bars = {
        "one model": "best_single",
        "in a row (horizontal)": "best_horizontal",
        "the decoded cascade": "decoded_full",
        "the best cascade found": "best_full",
    }
    figure, axis = plt.subplots(figsize=(8.2, 4.0))
    groups = [f"temperature {row['temperature']:g},\n{row['costs']}" for row in rows]
    series = {label: values(rows, column) for label, column in bars.items()}
    grouped_bars(axis, groups, series, (BLACK, BLUE, GREY, ORANGE))
    for number, row in enumerate(rows):
        axis.annotate(
            row["full_lengths"], (number + 0.3, row["best_full"]), (0, 13),
            textcoords="offset points", ha="center", fontsize=8, color=ORANGE,
        )  # fmt: skip
    axis.set_ylabel(f"SWI of the law ({_TIMES})")
    axis.margins(y=0.2)
    axis.set_title("The best cascade of the law, and its matrix of lengths", fontsize=11)
    legend_below(figure, [axis], 4, 0.32)
    return figure
