"""The pictures of ``studies.csdrafting.page``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from specsim.report.frontier_plots import GREEN, PURPLE
from specsim.report.plots import BLACK, BLUE, GREY, ORANGE, STYLE
from studies.common.study import Row, Tables
from studies.common.style import error_bars, legend_below
from studies.csdrafting.paper import t5_speed

# Tokens of T5-small behind five of T5-base.
_SECOND = np.arange(0, 16)
_KINDS = {"speculative": BLACK, "horizontal": BLUE, "vertical": GREEN, "full": ORANGE}


def draw(tables: Tables) -> dict[str, Figure]:
    figures = {"allocation": _allocation(tables["table1"]), "positions": _by(tables["positions"])}
    if tables["swi"]:
        figures["swi"] = _swi(tables["swi"])
    if tables["search"]:
        figures["search"] = _search(tables["search"])
    return figures


def _allocation(rows: Sequence[Row]) -> Figure:
    """EWIF against the second drafter's share, the printed and the best one marked."""
    cascades = [row for row in rows if "," in row["allocation"]]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(cascades), figsize=(4.4 * len(cascades), 3.4))
        for axis, row in zip(np.atleast_1d(axes), cascades, strict=True):
            first, second = (share.rsplit(" ", 1) for share in row["allocation"].split(", "))
            count, printed = int(first[1]), int(second[1])
            speeds = [
                t5_speed(row["dataset"], {first[0]: count, second[0]: int(n)}) for n in _SECOND
            ]
            best = int(np.argmax(speeds))
            axis.plot(_SECOND, speeds, color=BLUE, marker=".")
            axis.plot(printed, row["printed"], "o", color=ORANGE, markersize=8, fillstyle="none")
            axis.annotate(
                f"printed: {row['printed']:.2f}",
                (printed, row["printed"]),
                (8, -22),
                textcoords="offset points",
                color=ORANGE,
            )
            axis.plot(best, speeds[best], "D", color=BLACK, markersize=6)
            axis.annotate(
                f"best: {speeds[best]:.3f}",
                (best, speeds[best]),
                (0, 9),
                textcoords="offset points",
                ha="center",
            )
            axis.margins(y=0.2)
            axis.set_xticks(_SECOND[::3])
            axis.set_title(f"{row['dataset']}, {count} of {first[0]} first", fontsize=10)
            axis.set_xlabel(f"tokens of {second[0]} behind them")
        np.atleast_1d(axes)[0].set_ylabel("EWIF (times plain decoding)")
        figure.suptitle("Chen23 Table 1: horizontal cascades of T5", fontsize=11)
        figure.tight_layout()
    return figure


def _by(rows: Sequence[Row]) -> Figure:
    """Acceptance by position: given all before it, and from the start of the block."""
    temperatures = sorted({row["temperature"] for row in rows})
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(temperatures), figsize=(4.4 * len(temperatures), 3.8), sharey=True, squeeze=False
        )
        for axis, temperature in zip(axes[0], temperatures, strict=True):
            here = [row for row in rows if row["temperature"] == temperature]
            at = np.array([row["position"] for row in here])
            alpha = here[0]["alpha"]
            axis.axhline(alpha, color=GREEN, linestyle="--", label="the same alpha everywhere")
            axis.plot(at, [row["iid_survival"] for row in here], "--", color=ORANGE,
                      label="alpha to the power of the position")  # fmt: skip
            for name, color, label in (
                ("conditional", GREEN, "accepted, given all before it"),
                ("survival", BLACK, "accepted, and all before it"),
            ):
                best = [row[name] for row in here]
                bars = error_bars(here, name, f"{name}_low", f"{name}_high")
                axis.errorbar(at, best, yerr=bars, fmt="o", color=color, markersize=4, capsize=2,
                              label=label)  # fmt: skip
            axis.set_xticks(at)
            axis.set_ylim(0, 1)
            axis.set_title(f"temperature {temperature:g}, alpha = {alpha:.2f}", fontsize=10)
            axis.set_xlabel("position in the block")
        axes[0][0].set_ylabel("share of draft tokens, 95 % interval")
        figure.suptitle("Chen23 Figure 1, on our models", fontsize=11)
        legend_below(figure, axes[0], 2, 0.57)
    return figure


def _swi(rows: Sequence[Row]) -> Figure:
    """SWI of every decoded setting, and the clock's speedup."""
    temperatures = sorted({row["temperature"] for row in rows})
    names = list(dict.fromkeys((row["scheme"], row["setting"]) for row in rows))
    place = {name: len(names) - i for i, name in enumerate(names)}
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(temperatures), figsize=(3.4 + 3.4 * len(temperatures), 6.0), sharey=True,
            squeeze=False,
        )  # fmt: skip
        for axis, temperature in zip(axes[0], temperatures, strict=True):
            here = [row for row in rows if row["temperature"] == temperature]
            axis.axvline(1, color=GREY, linewidth=1)
            for marker, color, key, label in (
                ("s", BLUE, "swi_parameters", "SWI, parameters"),
                ("^", PURPLE, "swi_measured", "SWI, measured costs"),
            ):
                known = [row for row in here if row[key] is not None]
                at = [place[row["scheme"], row["setting"]] for row in known]
                axis.plot([row[key] for row in known], at, marker, color=color, markersize=5,
                          label=f"{label}: counted")  # fmt: skip
                law = [row for row in known if row[f"{key}_law"] is not None]
                axis.plot(
                    [row[f"{key}_law"] for row in law],
                    [place[row["scheme"], row["setting"]] for row in law],
                    marker, color=color, markersize=9, fillstyle="none", label=f"{label}: law",
                )  # fmt: skip
            at = [place[row["scheme"], row["setting"]] for row in here]
            best = [row["measured_speedup"] for row in here]
            bars = error_bars(here, "measured_speedup", "measured_low", "measured_high")
            axis.errorbar(best, at, xerr=bars, fmt="o", color=BLACK, markersize=4, capsize=2,
                          label="speedup by the clock, 95 %")  # fmt: skip
            axis.set_title(f"temperature {temperature:g}", fontsize=10)
            axis.set_xlabel("times plain decoding")
            axis.set_xlim(left=0)
        axes[0][0].set_yticks(list(place.values()))
        axes[0][0].set_yticklabels([setting for _, setting in names], fontsize=9)
        for label, (scheme, _) in zip(axes[0][0].get_yticklabels(), names, strict=True):
            label.set_color(_KINDS[scheme])
        figure.suptitle(
            "Chen23 Table 2, on our models (blue: horizontal, green: vertical, orange: both)",
            fontsize=11,
        )
        legend_below(figure, axes[0], 3, 0.66)
    return figure


def _search(rows: Sequence[Row]) -> Figure:
    """What the search found, beside one model, two in a row, and the decoded matrix."""
    bars: tuple[tuple[str, str, Any], ...] = (
        ("best_single", "one model", BLACK),
        ("best_horizontal", "in a row (horizontal)", BLUE),
        ("decoded_full", "the decoded cascade", GREY),
        ("best_full", "the best cascade found", ORANGE),
    )
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8.2, 4.0))
        width = 0.19
        for number, (key, label, color) in enumerate(bars):
            at = np.arange(len(rows)) + (number - 1.5) * width
            drawn = axis.bar(at, [row[key] for row in rows], width * 0.92, color=color, label=label)
            axis.bar_label(drawn, fmt="%.2f", fontsize=8, padding=2)
        for number, row in enumerate(rows):
            axis.annotate(
                row["full_lengths"], (number + 1.5 * width, row["best_full"]), (0, 13),
                textcoords="offset points", ha="center", fontsize=8, color=ORANGE,
            )  # fmt: skip
        axis.set_axisbelow(True)
        axis.axhline(1, color=GREY, linewidth=1, zorder=0.9)
        axis.set_xticks(range(len(rows)))
        axis.set_xticklabels(
            [f"temperature {row['temperature']:g},\n{row['costs']}" for row in rows]
        )
        axis.set_ylabel("SWI of the law (times plain decoding)")
        axis.margins(y=0.2)
        axis.grid(axis="x", visible=False)
        axis.set_title("The best cascade of the law, and its matrix of lengths", fontsize=11)
        legend_below(figure, [axis], 4, 0.32)
    return figure
