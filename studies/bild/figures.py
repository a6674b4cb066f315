"""The pictures of Kim23: the large model's share, thresholds against time, runs and operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
import numpy as np
from matplotlib.figure import Figure

from specsim.report.frontier_plots import AMBER, GREEN, PURPLE, SKY
from specsim.report.plots import BLACK, BLUE, GREY, ORANGE
from studies.common.figures import grouped_bars, legend_below, listed_down, panels, points, values
from studies.common.study import Row, where

_RULES = {
    "rollback": (BLUE, "where the large model finds it improbable"),
    "fallback": (ORANGE, "where the small model is unsure"),
}
_POLICIES = {"both": BLUE, "no rollback": ORANGE, "no fallback": GREEN}
# A legend through which no line shows.
_OVER_GRID: Any = {"frameon": True, "facecolor": "white", "edgecolor": "none", "framealpha": 1.0}
# One rollback threshold each.
_CURVES = (BLUE, GREEN, SKY, AMBER, ORANGE, PURPLE, BLACK)


def engagement(rows: Sequence[Row]) -> Figure:
    """Kim23 Figure 2 on our models: quality by the large model's share of the tokens, with 95 %
    bands of the distance from the large model.
    """
    shown = list(dict.fromkeys((row["temperature"], row["quality"]) for row in rows))
    down = -(-len(shown) // 2)
    figure, axes = plt.subplots(
        down, min(len(shown), 2), figsize=(8.8, 3.0 * down + 1.0), sharex=True, squeeze=False
    )
    for spare in axes.flat[len(shown) :]:
        spare.set_visible(False)
    for axis, (temperature, quality) in zip(axes.flat, shown, strict=False):
        here = where(rows, temperature=temperature, quality=quality)
        for rule, (color, label) in _RULES.items():
            _share(axis, where(here, decided_by=rule), color, label)
        axis.axvline(20, color=GREY, linewidth=1)
        axis.set_ylabel(f"{quality}{', nats' if quality == 'log-probability' else ''}")
        axis.set_title(f"temperature {temperature:g}", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("tokens of the large model (%)")
    figure.suptitle(
        "Kim23 Figure 2, on our models: the small model's token is replaced ...", fontsize=11
    )
    bands = "bands: 95 % interval of the distance from the large model (dotted)"
    legend_below(figure, axes[0], 2, 0.6, f"{bands}; upright line: 20 %")
    return figure


def _share(axis: Any, rows: Sequence[Row], color: str, label: str) -> None:
    if not rows:
        return
    share = [100 * row["large_share"] for row in rows]
    large = np.array(values(rows, "value")) - values(rows, "above_large")
    low, high = (large + values(rows, f"above_large_{end}") for end in ("low", "high"))
    axis.plot(share, values(rows, "value"), color=color, label=label)
    axis.fill_between(share, low, high, color=color, alpha=0.25, linewidth=0)
    axis.axhline(large[-1], color=GREY, linewidth=1, linestyle=":")


def _time(row: Row) -> float:
    """Per token, over plain decoding."""
    return float(1 / row["speedup"])


def latency(rows: Sequence[Row]) -> Figure:
    """Kim23 Figures 4, 5 and 10 on our models: accuracy and time per token by thresholds, on real
    text.
    """
    large = rows[0]["accuracy"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 4.6), sharex=True, sharey=True)
    widest = max(row["window"] or 0 for row in rows)
    both = [
        row for row in rows if row["policy"] in ("both", "no rollback") and row["window"] == widest
    ]
    for color, rollback in zip(_CURVES, sorted(set(values(both, "rollback"))), strict=False):
        curve = where(both, rollback=rollback)
        name = "never" if np.isinf(rollback) else f"{rollback:g}"
        points(left, curve, _time, "accuracy", "-", color=color, linewidth=1, label=name)
        sizes = [60 * row["fallback"] ** 2 for row in curve]
        left.scatter(values(curve, _time), values(curve, "accuracy"), sizes, color=color)
    for policy, color in _POLICIES.items():
        found = sorted(where(rows, policy=policy), key=_time)
        points(right, found, _time, "accuracy", ".", color=color, alpha=0.35)
        # The best accuracy within each time.
        best = np.maximum.accumulate(values(found, "accuracy"))
        right.plot(values(found, _time), best, drawstyle="steps-post", color=color, label=policy)
    for axis in (left, right):
        axis.axhline(large, color=GREY, linewidth=1, linestyle=":")
        axis.axhline(large - 0.01, color=GREY, linewidth=1, linestyle=":")
        axis.axvline(1, color=GREY, linewidth=1)
        axis.plot(1, large, "x", color=BLACK, markersize=8, linewidth=0, label="large alone")
        axis.set_xlabel("time per token over plain decoding (times)")
    left.set_ylabel("accuracy on real text, temperature 0")
    left.legend(title="rollback threshold (nats)", fontsize=9, title_fontsize=9, **_OVER_GRID)
    left.set_title(f"both policies, window {widest}; larger dots: larger fallback", fontsize=10)
    right.legend(fontsize=9, loc="lower right", **_OVER_GRID)
    right.set_title("the best of each policy", fontsize=10)
    figure.suptitle(
        "Kim23 Figures 4, 5 and 10, on our models (dotted: the large model's accuracy, and 0.01 "
        "less)",
        fontsize=11,
    )
    figure.tight_layout()
    return figure


def decoded(rows: Sequence[Row]) -> Figure:
    """Decoding with BiLD, predicted and measured with 95 % intervals."""
    figure, found = panels(rows, 3.6, 3.8, beside=3.0, sharey=False)
    for axis, here in found:
        axis.axvline(1, color=GREY, linewidth=1)
        points(axis, here, "measured_speedup", here.index, "o", "measured_low", "measured_high",
               color=BLACK, label="measured, 95 % interval")  # fmt: skip
        points(axis, here, "predicted_speedup", here.index, "D", color=BLUE, fillstyle="none",
               label="predicted")  # fmt: skip
        names = [f"{'lossless, ' if row['lossless'] else ''}{row['setting']}" for row in here]
        listed_down(axis, names)
        axis.set_xlim(left=0)
        axis.set_xlabel("speedup over plain decoding (times)")
    figure.suptitle("BiLD decoded, and the best lossless draft length", fontsize=11)
    legend_below(figure, [found[0][0]], 2, 0.3)
    return figure


def operations(rows: Sequence[Row]) -> Figure:
    """Kim23 Figure 8, and the same of our models."""
    quantities = {
        "operations": "operations",
        "memory_operations": "memory\noperations",
        "intensity": "arithmetic\nintensity",
        "speedup": "speedup",
    }
    ours = [row for row in rows if row["source"] not in ("Kim23 Figure 8", "computed")]
    shown = [row for row in rows if row not in ours] + ours[:5:2]
    figure, axis = plt.subplots(figsize=(8.6, 4.2))
    series = {row["method"]: [row[key] for key in quantities] for row in shown}
    grouped_bars(axis, list(quantities.values()), series, (BLACK, GREY, BLUE, SKY, GREEN))
    axis.set_ylabel("over plain decoding (times)")
    axis.margins(y=0.1)
    axis.set_title("Kim23 Figure 8, and on our models (fallback, rollback)", fontsize=11)
    legend_below(figure, [axis], 2, 0.7)
    return figure
