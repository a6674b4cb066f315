"""The picture of ``specsim validate --serving``: distributions, and request against request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
import numpy as np

from specsim.report.plots import BLACK, BLUE, GREY, ORANGE, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specsim.api.serving_verdict import ServingVerdict
    from specsim.checks import Floats
    from specsim.serving.comparison import LatencyComparison

# Points of a curve: more than a screen has.
_POINTS = 2000


def predicted_and_measured(found: ServingVerdict) -> Figure:
    """A row a latency: the share of values no longer than the abscissa, predicted and measured, and
    every request's prediction, in the mean over replications, against what was measured.
    """
    rows = len(found.latencies)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            rows, 2, figsize=(8.4, 2.9 * rows), layout="constrained", squeeze=False
        )
        for (left, right), each in zip(axes, found.latencies, strict=True):
            _distributions(left, each)
            _requests(right, each)
        axes[0, 0].legend(loc="lower right", fontsize=9)
        figure.suptitle(found.title, fontsize=10)
    return figure


def _distributions(axis: Any, each: LatencyComparison) -> None:
    for sample, colour, name in (
        (each.measured_sample, BLACK, "measured"),
        (each.predicted_sample, ORANGE, "predicted"),
    ):
        values = _thinned(1e3 * np.sort(sample.seconds))
        share = 100 * np.arange(1, values.size + 1) / values.size
        axis.step(values, share, where="post", color=colour, linewidth=1.3, label=name)
    axis.set_xlabel(f"{each.name} (ms)")
    axis.set_ylabel("no longer (%)")
    axis.set_ylim(0, 101)
    axis.set_title(f"distance {each.distance:.3f}", fontsize=9, loc="left")


def _requests(axis: Any, each: LatencyComparison) -> None:
    if each.requests is None:
        axis.set_axis_off()
        return
    measured = each.measured_sample
    count = measured.seconds.size
    predicted = each.predicted_sample.seconds.reshape(-1, count).mean(axis=0)
    axis.plot(1e3 * measured.seconds, 1e3 * predicted, ".", color=BLUE, markersize=3, alpha=0.6)
    end = 1e3 * max(float(measured.seconds.max()), float(predicted.max()))
    axis.plot([0, end], [0, end], color=GREY, linewidth=1)
    axis.set_xlabel(f"{each.name} measured (ms)")
    axis.set_ylabel("predicted (ms)")
    axis.set_title(f"median error {each.requests.median_share:.1%}", fontsize=9, loc="left")


def _thinned(values: Floats) -> Floats:
    if values.size <= _POINTS:
        return values
    return values[np.linspace(0, values.size - 1, _POINTS).astype(np.int64)]
