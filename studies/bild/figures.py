"""The pictures of ``studies.bild.page``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from specsim.report.frontier_plots import AMBER, GREEN, PURPLE, SKY
from specsim.report.plots import BLACK, BLUE, GREY, ORANGE, STYLE
from studies.common.study import Row, Tables
from studies.common.style import error_bars, legend_below

_RULES = {
    "rollback": (BLUE, "where the large model finds it improbable"),
    "fallback": (ORANGE, "where the small model is unsure"),
}
_POLICIES = {"both": BLUE, "no rollback": ORANGE, "no fallback": GREEN}
# A legend through which no line shows.
_OVER_GRID: Any = {"frameon": True, "facecolor": "white", "edgecolor": "none", "framealpha": 1.0}
# One rollback threshold each.
_CURVES = (BLUE, GREEN, SKY, AMBER, ORANGE, PURPLE, BLACK)


def draw(tables: Tables) -> dict[str, Figure]:
    figures = {}
    if tables["engagement"]:
        figures["engagement"] = _engagement(tables["engagement"])
    if tables["latency"]:
        figures["latency"] = _latency(tables["latency"])
    if tables["decoded"]:
        figures["decoded"] = _decoded(tables["decoded"])
    figures["operations"] = _operations(tables["operations"])
    return figures


def _engagement(rows: Sequence[Row]) -> Figure:
    """Quality over the large model's share, with the interval of its distance from the large."""
    panels = list(dict.fromkeys((row["temperature"], row["quality"]) for row in rows))
    down = -(-len(panels) // 2)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            down, min(len(panels), 2), figsize=(8.8, 3.0 * down + 1.0), sharex=True, squeeze=False
        )
        for spare in axes.flat[len(panels) :]:
            spare.set_visible(False)
        for axis, (temperature, quality) in zip(axes.flat, panels, strict=False):
            for rule, (color, label) in _RULES.items():
                here = [
                    row
                    for row in rows
                    if (row["temperature"], row["quality"], row["decided_by"])
                    == (temperature, quality, rule)
                ]
                if not here:
                    continue
                share = [100 * row["large_share"] for row in here]
                value = np.array([row["value"] for row in here])
                large = value - [row["above_large"] for row in here]
                axis.plot(share, value, color=color, label=label)
                axis.fill_between(
                    share,
                    large + [row["above_large_low"] for row in here],
                    large + [row["above_large_high"] for row in here],
                    color=color,
                    alpha=0.25,
                    linewidth=0,
                )
                axis.axhline(large[-1], color=GREY, linewidth=1, linestyle=":")
            axis.axvline(20, color=GREY, linewidth=1)
            unit = ", nats" if quality == "log-probability" else ""
            axis.set_ylabel(f"{quality}{unit}")
            axis.set_title(f"temperature {temperature:g}", fontsize=10)
        for axis in axes[-1]:
            axis.set_xlabel("tokens of the large model (%)")
        figure.suptitle(
            "Kim23 Figure 2, on our models: the small model's token is replaced ...", fontsize=11
        )
        bands = "bands: 95 % interval of the distance from the large model (dotted)"
        legend_below(figure, axes[0], 2, 0.6, f"{bands}; upright line: 20 %")
    return figure


def _latency(rows: Sequence[Row]) -> Figure:
    """Curves of one rollback threshold each (Figure 10), and the best of each policy (Figure 5)."""
    large = rows[0]["accuracy"]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(10.4, 4.6), sharex=True, sharey=True)
        both = [row for row in rows if row["policy"] in ("both", "no rollback")]
        widest = max(row["window"] for row in both)
        both = [row for row in both if row["window"] == widest]
        for color, rollback in zip(
            _CURVES, sorted({row["rollback"] for row in both}), strict=False
        ):
            curve = [row for row in both if row["rollback"] == rollback]
            name = "never" if np.isinf(rollback) else f"{rollback:g}"
            _points(axes[0], curve, color, name)
        for policy, color in _POLICIES.items():
            found = [row for row in rows if row["policy"] == policy]
            axes[1].plot(
                [1 / row["speedup"] for row in found],
                [row["accuracy"] for row in found],
                ".",
                color=color,
                alpha=0.35,
            )
            latency, accuracy = _best(found)
            axes[1].plot(latency, accuracy, drawstyle="steps-post", color=color, label=policy)
        for axis in axes:
            axis.axhline(large, color=GREY, linewidth=1, linestyle=":")
            axis.axhline(large - 0.01, color=GREY, linewidth=1, linestyle=":")
            axis.axvline(1, color=GREY, linewidth=1)
            axis.plot(1, large, "x", color=BLACK, markersize=8, linewidth=0, label="large alone")
            axis.set_xlabel("time per token over plain decoding (times)")
        axes[0].set_ylabel("accuracy on real text, temperature 0")
        axes[0].legend(
            title="rollback threshold (nats)", fontsize=9, title_fontsize=9, **_OVER_GRID
        )
        axes[0].set_title(
            f"both policies, window {widest}; larger dots: larger fallback", fontsize=10
        )
        axes[1].legend(fontsize=9, loc="lower right", **_OVER_GRID)
        axes[1].set_title("the best of each policy", fontsize=10)
        figure.suptitle("Kim23 Figures 4, 5 and 10, on our models (dotted: the large model's "
                        "accuracy, and 0.01 less)", fontsize=11)  # fmt: skip
        figure.tight_layout()
    return figure


def _points(axis: Any, curve: Sequence[Row], color: str, name: str) -> None:
    latency = [1 / row["speedup"] for row in curve]
    accuracy = [row["accuracy"] for row in curve]
    axis.plot(latency, accuracy, color=color, linewidth=1, marker=".", markersize=1, label=name)
    axis.scatter(latency, accuracy, [60 * row["fallback"] ** 2 for row in curve], color=color)


def _best(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """The best accuracy within each latency."""
    ordered = sorted(rows, key=lambda row: 1 / row["speedup"])
    best = np.maximum.accumulate([row["accuracy"] for row in ordered])
    return [1 / row["speedup"] for row in ordered], best.tolist()


def _decoded(rows: Sequence[Row]) -> Figure:
    """Predicted and measured speed of every decoded setting."""
    temperatures = sorted({row["temperature"] for row in rows})
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(temperatures), figsize=(3.0 + 3.6 * len(temperatures), 3.8), squeeze=False
        )
        for axis, temperature in zip(axes[0], temperatures, strict=True):
            here = [row for row in rows if row["temperature"] == temperature][::-1]
            at = np.arange(len(here))
            best = [row["measured_speedup"] for row in here]
            bars = error_bars(here, "measured_speedup", "measured_low", "measured_high")
            axis.axvline(1, color=GREY, linewidth=1)
            axis.errorbar(best, at, xerr=bars, fmt="o", color=BLACK, markersize=4, capsize=2,
                          label="measured, 95 % interval")  # fmt: skip
            axis.plot([row["predicted_speedup"] for row in here], at, "D", color=BLUE,
                      fillstyle="none", label="predicted")  # fmt: skip
            axis.set_yticks(at)
            axis.set_yticklabels(
                [f"{'lossless, ' if row['lossless'] else ''}{row['setting']}" for row in here],
                fontsize=9,
            )
            axis.set_xlim(left=0)
            axis.margins(y=0.1)
            axis.set_title(f"temperature {temperature:g}", fontsize=10)
            axis.set_xlabel("speedup over plain decoding (times)")
        figure.suptitle("BiLD decoded, and the best lossless draft length", fontsize=11)
        legend_below(figure, axes[0], 2, 0.3)
    return figure


def _operations(rows: Sequence[Row]) -> Figure:
    """The four bars of Figure 8, for the paper and for us."""
    quantities = {
        "operations": "operations",
        "memory_operations": "memory\noperations",
        "intensity": "arithmetic\nintensity",
        "speedup": "speedup",
    }
    ours = [row for row in rows if row["source"] not in ("Kim23 Figure 8", "computed")]
    shown = [row for row in rows if row not in ours] + ours[:5:2]
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8.6, 4.2))
        width = 0.8 / len(shown)
        for number, (row, color) in enumerate(
            zip(shown, (BLACK, GREY, BLUE, SKY, GREEN), strict=False)
        ):
            at = np.arange(len(quantities)) + (number - (len(shown) - 1) / 2) * width
            known = [(x, row[key]) for x, key in zip(at, quantities, strict=True) if row[key]]
            drawn = axis.bar(
                [x for x, _ in known],
                [value for _, value in known],
                width * 0.92,
                color=color,
                label=row["method"],
            )
            axis.bar_label(drawn, fmt="%.2f", fontsize=8, padding=2)
        axis.set_axisbelow(True)
        axis.axhline(1, color=GREY, linewidth=1, zorder=0.9)
        axis.set_xticks(range(len(quantities)))
        axis.set_xticklabels(list(quantities.values()))
        axis.grid(axis="x", visible=False)
        axis.set_ylabel("over plain decoding (times)")
        axis.margins(y=0.1)
        axis.set_title("Kim23 Figure 8, and on our models (fallback, rollback)", fontsize=11)
        legend_below(figure, [axis], 2, 0.7)
    return figure
