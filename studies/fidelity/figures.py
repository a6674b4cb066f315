"""The pictures of ``fidelity``: predicted against measured, ours and other people's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
import numpy as np
from matplotlib.figure import Figure

from specsim.report.frontier_plots import GREEN
from specsim.report.plots import BLACK, BLUE, GREY, ORANGE
from studies.common.decoded import by_temperature
from studies.common.figures import (
    COLORS,
    Column,
    legend_above,
    legend_right,
    listed_down,
    panels,
    points,
    values,
)
from studies.common.study import Row, where
from studies.fidelity.formula import BAND, SCHEMES, SPECULATIVE, SPEEDUP, SYNTHETIC, TOKENS

_MARKS = {SCHEMES: (BLUE, "o"), SPECULATIVE: (BLACK, "s"), SYNTHETIC: (GREEN, "^")}
_GAMMA = "draft tokens per target call, gamma"


def predicted_measured(rows: Sequence[Row]) -> Figure:
    """Every prediction and its measurement, with 95 % intervals where timed (of the calibration's
    prompts without the luck of the draw, which the prediction knows); grey: equal within 5 %.
    """
    quantities = [each for each in (TOKENS, SPEEDUP) if each in values(rows, "quantity")]
    size = (4.4 * len(quantities) + 2.1, 4.2)
    figure, axes = plt.subplots(1, len(quantities), figsize=size, squeeze=False)
    for quantity, axis in zip(quantities, axes[0], strict=True):
        here = where(rows, quantity=quantity)
        _identity(axis, [row[side] for row in here for side in ("predicted", "measured")])
        for measurement, (color, mark) in _MARKS.items():
            _scatter(axis, where(here, measurement=measurement), color, mark)
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
        bounded = all(row["measured_low"] is not None for row in found)
        name = found[0]["measurement"].replace(", ", ",\n")
        if found[0]["temperature"] is not None:
            name += ",\ntemperature 0" if greedy else ",\nsampled"
        look: Any = {"color": color, "markerfacecolor": color if greedy else "white"}
        look |= {"markersize": 4.5, "linewidth": 0, "label": name}
        if bounded:
            look |= {"elinewidth": 0.7, "ecolor": GREY, "capsize": 0}
        bounds = ("measured_low", "measured_high") if bounded else ()
        points(axis, found, "predicted", "measured", mark, *bounds, **look)


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


def formula(rows: Sequence[Row]) -> Figure:
    """Speculative decoding: how far the papers' formula and the replay are from what was measured,
    on prompts that the calibration saw and on others; grey: 5 %.
    """
    figure, found = panels(rows, 3.6, 3.6, beside=1.9)
    for axis, here in found:
        axis.axhline(0.0, color=GREY, linewidth=1)
        axis.axhspan(-100 * BAND, 100 * BAND, color=GREY, alpha=0.2, linewidth=0)
        for name, color, label in (
            ("formula_error", ORANGE, "papers' formula"),
            ("replay_error", BLUE, "specsim: replay,\nmeasured run times"),
        ):
            for prompts, face in (("calibration", color), ("unseen", "white")):
                look: Any = {"color": color, "markerfacecolor": face, "markersize": 5}
                look["label"] = f"{label},\n{prompts} prompts"
                points(axis, where(here, prompts=prompts), "gamma", _percent(name), "o", **look)
        axis.set_xlabel(_GAMMA)
        axis.set_xticks(sorted(set(values(here, "gamma"))))
    found[0][0].set_ylabel("predicted over measured\nspeedup, less one (%)")
    legend_right(figure, [found[0][0]], 1.9)
    return figure


def _percent(name: str) -> Column:
    return lambda row: 100 * row[name]


def iid(rows: Sequence[Row]) -> Figure:
    """How far the papers' formula is from the replay of the same text."""
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.6))
    for axis, name, what in (
        (axes[0], "tokens_difference", "tokens per call"),
        (axes[1], "speedup_difference", "speedup"),
    ):
        axis.axhline(0.0, color=GREY, linewidth=1)
        for (temperature, here), color in zip(by_temperature(rows), COLORS, strict=False):
            label = f"temperature {temperature:g}"
            points(
                axis, here, "gamma", _percent(name), "o-", color=color, markersize=4, label=label
            )
        axis.set_xlabel(_GAMMA)
        axis.set_xticks(sorted(set(values(rows, "gamma"))))
        axis.set_ylabel(f"{what}: formula over replay,\nless one (%)")
    legend_right(figure, axes, 1.4)
    return figure


def laws(rows: Sequence[Row]) -> Figure:
    """Tokens per call by the law, by the replay and as counted. What lies between law and replay is
    lost by taking acceptance as alike everywhere; what lies between replay and count is chance, and
    runs that the replay approximates.
    """
    names = list(dict.fromkeys(values(rows, "setting")))
    figure, found = panels(rows, 3.4, 0.23 * len(names) + 1.6, beside=3.2)
    for axis, here in found:
        for source, color, mark, size in (
            ("law", ORANGE, "s", 6),
            ("replay", BLUE, "o", 6),
            ("measured", BLACK, "x", 5),
        ):
            look: Any = {"color": color, "markersize": size, "label": source}
            look |= {} if mark == "x" else {"fillstyle": "none"}
            column = f"{source}_tokens_per_call"
            points(axis, here, column, lambda row: names.index(row["setting"]), mark, **look)
        axis.set_xlabel("tokens per target call")
    listed_down(found[0][0], names)
    legend_above(figure, [found[0][0]], 3)
    return figure


def orderings(rows: Sequence[Row]) -> Figure:
    """Claims of the papers on our models; right of 1 they hold. Rules with thresholds are at one
    threshold, not at equal quality.
    """
    figure, axis = plt.subplots(figsize=(9.4, 0.27 * len(rows) + 1.2))
    axis.axvline(1.0, color=GREY, linewidth=1)
    for name, color, mark in (("predicted", BLUE, "o"), ("measured", BLACK, "x")):
        points(axis, rows, f"{name}_ratio", rows.index, mark, color=color, label=name)
    listed_down(axis, [f"{row['claim']} (T = {row['temperature']:g})" for row in rows])
    axis.set_xlabel("speedup of the one said to be faster, over the other's (times)")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9)
    figure.tight_layout()
    return figure


def public(printed: Sequence[Row], chains: Sequence[Row]) -> Figure:
    """The papers' formula on public measurements: with everything as printed, and extrapolated from
    shorter chains; grey: equal within 5 %.
    """
    figure, axes = plt.subplots(1, 3, figsize=(13.2, 4.4))
    theirs = [row for row in printed if row["source"].startswith("Leviathan")]
    others = [row for row in printed if row not in theirs]
    batches = {
        f"batch {batch}": (color, where(chains, batch=batch))
        for batch, color in (("1", BLUE), ("8", GREEN))
    }
    papers = {"T5 (Leviathan23)": (BLUE, theirs), "llama.cpp": (ORANGE, others)}
    for axis, series, name, unit, title in (
        (axes[0], papers, "speedup", "times plain decoding", "alpha, c and gamma as printed"),
        (axes[1], batches, "tokens_per_call", "tokens", "acceptance from the shortest chain"),
        (
            axes[2],
            batches,
            "speedup",
            "times plain decoding",
            "and block costs from the two shortest",
        ),
    ):
        sides = (f"formula_{name}", f"measured_{name}")
        found = [row for _, rows in series.values() for row in rows]
        complete = [row for row in found if all(row[side] for side in sides)]
        _identity(axis, [row[side] for row in complete for side in sides])
        for label, (color, rows) in series.items():
            points(axis, rows, *sides, "o", color=color, markersize=3.5, label=label)
        words = name.replace("_", " ")
        axis.set_xlabel(f"formula: {words} ({unit})")
        axis.set_ylabel(f"measured {words} ({unit})")
        axis.set_title(title, fontsize=10)
        axis.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    return figure


def specbundle(rows: Sequence[Row]) -> Figure:
    """SpecBundle's speedups by the cost law: with nothing of a target fitted, and with all rows but
    the one that is predicted; grey: equal within 5 %.
    """
    figure, axes = plt.subplots(1, 2, figsize=(11.6, 4.4))
    looks = [(color, mark) for mark in "o^s" for color in (BLUE, ORANGE, GREEN)]
    names = list(dict.fromkeys(values(rows, "target")))
    sides = ("predicted_speedup", "others_known_speedup")
    for axis, side, title in zip(
        axes, sides, ("nothing of the target known", "its other rows known"), strict=True
    ):
        _identity(axis, [row[name] for row in rows for name in (*sides, "measured_speedup")])
        for name, (color, mark) in zip(names, looks, strict=True):
            look: Any = {"color": color, "markersize": 3.5, "fillstyle": "none", "label": name}
            points(axis, where(rows, target=name), side, "measured_speedup", mark, **look)
        axis.set_xlabel("predicted speedup (times plain decoding)")
        axis.set_ylabel("measured speedup (times plain decoding)")
        axis.set_title(title, fontsize=10)
    legend_right(figure, axes, 2.7)
    return figure


def cost_curve(rows: Sequence[Row]) -> Figure:
    """What verification took by tokens, DeepSeek-V4-Flash on four B300: filled points were fitted,
    open ones judge the curve. The largest CUDA graph ends between 1,024 and 1,536 tokens, which is
    given.
    """
    figure, axis = plt.subplots(figsize=(6.4, 3.8))
    for run, color in (("verify, CUDA graph", BLUE), ("verify, behind the largest graph", ORANGE)):
        here = where(rows, run=run)
        points(axis, here, "size", "predicted_ms", "-", color=color, linewidth=1, label=run)
        for used, face in (("fitted", color), ("judged", "white")):
            look: Any = {"color": color, "markerfacecolor": face, "markersize": 5}
            points(axis, where(here, used=used), "size", "measured_ms", "o", **look)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("tokens of a verifying run")
    axis.set_ylabel("milliseconds")
    axis.legend(loc="upper left", fontsize=9)
    figure.tight_layout()
    return figure
