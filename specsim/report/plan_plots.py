"""The picture of ``specsim plan``: what a card and a user get, and latencies against
the rate with the levels drawn in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend

from specsim.report.plots import BLACK, BLUE, GREY, ORANGE, STYLE
from specsim.report.points import frontier, latency_by_rate, speeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specsim.api.plan_result import CapacityPlan


def plan_figure(found: CapacityPlan) -> Figure:
    """One panel of throughput per card against tokens per second of a user, of all set-ups, and one
    for each level against the rate; both analytic, with what was simulated as points.
    """
    levels = found.levels
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1,
            1 + len(levels),
            figsize=(5.0 * (1 + len(levels)), 4.2),
            layout="constrained",
            squeeze=False,
        )
        _pareto(axes[0][0], found)
        for axis, level in zip(axes[0][1:], levels, strict=True):
            _latency(axis, found, level.name, level.limit_s)
        figure.suptitle(found.title, fontsize=11)
    return figure


def _pareto(axis: Any, found: CapacityPlan) -> None:
    for drafts, colour, label in ((False, ORANGE, "no drafts"), (True, BLUE, "drafts")):
        known = speeds(found, drafts)
        if known is not None:
            x, y = frontier(*known)
            axis.plot(x, y, color=colour, label=label)
    best = found.best
    if best.replicas:
        speed = 1.0 / best.figures["tpot_mean"]
        axis.plot(speed, found.tokens_per_s / best.cards, "o", color=BLACK, label="the plan")
    axis.set_xlabel("tokens per second of a user (1 / mean TPOT)")
    axis.set_ylabel("output tokens per second and card")
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.legend(loc="upper right", fontsize=9)


def _latency(axis: Any, found: CapacityPlan, name: str, limit_s: float) -> None:
    """Of the cheapest set-up of either kind, by the rate of all its replicas."""
    shown = ((found.without, ORANGE, "no drafts"), (found.with_drafts, BLUE, "drafts"))
    if found.without is None and found.with_drafts is None:
        shown = ((None, ORANGE, ""), (found.best, BLUE, "nearest"))
    for answer, colour, label in shown:
        if answer is None:
            continue
        count = max(answer.replicas, 1)
        rates, seconds = latency_by_rate(found, answer, name)
        words = f"{label}, {count} replica{'' if count == 1 else 's'}"
        axis.plot(rates, 1e3 * seconds, color=colour, label=words)
        if answer.settled is not None:
            axis.plot(found.rate, 1e3 * answer.figures[name], "o", color=colour)
    axis.axhline(1e3 * limit_s, color=BLACK, linewidth=1, linestyle="--")
    axis.axvline(found.rate, color=GREY, linewidth=1)
    axis.set_xlabel("requests per second")
    axis.set_ylabel(f"{name} (ms)")
    axis.set_yscale("log")
    axis.set_xlim(left=0)
    axis.legend(loc="upper left", fontsize=8)
