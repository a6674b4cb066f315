"""The pictures of ``studies.specdec.page``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
import numpy as np

from specsim.report.plots import BLACK, BLUE, GREY, ORANGE, STYLE
from studies.common.study import Row, Tables
from studies.common.style import COLORS, error_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D")


def draw(tables: Tables) -> dict[str, Figure]:
    with plt.rc_context(STYLE):
        drawn = {
            "blocks": _blocks(tables["blocks"], tables["law"]) if tables["law"] else None,
            "grid": _grid(tables["grid"]),
            "verify": _verify(tables["verify"]),
            "devices": _devices(tables["devices"]),
        }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _blocks(blocks: Sequence[Row], law: Sequence[Row]) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.2))
    k = [row["block_size"] for row in law]
    left.plot(
        k,
        [row["tokens_per_call"] for row in law],
        color=BLUE,
        label=f"law of the masks, alpha = {law[0]['alpha']:.2f}",
    )
    here = [row for row in law if row["speedup_here"] is not None]
    right.plot(
        [row["block_size"] for row in here],
        [row["speedup_here"] for row in here],
        color=BLUE,
        label="law of the masks, measured v",
    )
    for name, color, marker, label, shift in (
        ("masks", BLUE, "o", "masks, filled in at once", -0.06),
        ("draft", ORANGE, "s", "the draft, token by token", 0.06),
    ):
        rows = [row for row in blocks if row["drafter"] == name]
        sizes = [row["block_size"] for row in rows]
        left.plot(sizes, [row["tokens_per_call"] for row in rows], marker, color=color, label=label)
        right.errorbar(
            [size + shift for size in sizes],  # side by side, so that no interval hides another
            [row["measured_speedup"] for row in rows],
            yerr=error_bars(rows, "measured_speedup"),
            fmt=marker,
            color=color,
            capsize=2,
            markersize=5,
            linewidth=1,
            label=f"{label}, 95 %",
        )
    left.set(xlim=(0, k[-1]), ylim=(0, None))
    left.set_xlabel("block size k (draft tokens per target call)")
    left.set_ylabel("tokens per target call, the target's own counted")
    right.axhline(1, color=GREY, linewidth=1)
    right.set_xlim(left=0)
    right.set_ylim(0, 1.45 * max(row["high"] for row in blocks))
    right.set_xlabel("block size k (draft tokens per target call)")
    right.set_ylabel("speedup over greedy decoding (times)")
    left.legend(loc="lower right", fontsize=9)
    right.legend(loc="upper left", fontsize=9)
    figure.tight_layout()
    return figure


def _grid(rows: Sequence[Row]) -> Figure | None:
    """Quality against acceptance, from strict to loose."""
    scored = [row for row in rows if row["from"] == "scored text"]
    if not scored:
        return None
    figure, axis = plt.subplots(figsize=(7.2, 4.4))
    for ranked, color, label in (
        (True, BLUE, "top beta within tau"),
        (False, ORANGE, "any rank within tau"),
    ):
        shown = [row for row in scored if (row["beta"] is not None) == ranked]
        shown.sort(key=lambda row: float(row["acceptance"]))
        if not shown:
            continue
        axis.errorbar(
            [row["acceptance"] for row in shown],
            [row["gain"] for row in shown],
            yerr=error_bars(shown, "gain"),
            fmt="o-" if ranked else "s--",
            color=color,
            capsize=2,
            markersize=4,
            linewidth=1,
            label=label,
        )
        for row in shown:
            name = f"{row['beta']}, {row['tau']:g}" if ranked else f"{row['tau']:g}"
            axis.annotate(
                name,
                (row["acceptance"], row["low"] if ranked else row["high"]),
                (-2, -3) if ranked else (0, 3),
                textcoords="offset points",
                ha="right" if ranked else "center",
                va="top" if ranked else "bottom",
                fontsize=8,
                color=color,
            )
    axis.axhline(0, color=GREY, linewidth=1)
    axis.margins(x=0.06, y=0.14)
    axis.set_xlabel("acceptance rate of the draft's token (numbers: beta, tau in nats)")
    axis.set_ylabel("accuracy against greedy decoding (percentage points)")
    axis.legend(loc="lower left", fontsize=9)
    figure.tight_layout()
    return figure


def _verify(rows: Sequence[Row]) -> Figure:
    names = [name for name in rows[0] if name not in ("source", "n")]
    batches = sorted({int(name.rsplit(" ", 1)[1]) for name in names})
    figure, axes = plt.subplots(1, len(batches), figsize=(9.6, 4.2), sharey=True, squeeze=False)
    n = [row["n"] for row in rows]
    for axis, batch in zip(axes[0], batches, strict=True):
        shown = [name for name in names if name.endswith(f" {batch}")]
        for name, color, marker in zip(shown, COLORS, _MARKERS, strict=False):
            axis.plot(
                n,
                [row[name] for row in rows],
                color=color,
                marker=marker,
                markevery=4,
                markersize=4,
                label=name.split(",")[0],
            )
        axis.set_title(f"batch {batch}", fontsize=10)
        axis.set(xlim=(0, n[-1]), yscale="log")
        axis.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        axis.minorticks_off()
        axis.set_xlabel("new tokens of a run per sequence, n")
    axes[0][0].set_ylabel("time over a run on one token, v(n) (times)")
    axes[0][0].legend(loc="upper left", fontsize=9)
    figure.suptitle("Transformer-base by roofline", fontsize=10)
    figure.tight_layout()
    return figure


def _devices(rows: Sequence[Row]) -> Figure:
    """Speedup over 5 beams; without an acceptance, what a block costs."""
    known = rows[0]["speedup_over_beams"] is not None
    column = "speedup_over_beams" if known else "cost_over_beams"
    names = list(dict.fromkeys(row["device"] for row in rows))
    batches = sorted({row["batch"] for row in rows})
    figure, axis = plt.subplots(figsize=(7.2, 4.2))
    width = 0.8 / len(names)
    for at, (name, color) in enumerate(zip(names, COLORS, strict=False)):
        shown: list[Any] = [row for row in rows if row["device"] == name]
        places = np.arange(len(batches)) + (at - (len(names) - 1) / 2) * width
        bars = axis.bar(
            places,
            [row[column] for row in shown],
            0.92 * width,
            color=color,
            label=f"{name}, {shown[0]['dtype']}",
        )
        axis.bar_label(bars, fmt="%.2f", fontsize=8, padding=1)
    axis.set_xticks(range(len(batches)), [f"batch {batch}" for batch in batches])
    if known:
        axis.axhline(1, color=BLACK, linewidth=1)
        tokens = rows[0]["tokens_per_call"]
        axis.set_ylabel("speedup over beam search with 5 beams (times)")
        axis.set_title(f"25 masks, {tokens:.1f} tokens per call, by roofline", fontsize=10)
        axis.legend(loc="upper right", fontsize=9)
    else:
        axis.set_ylabel("cost of a block of 25 masks (steps of 5 beams)")
        axis.set_title("25 masks, by roofline", fontsize=10)
        axis.legend(loc="upper left", fontsize=9)
    figure.tight_layout()
    return figure
