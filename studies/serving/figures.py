"""The pictures of ``serving``: latencies and throughput by rate, predicted and measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
from matplotlib.figure import Figure

from specsim.report.frontier_plots import GREEN, PURPLE
from specsim.report.plots import BLACK, BLUE, GREY, ORANGE
from studies.common.figures import error_bars, legend_right, values
from studies.common.study import Row, where
from studies.serving.tables import LATENCIES

_COLORS = (BLACK, BLUE, ORANGE, GREEN, PURPLE)
_AXES = {
    "ttft": "time to first token (ms)",
    "tpot": "time per output token (ms)",
    "e2e": "end-to-end (ms)",
}


def latency_by_rate(rows: Sequence[Row]) -> Figure:
    """Mean latencies against the rate: lines are simulated from step times that were measured
    before, points are what clients of vLLM saw, with 95 % intervals.
    """
    figure, axes = plt.subplots(1, len(LATENCIES), figsize=(3.6 * len(LATENCIES) + 1.6, 3.6))
    for axis, latency in zip(axes, LATENCIES, strict=True):
        means = where(rows, latency=latency, statistic="mean", cache="large")
        for drafts, color in zip(dict.fromkeys(values(means, "drafts")), _COLORS, strict=False):
            name = "K by batch" if ":" in drafts else f"K = {drafts}"
            _series(axis, where(means, drafts=drafts), name, color)
        axis.set_xlabel("requests per second")
        axis.set_ylabel(_AXES[latency])
        axis.set_yscale("log")
    legend_right(figure, axes, 1.6)
    return figure


def _series(axis: Any, rows: Sequence[Row], name: str, color: str) -> None:
    rates, predicted, measured = (
        values(rows, column) for column in ("rate", "predicted_ms", "measured_ms")
    )
    axis.plot(rates, predicted, color=color, linewidth=1.2, label=name)
    bars = error_bars(rows, measured, "measured_ms_low", "measured_ms_high")
    axis.errorbar(rates, measured, yerr=bars, fmt="o", color=color, markersize=4, capsize=2)


def predicted_measured(rows: Sequence[Row]) -> Figure:
    """Mean and 99th percentile of every setting, predicted over measured; grey: 5 and 15 %."""
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.8), sharey=True)
    for axis, statistic, band in zip(axes, ("mean", "p99"), (0.05, 0.15), strict=True):
        for latency, color in zip(LATENCIES, (BLUE, ORANGE, GREEN), strict=True):
            found = where(rows, latency=latency, statistic=statistic)
            axis.plot(
                range(len(found)),
                [1 + row["relative_error"] for row in found],
                "o",
                color=color,
                markersize=4,
                label=_AXES[latency].removesuffix(" (ms)"),
            )
        names = values(where(rows, latency="e2e", statistic=statistic), "setting")
        axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axis.axhspan(1 - band, 1 + band, color=GREY, alpha=0.25, linewidth=0, zorder=0)
        axis.set_title(statistic, fontsize=10)
    axes[0].set_ylabel("predicted over measured")
    legend_right(figure, axes, 1.6)
    return figure
