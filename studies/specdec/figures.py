"""The pictures of Xia22: block sizes, the grid of beta and tau, wide runs and devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
from matplotlib.figure import Figure

from specsim.report.plots import BLUE, GREY, ORANGE
from studies.common.figures import COLORS, grouped_bars, points, values
from studies.common.study import Row, where

_MARKERS = ("o", "s", "^", "D")


def blocks(law: Sequence[Row], blocks: Sequence[Row]) -> Figure:
    """Tokens per call and speedup by block size, measured with 95 % intervals. The line is the law
    at the alpha of the widest block and at what blocks cost beside v in the mean, so it meets the
    masks there and is tested between and beyond.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.2))
    label = f"law of the masks, alpha = {law[0]['alpha']:.2f}"
    points(left, law, "block_size", "tokens_per_call", "-", color=BLUE, label=label)
    label = "law of the masks, measured v"
    points(right, law, "block_size", "speedup_here", "-", color=BLUE, label=label)
    for name, color, mark, label, shift in (
        ("masks", BLUE, "o", "masks, filled in at once", -0.06),
        ("draft", ORANGE, "s", "the draft, token by token", 0.06),
    ):
        rows = where(blocks, drafter=name)
        points(left, rows, "block_size", "tokens_per_call", mark, color=color, label=label)

        def beside(row: Row, shift: float = shift) -> float:
            """Side by side, so that no interval hides another."""
            return float(row["block_size"] + shift)

        points(right, rows, beside, "measured_speedup", mark, "low", "high", color=color,
               markersize=5, linewidth=0, elinewidth=1, label=f"{label}, 95 %")  # fmt: skip
    left.set(xlim=(0, law[-1]["block_size"]), ylim=(0, None))
    left.set_ylabel("tokens per target call, the target's own counted")
    right.axhline(1, color=GREY, linewidth=1)
    right.set_xlim(left=0)
    right.set_ylim(0, 1.45 * max(row["high"] for row in blocks))
    right.set_ylabel("speedup over greedy decoding (times)")
    for axis, place in ((left, "lower right"), (right, "upper left")):
        axis.set_xlabel("block size k (draft tokens per target call)")
        axis.legend(loc=place, fontsize=9)
    figure.tight_layout()
    return figure


def grid(rows: Sequence[Row]) -> Figure | None:
    """Quality against acceptance on scored text, from strict to loose, with 95 % paired
    intervals.
    """
    scored = [row for row in rows if row["from"] == "scored text"]
    if not scored:
        return None
    scored.sort(key=lambda row: float(row["acceptance"]))
    figure, axis = plt.subplots(figsize=(7.2, 4.4))
    for ranked, color, mark, label in (
        (True, BLUE, "o-", "top beta within tau"),
        (False, ORANGE, "s--", "any rank within tau"),
    ):
        shown = [row for row in scored if (row["beta"] is not None) == ranked]
        look = {"color": color, "label": label}
        points(axis, shown, "acceptance", "gain", mark, "low", "high", **look)
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


def verify(rows: Sequence[Row]) -> Figure:
    """What a wide run costs: little at batch 1, where weights are read once for all tokens, and
    more at batch 32, where devices run out of arithmetic.
    """
    names = [name.rsplit(" ", 1) for name in rows[0] if name not in ("source", "n")]
    batches = sorted({int(batch) for _, batch in names})
    figure, axes = plt.subplots(1, len(batches), figsize=(9.6, 4.2), sharey=True, squeeze=False)
    for axis, batch in zip(axes[0], batches, strict=True):
        shown = [name for name, at in names if int(at) == batch]
        for name, color, mark in zip(shown, COLORS, _MARKERS, strict=False):
            look: dict[str, Any] = {"marker": mark, "markevery": 4, "markersize": 4, "color": color}
            points(axis, rows, "n", f"{name} {batch}", "-", **look, label=name.split(",")[0])
        axis.set_title(f"batch {batch}", fontsize=10)
        axis.set(xlim=(0, rows[-1]["n"]), yscale="log")
        axis.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        axis.minorticks_off()
        axis.set_xlabel("new tokens of a run per sequence, n")
    axes[0][0].set_ylabel("time over a run on one token, v(n) (times)")
    axes[0][0].legend(loc="upper left", fontsize=9)
    figure.suptitle("Transformer-base by roofline", fontsize=10)
    figure.tight_layout()
    return figure


def devices(rows: Sequence[Row]) -> Figure:
    """Blocks of 25 masks by device and batch; the P100 has no tensor units and runs in float32."""
    tokens = rows[0]["tokens_per_call"]
    column, title, label = (
        ("cost_over_beams", "25 masks, by roofline", "cost of a block (steps of 5 beams)")
        if tokens is None
        else (
            "speedup_over_beams",
            f"25 masks, {tokens:.1f} tokens per call, by roofline",
            "speedup over beam search with 5 beams (times)",
        )
    )
    figure, axis = plt.subplots(figsize=(7.2, 4.2))
    series: dict[str, list[float]] = {}
    for row in rows:
        series.setdefault(f"{row['device']}, {row['dtype']}", []).append(row[column])
    batches = sorted(set(values(rows, "batch")))
    grouped_bars(axis, [f"batch {batch}" for batch in batches], series, COLORS)
    axis.set_ylabel(label)
    axis.set_title(title, fontsize=10)
    axis.legend(loc="best", fontsize=9)
    figure.tight_layout()
    return figure
