"""The pictures of ``studies.leviathan.page``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
import numpy as np

from specsim.report.frontier_plots import AMBER, GREEN, SKY
from specsim.report.plots import BLACK, BLUE, GREY, ORANGE, STYLE
from studies.common.study import Row, Tables
from studies.common.style import COLORS, end_label, error_bars, legend_above
from studies.leviathan.paper import COSTS, GAMMAS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLORS = (*COLORS, AMBER)


def draw(tables: Tables) -> dict[str, Figure]:
    with plt.rc_context(STYLE):
        drawn = {
            "speedup": _speedup(tables),
            "alpha": _alpha(tables["table3"]),
            "figure2": _figure2(tables),
            "figure3": _figure3(tables),
            "figure4": _figure4(tables),
            "lenience": _lenience(tables["table5"]),
            "cheap": _cheap(tables["cheap"]),
            "oracle": _oracle(tables),
        }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _series(rows: Sequence[Row], name: str) -> tuple[list[float], list[float]]:
    kept = [row for row in rows if row[name] is not None]
    return [row["alpha"] for row in kept], [row[name] for row in kept]


def _speedup(tables: Tables) -> Figure:
    """Predicted against measured: the paper's pairs, and ours."""
    decoded = [row for row in tables["pairs"] if row["measured"] is not None]
    ours = [row for row in decoded if row["formula_then"] is not None]
    panels = 2 if ours else 1
    figure, axes = plt.subplots(1, panels, figsize=(4.8 * panels, 4.4), squeeze=False)
    left = axes[0][0]
    theirs = tables["table4"]
    for draft, color, marker in (
        ("T5-small", BLUE, "o"),
        ("T5-base", ORANGE, "s"),
        ("T5-large", GREEN, "^"),
    ):
        rows = [row for row in theirs if row["draft"] == draft]
        left.plot(
            [row["our_exp"] for row in rows],
            [row["emp"] for row in rows],
            marker,
            color=color,
            label=draft,
        )
    left.set_title("the paper: T5-XXL on a TPU-v4", fontsize=10)
    left.set_xlabel("speedup by the formula (times)")
    left.set_ylabel("measured speedup (times)")
    if ours:
        _our_speedup(axes[0][1], ours)
    for axis in axes[0]:
        top = 1.05 * max(axis.get_xlim()[1], axis.get_ylim()[1])
        axis.plot([0, top], [0, top], color=GREY, linewidth=1, zorder=0)
        axis.set(xlim=(0, top), ylim=(0, top))
        axis.set_aspect("equal")
        axis.legend(loc="lower right", fontsize=9)
    figure.tight_layout()
    return figure


def _our_speedup(axis: Any, rows: Sequence[Row]) -> None:
    for column, color, marker, label in (
        ("formula_then", ORANGE, "s", "the formula"),
        ("replay_then", BLUE, "o", "replay and measured run times"),
    ):
        axis.errorbar(
            [row[column] for row in rows],
            [row["measured"] for row in rows],
            yerr=error_bars(rows, "measured"),
            fmt=marker,
            color=color,
            label=label,
            markersize=5,
            linewidth=1,
            capsize=2,
        )
    axis.set_title("our pair, with 95 % intervals", fontsize=10)
    axis.set_xlabel("predicted speedup (times)")


def _alpha(rows: Sequence[Row]) -> Figure:
    """Acceptance by drafter: one line of the picture per pair of models."""
    pairs = list(dict.fromkeys((row["target"], row["draft"]) for row in rows))
    temperatures = sorted({row["temperature"] for row in rows})
    colors = dict(zip(temperatures, COLORS, strict=False))
    figure, axis = plt.subplots(figsize=(8.2, 0.24 * len(pairs) + 1.3))
    for number, temperature in enumerate(temperatures):
        # Side by side, so that equal rates do not hide one another.
        shift = 0.24 * (number - (len(temperatures) - 1) / 2)
        shown = [row for row in rows if row["temperature"] == temperature]
        axis.plot(
            [row["alpha"] for row in shown],
            [pairs.index((row["target"], row["draft"])) + shift for row in shown],
            "o" if temperature == 0 else "D",
            color=colors.get(temperature, GREY),
            markersize=5,
            label=f"temperature {temperature:g}",
        )
        for row in shown:
            if "low" in row:
                at = pairs.index((row["target"], row["draft"])) + shift
                axis.plot([row["low"], row["high"]], [at, at], color=GREY, linewidth=1, zorder=1)
    targets = [target for target, _ in pairs]
    for at in range(1, len(pairs)):
        if targets[at] != targets[at - 1]:
            axis.axhline(at - 0.5, color=GREY, linewidth=0.8)
    axis.set_yticks(range(len(pairs)), [f"{draft} for {target}" for target, draft in pairs])
    axis.tick_params(axis="y", labelsize=8)
    axis.set(xlim=(0, 1), ylim=(len(pairs) - 0.5, -0.5))
    axis.set_xlabel("acceptance rate alpha")
    legend_above(figure, [axis], 4)
    return figure


def _figure2(tables: Tables) -> Figure:
    figure, axis = plt.subplots(figsize=(6.4, 4.4))
    own = [row for row in tables["pairs"] if "replay" in row]
    for gamma, color in zip(GAMMAS, _COLORS, strict=True):
        x, y = _series(tables["figure2"], f"gamma_{gamma}")
        axis.plot(x, y, color=color)
        end_label(axis, x, y, f"gamma = {gamma}", color)
        points = [row for row in own if row["gamma"] == gamma]
        axis.plot(
            [row["alpha"] for row in points],
            [row["tokens_by_replay"] for row in points],
            "o",
            color=color,
            markersize=5,
        )
    x, y = _series(tables["figure2"], "gamma_endless")
    axis.plot(x, y, "--", color=BLACK, linewidth=1)
    axis.annotate(
        "1/(1 - alpha)", (0.885, 9.2), (-8, 0), textcoords="offset points", ha="right", fontsize=9
    )
    axis.set(xlim=(0, 1), ylim=(1, 12), yscale="log")
    axis.set_yticks([1, 2, 3, 5, 7, 10], ["1", "2", "3", "5", "7", "10"])
    axis.minorticks_off()
    axis.set_xlabel("acceptance rate alpha")
    axis.set_ylabel("expected tokens per target call")
    axis.set_title("Leviathan23 Figure 2; dots: our pair by replay of its text", fontsize=10)
    figure.tight_layout()
    return figure


def _figure3(tables: Tables) -> Figure:
    figure, axis = plt.subplots(figsize=(6.4, 4.2))
    for c, color in zip(COSTS, _COLORS, strict=True):
        x, y = _series(tables["figure3"], f"c_{c:g}")
        axis.step(x, y, where="mid", color=color, label=f"c = {c:g}")
    axis.set(xlim=(0, 1), ylim=(0, 30))
    axis.set_xlabel("acceptance rate alpha")
    axis.set_ylabel("best draft tokens per target call, gamma")
    axis.legend(loc="upper left", fontsize=9)
    axis.set_title("Leviathan23 Figure 3: verification is free, acceptance i.i.d.", fontsize=10)
    figure.tight_layout()
    return figure


def _figure4(tables: Tables) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.2))
    for gamma, color in zip(GAMMAS, _COLORS, strict=True):
        x, y = _series(tables["figure4"], f"speed_{gamma}")
        left.plot(x, y, color=color)
        end_label(left, x, y, f"gamma = {gamma}", color)
        x, y = _series(tables["figure4"], f"operations_{gamma}")
        right.plot(x, y, color=color)
    left.set_ylabel("speedup (times)")
    right.set_ylabel("operations per token (times)")
    for axis in (left, right):
        axis.set_xlabel("acceptance rate alpha")
        axis.set(xlim=(0, 1), ylim=(0, 12.5))
    figure.suptitle("Leviathan23 Figure 4: speedup and operations at c = 0", fontsize=10)
    figure.tight_layout()
    return figure


def _lenience(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.4), sharey=True)
    theirs = [row for row in rows if row["source"].startswith("Leviathan23")]
    names = list(dict.fromkeys(row["draft"] for row in theirs))
    for name, color in zip(names, _COLORS, strict=False):
        points = sorted((row["lenience"], row["alpha"]) for row in theirs if row["draft"] == name)
        x, y = zip(*points, strict=True)
        left.plot(x, y, "o-", color=color, markersize=4)
        end_label(left, x, y, name, color)
    left.set_title("the paper: T5-XXL EnDe, temperature 1", fontsize=10)
    ours = [row for row in rows if not row["source"].startswith("Leviathan23")]
    groups = sorted({(row["temperature"], row["from"]) for row in ours})
    for (temperature, where), color in zip(groups, (*_COLORS, SKY, BLACK, GREY), strict=False):
        found = [row for row in ours if (row["temperature"], row["from"]) == (temperature, where)]
        found.sort(key=lambda row: float(row["lenience"]))
        alpha = [row["alpha"] for row in found]
        bars = error_bars(found, "alpha") if all("low" in row for row in found) else None
        right.errorbar(
            [row["lenience"] for row in found],
            alpha,
            yerr=bars,
            fmt="s--" if "gamma" in where else "o-",
            color=color,
            markersize=4,
            capsize=2,
            linewidth=1.2,
            label=f"temperature {temperature:g}, {where}",
        )
    right.set_title("our pair, with 95 % intervals", fontsize=10)
    if ours:
        right.legend(loc="lower left", fontsize=8)
    for axis in (left, right):
        axis.set(xlim=(0, 1.05), ylim=(0, 1))
        axis.set_xlabel("lenience l (1: none)")
    left.set_ylabel("acceptance rate alpha")
    figure.tight_layout()
    return figure


def _cheap(rows: Sequence[Row]) -> Figure | None:
    """What c = 0 promises, what v leaves of it, and what came out."""
    ours = [row for row in rows if row.get("temperature") is not None]
    if not ours:
        return None
    names = [f"{row['draft']}, temperature {row['temperature']:g}" for row in ours]
    figure, axis = plt.subplots(figsize=(8.2, 0.34 * len(ours) + 1.6))
    for at, row in enumerate(ours):
        if row["measured"] is not None:
            axis.plot([row["low"], row["high"]], [at, at], color=BLACK, linewidth=1)
    for column, marker, color, label in (
        ("speedup_at_c_0", "s", ORANGE, "formula, c = 0"),
        ("speedup_with_v", "D", BLUE, "the same with measured v"),
        ("measured", "o", BLACK, "measured, 95 % interval"),
    ):
        shown = [(row[column], at) for at, row in enumerate(ours) if row[column] is not None]
        if shown:
            axis.plot(*zip(*shown, strict=True), marker, color=color, markersize=5, label=label)
    axis.axvline(1, color=GREY, linewidth=1)
    axis.set_yticks(range(len(ours)), names)
    axis.set_ylim(len(ours) - 0.5, -0.5)
    axis.set_xlim(left=0)
    axis.set_xlabel("speedup over plain decoding (times)")
    legend_above(figure, [axis], 3)
    return figure


def _oracle(tables: Tables) -> Figure:
    figure, axis = plt.subplots(figsize=(6.4, 4.2))
    for c, color in zip(COSTS, _COLORS, strict=True):
        axis.plot(*_series(tables["figure_oracle"], f"c_{c:g}"), color=color, label=f"c = {c:g}")
    axis.axhline(100 / (np.e - 1), color=BLACK, linewidth=1, linestyle="--")
    axis.annotate(
        "least upper bound, 1/(e - 1)",
        (0.02, 100 / (np.e - 1)),
        (0, 4),
        textcoords="offset points",
        fontsize=9,
    )
    own = [row for row in tables["oracle"] if row["source"] != "computed"]
    axis.plot(
        [row["alpha"] for row in own],
        [row["gain_percent"] for row in own],
        "o",
        color=BLACK,
        markersize=5,
        label="our pair, from its\nsurvival curve (not i.i.d.)",
    )
    axis.set(xlim=(0, 1), ylim=(0, max([65, *(1.1 * row["gain_percent"] for row in own)])))
    axis.set_xlabel("acceptance rate alpha")
    axis.set_ylabel("gain of the oracle over the best gamma (%)")
    axis.legend(loc="upper left", bbox_to_anchor=(0.0, 0.86), fontsize=9)
    figure.tight_layout()
    return figure
