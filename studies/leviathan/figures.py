"""The pictures of Leviathan23: speedups, acceptance by drafter, its curves, its oracle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
from matplotlib.figure import Figure

from specsim.report.frontier_plots import AMBER, GREEN, SKY
from specsim.report.plots import BLACK, BLUE, GREY, ORANGE
from studies.common.figures import COLORS, end_label, legend_above, listed_down, points, values
from studies.common.study import Row, where
from studies.leviathan.paper import COSTS, GAMMAS

_COLORS = (*COLORS, AMBER)
_ALPHA = "acceptance rate alpha"


def speedup(table4: Sequence[Row], pairs: Sequence[Row]) -> Figure:
    """Measured against predicted speedup: the paper's Table 4, and our pair with its 95 %
    intervals.
    """
    decoded = [row for row in pairs if row["formula_then"] is not None]
    panels = 2 if decoded else 1
    figure, axes = plt.subplots(1, panels, figsize=(4.8 * panels, 4.4), squeeze=False)
    for draft, color, mark in (
        ("T5-small", BLUE, "o"),
        ("T5-base", ORANGE, "s"),
        ("T5-large", GREEN, "^"),
    ):
        points(
            axes[0][0], where(table4, draft=draft), "our_exp", "emp", mark, color=color, label=draft
        )
    axes[0][0].set_title("the paper: T5-XXL on a TPU-v4", fontsize=10)
    axes[0][0].set_xlabel("speedup by the formula (times)")
    axes[0][0].set_ylabel("measured speedup (times)")
    for axis in axes[0][1:]:
        for column, color, mark, label in (
            ("formula_then", ORANGE, "s", "the formula"),
            ("replay_then", BLUE, "o", "replay and measured run times"),
        ):
            points(axis, decoded, column, "measured", mark, "low", "high", color=color, label=label)
        axis.set_title("our pair, with 95 % intervals", fontsize=10)
        axis.set_xlabel("predicted speedup (times)")
    for axis in axes[0]:
        top = 1.05 * max(axis.get_xlim()[1], axis.get_ylim()[1])
        axis.plot([0, top], [0, top], color=GREY, linewidth=1, zorder=0)
        axis.set(xlim=(0, top), ylim=(0, top))
        axis.set_aspect("equal")
        axis.legend(loc="lower right", fontsize=9)
    figure.tight_layout()
    return figure


def alpha(rows: Sequence[Row]) -> Figure:
    """Acceptance by drafter, the paper's Table 3 above and ours below; bars are 95 % intervals,
    several dots are several draft lengths.
    """
    pairs = list(dict.fromkeys((row["target"], row["draft"]) for row in rows))
    temperatures = sorted({row["temperature"] for row in rows})
    figure, axis = plt.subplots(figsize=(8.2, 0.24 * len(pairs) + 1.3))
    for number, temperature in enumerate(temperatures):
        # Side by side, so that equal rates do not hide one another.
        shift = 0.24 * (number - (len(temperatures) - 1) / 2)

        def place(row: Row, shift: float = shift) -> float:
            return pairs.index((row["target"], row["draft"])) + shift

        shown = where(rows, temperature=temperature)
        mark, color = "o" if temperature == 0 else "D", (*COLORS, *[GREY] * number)[number]
        label = f"temperature {temperature:g}"
        points(axis, shown, "alpha", place, mark, color=color, markersize=5, label=label)
        bounded = [row for row in shown if row.get("low") is not None]
        points(axis, bounded, "alpha", place, "none", "low", "high", ecolor=GREY, zorder=1)
    for at in range(1, len(pairs)):
        if pairs[at][0] != pairs[at - 1][0]:
            axis.axhline(at - 0.5, color=GREY, linewidth=0.8)
    listed_down(axis, [f"{draft} for {target}" for target, draft in pairs], 8)
    axis.set_xlim(0, 1)
    axis.set_xlabel(_ALPHA)
    legend_above(figure, [axis], 4)
    return figure


def figure2(curves: Sequence[Row], pairs: Sequence[Row]) -> Figure:
    """Leviathan23 Figure 2: expected tokens per target call. Dots are our pair by replay of its
    text; where acceptance is not i.i.d. they leave the curve of their colour.
    """
    figure, axis = plt.subplots(figsize=(6.4, 4.4))
    own = [row for row in pairs if "replay" in row]
    for gamma, color in zip(GAMMAS, _COLORS, strict=True):
        _curve(axis, curves, f"gamma_{gamma}", color, f"gamma = {gamma}")
        points(
            axis, where(own, gamma=gamma), "alpha", "tokens_by_replay", color=color, markersize=5
        )
    points(axis, curves, "alpha", "gamma_endless", "--", color=BLACK, linewidth=1)
    axis.annotate(
        "1/(1 - alpha)", (0.885, 9.2), (-8, 0), textcoords="offset points", ha="right", fontsize=9
    )
    axis.set(xlim=(0, 1), ylim=(1, 12), yscale="log")
    axis.set_yticks([1, 2, 3, 5, 7, 10], ["1", "2", "3", "5", "7", "10"])
    axis.minorticks_off()
    axis.set_xlabel(_ALPHA)
    axis.set_ylabel("expected tokens per target call")
    axis.set_title("Leviathan23 Figure 2; dots: our pair by replay of its text", fontsize=10)
    figure.tight_layout()
    return figure


def _curve(axis: Any, rows: Sequence[Row], column: str, color: str, label: str) -> None:
    """A column against alpha as far as it is defined, with its name behind its end."""
    known = [row for row in rows if row[column] is not None]
    points(axis, known, "alpha", column, "-", color=color)
    end_label(axis, values(known, "alpha"), values(known, column), label, color)


def figure3(curves: Sequence[Row]) -> Figure:
    """Leviathan23 Figure 3: the best gamma where verification is free and acceptance i.i.d."""
    figure, axis = plt.subplots(figsize=(6.4, 4.2))
    for c, color in zip(COSTS, _COLORS, strict=True):
        look: Any = {"drawstyle": "steps-mid", "color": color, "label": f"c = {c:g}"}
        points(axis, curves, "alpha", f"c_{c:g}", "-", **look)
    axis.set(xlim=(0, 1), ylim=(0, 30))
    axis.set_xlabel(_ALPHA)
    axis.set_ylabel("best draft tokens per target call, gamma")
    axis.legend(loc="upper left", fontsize=9)
    axis.set_title("Leviathan23 Figure 3: verification is free, acceptance i.i.d.", fontsize=10)
    figure.tight_layout()
    return figure


def figure4(curves: Sequence[Row]) -> Figure:
    """Leviathan23 Figure 4: speedup and operations per token at c = 0."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.2))
    for gamma, color in zip(GAMMAS, _COLORS, strict=True):
        _curve(left, curves, f"speed_{gamma}", color, f"gamma = {gamma}")
        points(right, curves, "alpha", f"operations_{gamma}", "-", color=color)
    left.set_ylabel("speedup (times)")
    right.set_ylabel("operations per token (times)")
    for axis in (left, right):
        axis.set_xlabel(_ALPHA)
        axis.set(xlim=(0, 1), ylim=(0, 12.5))
    figure.suptitle("Leviathan23 Figure 4: speedup and operations at c = 0", fontsize=10)
    figure.tight_layout()
    return figure


def lenience(rows: Sequence[Row]) -> Figure:
    """Acceptance under lenience: the paper's Table 5, and our pair. Decoding (dashed) writes
    another text at every l, so its alpha may fall where that of one text rises.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.4), sharey=True)
    rows = sorted(rows, key=lambda row: float(row["lenience"]))
    theirs = [row for row in rows if row["source"].startswith("Leviathan23")]
    for name, color in zip(dict.fromkeys(values(theirs, "draft")), _COLORS, strict=False):
        found = where(theirs, draft=name)
        points(left, found, "lenience", "alpha", "o-", color=color, markersize=4)
        end_label(left, values(found, "lenience"), values(found, "alpha"), name, color)
    left.set_title("the paper: T5-XXL EnDe, temperature 1", fontsize=10)
    ours = [row for row in rows if row not in theirs]
    groups = sorted({(row["temperature"], row["from"]) for row in ours})
    for group, color in zip(groups, (*_COLORS, SKY, BLACK, GREY), strict=False):
        found = [row for row in ours if (row["temperature"], row["from"]) == group]
        look: Any = {"color": color, "label": f"temperature {group[0]:g}, {group[1]}"}
        bounds = ("low", "high") if all("low" in row for row in found) else ("", "")
        points(right, found, "lenience", "alpha", "o-" if all(bounds) else "s--", *bounds, **look)
    right.set_title("our pair, with 95 % intervals", fontsize=10)
    if ours:
        right.legend(loc="lower left", fontsize=8)
    for axis in (left, right):
        axis.set(xlim=(0, 1.05), ylim=(0, 1))
        axis.set_xlabel("lenience l (1: none)")
    left.set_ylabel(_ALPHA)
    figure.tight_layout()
    return figure


def cheap(rows: Sequence[Row]) -> Figure | None:
    """Drafters without a model: what c = 0 promises, what the cost of verifying leaves of it, and
    what was measured.
    """
    ours = [row for row in rows if row["temperature"] is not None]
    if not ours:
        return None
    figure, axis = plt.subplots(figsize=(8.2, 0.34 * len(ours) + 1.6))
    for column, mark, color, bounds, label in (
        ("speedup_at_c_0", "s", ORANGE, (), "formula, c = 0"),
        ("speedup_with_v", "D", BLUE, (), "the same with measured v"),
        ("measured", "o", BLACK, ("low", "high"), "measured, 95 % interval"),
    ):
        points(axis, ours, column, ours.index, mark, *bounds, color=color, markersize=5,
               label=label)  # fmt: skip
    axis.axvline(1, color=GREY, linewidth=1)
    listed_down(axis, [f"{row['draft']}, temperature {row['temperature']:g}" for row in ours])
    axis.set_xlim(left=0)
    axis.set_xlabel("speedup over plain decoding (times)")
    legend_above(figure, [axis], 3)
    return figure


def oracle(curves: Sequence[Row], gains: Sequence[Row]) -> Figure:
    """What an oracle for gamma gains over the best fixed gamma."""
    figure, axis = plt.subplots(figsize=(6.4, 4.2))
    for c, color in zip(COSTS, _COLORS, strict=True):
        points(axis, curves, "alpha", f"c_{c:g}", "-", color=color, label=f"c = {c:g}")
    bound = 100 / (math.e - 1)
    axis.axhline(bound, color=BLACK, linewidth=1, linestyle="--")
    axis.annotate(
        "least upper bound, 1/(e - 1)", (0.02, bound), (0, 4), textcoords="offset points",
        fontsize=9,
    )  # fmt: skip
    own = [row for row in gains if row["source"] != "computed"]
    label = "our pair, from its\nsurvival curve (not i.i.d.)"
    points(axis, own, "alpha", "gain_percent", color=BLACK, markersize=5, label=label)
    axis.set(xlim=(0, 1), ylim=(0, max([65, *(1.1 * row["gain_percent"] for row in own)])))
    axis.set_xlabel(_ALPHA)
    axis.set_ylabel("gain of the oracle over the best gamma (%)")
    axis.legend(loc="upper left", bbox_to_anchor=(0.0, 0.86), fontsize=9)
    figure.tight_layout()
    return figure
