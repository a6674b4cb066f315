"""The picture of ``specsim defer``: quality against rejection, and against latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
import numpy as np

from specsim.report.plots import BLACK, BLUE, GREY, ORANGE, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specsim.frontier import Comparison, Curve

GREEN, PURPLE, SKY, AMBER = "#009E73", "#AA4499", "#56B4E9", "#E69F00"

# Colour is the family; the log variant is dashed.  Rules of fixed thresholds are dots.
LINES = {
    "Chow": (BLUE, "-", 1.3),
    "ChowLog": (BLUE, "--", 1.3),
    # Wide, because Opt lies on top of it at temperature 0 (Narasimhan24 Lemma 9).
    "Diff": (GREEN, "-", 2.6),
    "DiffLog": (GREEN, "--", 1.3),
    "Opt": (ORANGE, "-", 1.3),
    "OptLog": (ORANGE, "--", 1.3),
    "BildStar greedy": (PURPLE, "-", 1.3),
    "BildStar expectation": (PURPLE, "--", 1.3),
}
_DOTS = {
    "TokenV1": (SKY, "v"),
    "TokenV2": (SKY, "s"),
    "TokenV3": (SKY, "o"),
    "TopBeta": (BLACK, "x"),
    "Lossy": (AMBER, "o"),
    "LossyStar": (AMBER, "*"),
}
_QUALITY = {
    "0-1": "quality: share of positions whose\nmost probable token is the label",
    "log": "quality: mean log-probability\nof the label (nats)",
    "sampled": "quality: mean probability\nof the label",
}
# Points of a line in the picture; a curve may have a million.
_POINTS = 1000


def quality_against_cost(comparison: Comparison, title: str) -> Figure:
    """All rules in one picture; with a price a second panel, over relative latency."""
    panels = 1 if comparison.prices is None else 2
    width, legend = 4.2 * panels + 2.4, 2.1  # inches
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, panels, figsize=(width, 4.4), sharey=True, squeeze=False)
        for axis, latency in zip(axes[0], (False, True), strict=False):
            _panel(axis, comparison, latency)
        axes[0][0].set_ylabel(_QUALITY[comparison.loss])
        axes[0][0].set_xlabel("mean probability that\na draft token is rejected")
        if comparison.prices is not None:
            axes[0][1].set_xlabel("time per token over plain decoding\nby the target (times)")
        figure.suptitle(title, fontsize=11)
        inside = 1 - legend / width
        figure.tight_layout(rect=(0, 0, inside, 1))
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="center left", bbox_to_anchor=(inside, 0.5), fontsize=9)
    return figure


def _panel(axis: Any, comparison: Comparison, latency: bool) -> None:
    def x(rejection: Any) -> Any:
        if not latency or comparison.prices is None:
            return rejection
        return 1 / comparison.prices.speedup(np.clip(rejection, 0, 1))[0]

    def points(curve: Curve) -> tuple[Any, Any]:
        kept = np.unique(np.linspace(0, len(curve.loss) - 1, _POINTS).astype(int))
        quality = comparison.quality(curve.loss[kept])
        finite = np.isfinite(quality)
        return curve.rejection[kept][finite], quality[finite]

    rejection, quality = points(comparison.best.curve())
    widest = float(comparison.positions.tv.mean())
    # What more rejections than it can use are worth to it: nothing.
    rejection, quality = np.append(rejection, widest), np.append(quality, quality[-1])
    axis.plot(x(rejection), quality, color=BLACK, linewidth=2, label="optimum\n(knows the label)")
    for rule, (color, dash, width) in LINES.items():
        if rule in comparison.rules:
            rejection, quality = points(comparison.rules[rule].curve())
            axis.plot(x(rejection), quality, dash, color=color, linewidth=width, label=rule)
    for rule, (color, marker) in _DOTS.items():
        if rule in comparison.rules:
            rejection, quality = points(comparison.rules[rule].curve())
            axis.plot(
                x(rejection), quality, marker, color=color, markersize=5, linewidth=0, label=rule
            )
    target = float(comparison.quality(comparison.target_loss))
    axis.axhline(target, color=GREY, linewidth=1, linestyle=":")
    draft = float(comparison.quality(comparison.draft_loss))
    axis.margins(y=0.1)
    for name, place, level, offset in (
        ("draft", 0.0, draft, (8, -8)),
        ("target", widest, target, (-4, 12)),
    ):
        axis.plot(x(place), level, "D", color=GREY, markersize=6, zorder=5)
        axis.annotate(
            name, (float(x(place)), level), offset, textcoords="offset points", va="center"
        )
