"""The picture of ``specsim serve``: what the engine holds over time, and what requests wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
import numpy as np

from specsim.report.plots import BLACK, BLUE, GREY, ORANGE, STYLE
from specsim.report.points import cache_blocks, latency_values, preempted_at, sampled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specsim.api.serving_result import Serving

# Points of a line over time: more than a screen has.
_POINTS = 1500


def over_time(found: Serving) -> Figure:
    """Three panels: requests that run and wait, blocks of the cache in use, and the share of the
    requests whose latencies are no longer than the abscissa.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(3, 1, figsize=(8.0, 8.4), layout="constrained")
        _requests(axes[0], found)
        _cache(axes[1], found)
        _latencies(axes[2], found)
        figure.suptitle(found.title, fontsize=11)
    return figure


def _requests(axis: Any, found: Serving) -> None:
    times, values = sampled(found, ("sequences", "waiting"), _POINTS)
    running, waiting = values
    axis.fill_between(times, running, step="post", color=BLUE, alpha=0.35, linewidth=0)
    axis.step(times, running, where="post", color=BLUE, linewidth=1, label="in a step")
    axis.step(times, waiting, where="post", color=ORANGE, linewidth=1.2, label="waiting")
    axis.set_ylabel("requests, all replicas" if found.setup.replicas > 1 else "requests")
    axis.set_xlabel("time (s)")
    axis.set_ylim(bottom=0)
    axis.legend(loc="upper right", fontsize=9)


def _cache(axis: Any, found: Serving) -> None:
    times, (used,) = sampled(found, ("used_blocks",), _POINTS)
    share = 100 * used / cache_blocks(found)
    axis.step(times, share, where="post", color=BLUE, linewidth=1)
    # One collection, as there may be tens of thousands; of the whole height.
    axis.vlines(
        *(preempted_at(found), 0, 1),
        transform=axis.get_xaxis_transform(),
        color=ORANGE,
        linewidth=0.6,
        alpha=0.5,
    )
    preempted = int(found.engine["preemptions"])
    words = f" ({preempted:,} preemptions: vertical lines)" if preempted else ""
    axis.set_ylabel(f"cache in use (%){words}")
    axis.set_xlabel("time (s)")
    axis.set_ylim(0, 100)


def _latencies(axis: Any, found: Serving) -> None:
    kinds = (("ttft", BLUE, "-"), ("tpot", ORANGE, "-"), ("e2e", BLACK, "--"))
    for name, colour, line in kinds:
        values = latency_values(found, name)
        if values.size:
            share = 100 * np.arange(1, values.size + 1) / values.size
            axis.step(values, share, line, where="post", color=colour, label=name)
    for each in found.levels:
        if each.level.latency == "itl":
            continue  # of gaps, which are no latency of a request
        axis.axvline(each.level.limit_s, color=GREY, linewidth=1)
        axis.text(each.level.limit_s, 2, f" {each.level.name}", fontsize=8, color=GREY)
    axis.set_xscale("log")
    axis.set_xlabel("seconds")
    axis.set_ylabel("requests no slower (%)")
    axis.set_ylim(0, 101)
    axis.legend(loc="upper left", fontsize=9)
