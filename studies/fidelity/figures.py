"""The pictures of ``fidelity``: predicted against measured, ours and other people's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
import numpy as np

from specsim.report.frontier_plots import GREEN
from specsim.report.plots import BLACK, BLUE, GREY, ORANGE, STYLE
from studies.common.study import Row, Tables
from studies.common.style import COLORS, error_bars, legend_right
from studies.fidelity.formula import BAND, SCHEMES, SPECULATIVE, SPEEDUP, SYNTHETIC, TOKENS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKS = {SCHEMES: (BLUE, "o"), SPECULATIVE: (BLACK, "s"), SYNTHETIC: (GREEN, "^")}


def draw(tables: Tables) -> dict[str, Figure]:
    found: dict[str, tuple[str, Callable[[Sequence[Row]], Figure]]] = {
        "predicted_measured": ("points", _points),
        "formula": ("formula", _formula),
        "iid": ("iid", _iid),
        "orderings": ("orderings", _orderings),
    }
    drawn = {name: make(tables[table]) for name, (table, make) in found.items() if tables[table]}
    return {**drawn, "public": _public(tables)}


def _points(rows: Sequence[Row]) -> Figure:
    quantities = [each for each in (TOKENS, SPEEDUP) if any(r["quantity"] == each for r in rows)]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(quantities), figsize=(4.4 * len(quantities) + 2.1, 4.2), squeeze=False
        )
        for quantity, axis in zip(quantities, axes[0], strict=True):
            here = [row for row in rows if row["quantity"] == quantity]
            _identity(axis, [row[side] for row in here for side in ("predicted", "measured")])
            for measurement, (color, mark) in _MARKS.items():
                _scatter(axis, [r for r in here if r["measurement"] == measurement], color, mark)
            unit = "tokens" if quantity == TOKENS else "times plain decoding"
            axis.set_xlabel(f"predicted {quantity} ({unit})")
            axis.set_ylabel(f"measured {quantity} ({unit})")
        legend_right(figure, axes[0], 2.1)
    return figure


def _scatter(axis: Any, rows: Sequence[Row], color: str, mark: str) -> None:
    """Temperature 0 filled, the others open."""
    for greedy in (True, False):
        found = [row for row in rows if (row["temperature"] == 0) == greedy]
        if not found:
            continue
        bars = None
        if all(row["measured_low"] is not None for row in found):
            bars = error_bars(found, "measured", "measured_low", "measured_high")
        name = found[0]["measurement"].replace(", ", ",\n")
        if found[0]["temperature"] is not None:
            name += ",\ntemperature 0" if greedy else ",\nsampled"
        axis.errorbar(
            [row["predicted"] for row in found],
            [row["measured"] for row in found],
            yerr=bars,
            fmt=mark,
            color=color,
            markerfacecolor=color if greedy else "white",
            markersize=4.5,
            linewidth=0,
            elinewidth=0.7,
            ecolor=GREY,
            label=name,
        )


def _identity(axis: Any, values: Sequence[float]) -> None:
    """Log-log, equal axes, the identity with its band."""
    low, high = min(values) / 1.15, max(values) * 1.15
    line = np.array([low, high])
    axis.plot(line, line, color=GREY, linewidth=1, zorder=0)
    axis.fill_between(
        line, line * (1 - BAND), line * (1 + BAND), color=GREY, alpha=0.25, linewidth=0, zorder=0
    )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(low, high)
    axis.set_ylim(low, high)
    ticks = [tick for tick in (0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10) if low <= tick <= high]
    for side in (axis.xaxis, axis.yaxis):
        side.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        side.set_ticks([], minor=True)
    axis.set_aspect("equal")


def _formula(rows: Sequence[Row]) -> Figure:
    """Signed error of both predictions against what was measured, by gamma."""
    temperatures = sorted({row["temperature"] for row in rows})
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1,
            len(temperatures),
            figsize=(3.6 * len(temperatures) + 1.9, 3.6),
            sharey=True,
            squeeze=False,
        )
        for temperature, axis in zip(temperatures, axes[0], strict=True):
            here = [row for row in rows if row["temperature"] == temperature]
            axis.axhline(0.0, color=GREY, linewidth=1)
            axis.axhspan(-100 * BAND, 100 * BAND, color=GREY, alpha=0.2, linewidth=0)
            for name, color, label in (
                ("formula_error", ORANGE, "papers' formula"),
                ("replay_error", BLUE, "specsim: replay,\nmeasured run times"),
            ):
                for prompts, face in (("calibration", color), ("unseen", "white")):
                    found = [row for row in here if row["prompts"] == prompts]
                    mark = {"color": color, "markerfacecolor": face, "markersize": 5}
                    _percent(axis, found, name, "o", label=f"{label},\n{prompts} prompts", **mark)
            axis.set_title(f"temperature {temperature:g}", fontsize=10)
            axis.set_xlabel("draft tokens per target call, gamma")
            axis.set_xticks(sorted({row["gamma"] for row in here}))
        axes[0][0].set_ylabel("predicted over measured\nspeedup, less one (%)")
        legend_right(figure, axes[0], 1.9)
    return figure


def _percent(axis: Any, rows: Sequence[Row], name: str, mark: str, **look: Any) -> None:
    """A share by gamma."""
    axis.plot([row["gamma"] for row in rows], [100 * row[name] for row in rows], mark, **look)


def _iid(rows: Sequence[Row]) -> Figure:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.6))
        for axis, name, what in (
            (axes[0], "tokens_difference", "tokens per call"),
            (axes[1], "speedup_difference", "speedup"),
        ):
            axis.axhline(0.0, color=GREY, linewidth=1)
            temperatures = sorted({row["temperature"] for row in rows})
            for temperature, color in zip(temperatures, COLORS, strict=False):
                here = [row for row in rows if row["temperature"] == temperature]
                label = f"temperature {temperature:g}"
                _percent(axis, here, name, "o-", label=label, color=color, markersize=4)
            axis.set_xlabel("draft tokens per target call, gamma")
            axis.set_xticks(sorted({row["gamma"] for row in rows}))
            axis.set_ylabel(f"{what}: formula over replay,\nless one (%)")
        legend_right(figure, axes, 1.4)
    return figure


def _orderings(rows: Sequence[Row]) -> Figure:
    """Each claim as a ratio of speedups; right of 1 it holds."""
    labels = [f"{row['claim']} (T = {row['temperature']:g})" for row in rows]
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(9.4, 0.27 * len(rows) + 1.2))
        places = np.arange(len(rows))[::-1]
        axis.axvline(1.0, color=GREY, linewidth=1)
        for name, color, mark, label in (
            ("predicted_ratio", BLUE, "o", "predicted"),
            ("measured_ratio", BLACK, "x", "measured"),
        ):
            axis.plot([row[name] for row in rows], places, mark, color=color, label=label)
        axis.set_yticks(places, labels=labels, fontsize=9)
        axis.set_ylim(-0.7, len(rows) - 0.3)
        axis.set_xlabel("speedup of the one said to be faster, over the other's (times)")
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9)
        figure.tight_layout()
    return figure


def _public(tables: Tables) -> Figure:
    """The formula on other people's measurements: outright, and from a shorter chain."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(13.2, 4.4))
        printed = tables["public_formula"]
        _identity(axes[0], [r[n] for r in printed for n in ("formula_speedup", "measured_speedup")])
        axes[0].set_title("alpha, c and gamma as printed", fontsize=10)
        for start, color, label in (
            ("Leviathan", BLUE, "T5 (Leviathan23)"),
            ("", ORANGE, "llama.cpp"),
        ):
            found = [
                row
                for row in printed
                if row["source"].startswith("Leviathan") == (start == "Leviathan")
            ]
            x, y = ([row[n] for row in found] for n in ("formula_speedup", "measured_speedup"))
            axes[0].plot(x, y, "o", color=color, markersize=4.5, label=label)
        _reach(axes[1], tables["public_chains"], "tokens_per_call", "tokens per call (tokens)")
        axes[1].set_title("acceptance from the shortest chain", fontsize=10)
        _reach(axes[2], tables["public_chains"], "speedup", "speedup (times plain decoding)")
        axes[2].set_title("and block costs from the two shortest", fontsize=10)
        axes[0].set_xlabel("formula: speedup (times plain decoding)")
        axes[0].set_ylabel("measured speedup (times plain decoding)")
        for axis in axes:
            axis.legend(loc="upper left", fontsize=8)
        figure.tight_layout()
    return figure


def _reach(axis: Any, rows: Sequence[Row], name: str, label: str) -> None:
    complete = [row for row in rows if row[f"formula_{name}"] and row[f"measured_{name}"]]
    sides = (f"formula_{name}", f"measured_{name}")
    _identity(axis, [row[side] for row in complete for side in sides])
    for color, batch in ((BLUE, "1"), (GREEN, "8")):
        x, y = ([row[side] for row in complete if row["batch"] == batch] for side in sides)
        if x:
            axis.plot(x, y, ".", color=color, markersize=5, label=f"batch {batch}")
    axis.set_xlabel(f"formula: {label}")
    axis.set_ylabel(f"measured {label}")
