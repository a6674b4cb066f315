"""The picture of ``specsim explain``: a round and a plain step, part by part, for each token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend

from specsim.report.page.chart import GREY
from specsim.report.plots import BLACK, BLUE, ORANGE, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specsim.api.explain import Explanation

# Okabe and Ito's palette, and a grey that is told apart from it; the target's runs have one colour
# in both bars.
_COLOURS = {
    "first draft run": ORANGE,
    "draft runs": ORANGE,
    "later draft runs": "#E69F00",
    "verification": BLUE,
    "target run": BLUE,
    "whole step": BLUE,
    "look-ups": "#CC79A7",
    "communication": "#009E73",
    "host": GREY,
}
# Parts narrower than this share of the longer bar have no number in them.
_ROOM = 0.06


def parts_per_token(found: Explanation) -> Figure:
    """Two bars of the milliseconds that a request waits for a token: the shorter one is faster."""
    point = found.point
    bars = {
        f"gamma {point.gamma}\n{point.tokens_per_call:.3g} tokens a round": (
            found.round,
            1e3 / point.tokens_per_call,
        ),
        "plain decoding": (found.plain, 1e3),
    }
    longest = max(step.seconds * scale for step, scale in bars.values())
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axis = plt.subplots(figsize=(8.0, 2.6), layout="constrained")
        drawn: dict[str, Any] = {}
        for height, (step, scale) in enumerate(bars.values()):
            left = 0.0
            for part in step.parts:
                width, colour = part.seconds * scale, _COLOURS[part.name]
                bar = axis.barh(height, width, 0.6, left, color=colour, edgecolor="white", lw=0.8)
                if width:
                    name = "target run" if part.kind == "target" else part.name
                    drawn.setdefault(name, bar)
                if width > _ROOM * longest:
                    dark = colour in (BLUE, ORANGE, GREY)
                    axis.text(
                        left + width / 2,
                        height,
                        f"{width:#.3g}",
                        ha="center",
                        va="center",
                        fontsize=9,
                        color="white" if dark else BLACK,
                    )
                left += width
            axis.text(left + 0.01 * longest, height, f"{left:#.3g} ms", va="center", fontsize=10)
        axis.set_yticks(range(len(bars)), list(bars))
        axis.invert_yaxis()
        axis.set_xlim(0, 1.12 * longest)
        axis.set_xlabel("milliseconds per token of a request (shorter is faster)")
        figure.legend([*drawn.values()], [*drawn], loc="outside lower center", ncols=6, fontsize=9)
        axis.set_title(
            f"batch {point.batch:,}, context {point.context:,.0f}: {point.speedup:.2f} times as "
            "fast as plain decoding",
            fontsize=11,
        )
    return figure
