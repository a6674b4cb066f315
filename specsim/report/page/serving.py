"""Pages of ``specsim serve`` and ``validate --serving``: latencies, and what the engine held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.report.page.chart import (
    BLUE,
    DASHED,
    INK,
    VERMILLION,
    Axis,
    Chart,
    Content,
    Level,
    Look,
    Mark,
    Row,
    figure_scale,
    with_interval,
)
from specsim.report.page.words import listed, sentence
from specsim.report.points import cache_blocks, latency_values, sampled, step_parts, thinned
from specsim.serving.levels import LATENCIES
from specsim.serving.metrics import STATISTICS

if TYPE_CHECKING:
    from specsim.api.serving_result import Serving
    from specsim.api.serving_verdict import ServingVerdict
    from specsim.checks import Floats
    from specsim.serving.comparison import LatencyComparison

# Points of a line over time, and of a distribution: as many as one sees on a page.
_POINTS, _SHARES, _REQUESTS = 300, 120, 400
# What rounding may leave of a part of a step.
_LEAST_MS = 1e-9
# Failures that the answer speaks of.
_NAMED = 2
_INTERVAL = ("low", "high")
_PREDICTED, _MEASURED = "predicted", "measured"
_MARKS: dict[str, Mark] = {_PREDICTED: "pale", _MEASURED: "point"}
_LOOKS = {_PREDICTED: Look(BLUE), _MEASURED: Look(INK, DASHED, "square")}


def serving(found: Serving) -> Content:
    """What users see, and what the engine held meanwhile."""
    said = [sentence(line) for line in found.sentences()]
    missed = [each.level.name for each in found.levels if not each.met]
    answer = said[0]
    if missed:
        answer = f"Not within the levels: {listed(missed)}. {answer}"
    elif found.levels:
        answer = f"All levels are met. {answer}"
    over_time = [_requests(found), _steps(found), _cache(found)]
    charts = [_figures(found), _distributions(found), *over_time]
    return Content("What do users see of this set-up under load?", answer, said[1:], charts)


def serving_verdict(found: ServingVerdict) -> Content:
    """Predicted figures beside measured ones, distributions, and request by request."""
    said = [sentence(line) for line in found.sentences()]
    answer = "Yes: no figure is further off than it may be."
    if not found.passed:
        few = listed(found.failures[:_NAMED])
        more = len(found.failures) - _NAMED
        answer = f"No: {few}{f', and {more} figures more' if more > 0 else ''}."
    charts = [_compared(found)]
    for each in found.latencies:
        charts.append(_both_distributions(each))
        if each.requests is not None:
            charts.append(_request_by_request(each))
    return Content("Does the simulation say what the engine's log says?", answer, said, charts)


def _figures(found: Serving) -> Chart:
    """Mean and percentiles of every latency."""
    rows: list[Row] = []
    for name in LATENCIES:
        for statistic in STATISTICS:
            value = found.figures.get(f"{name}_{statistic}")
            if value is not None:
                ends = {"low": 1e3 * value.low, "high": 1e3 * value.high}
                row = {"series": statistic, "latency": name, "ms": 1e3 * value.best, **ends}
                rows.append(row)
    interval = with_interval(rows, *_INTERVAL)
    return Chart(
        "latencies",
        "Latencies",
        rows,
        Axis("ms", "milliseconds", figure_scale([row["ms"] for row in rows])),
        Axis("latency", "", "name"),
        mark="point",
        interval=interval,
        note="Bars are 95 % intervals." if interval else "No intervals: too few requests.",
    )


def _distributions(found: Serving) -> Chart:
    """The share of the requests that wait no longer."""
    rows: list[Row] = []
    for name in ("ttft", "tpot", "e2e"):
        rows += _shares(name, latency_values(found, name))
    # Limits of gaps between tokens are no latency of a request.
    levels = [each.level for each in found.levels if each.level.latency != "itl"]
    limits = [Level(each.limit_s, each.name, "x") for each in levels]
    return _distribution("distributions", "How long requests wait", rows, "seconds", limits)


def _shares(series: str, values: Floats) -> list[Row]:
    """Of sorted values, the percentage that is no larger than each."""
    share = 100 * np.arange(1, values.size + 1) / max(values.size, 1)
    pairs = zip(thinned(values, _SHARES).tolist(), thinned(share, _SHARES).tolist(), strict=True)
    return [{"series": series, "value": value, "share": part} for value, part in pairs]


def _distribution(
    name: str, title: str, rows: list[Row], unit: str, levels: list[Level] | None = None
) -> Chart:
    return Chart(
        name,
        title,
        rows,
        Axis("value", unit, figure_scale([row["value"] for row in rows])),
        Axis("share", "requests that wait no longer (%)"),
        mark="step",
        looks=_LOOKS,
        levels=levels or [],
    )


def _requests(found: Serving) -> Chart:
    times, (running, waiting) = sampled(found, ("sequences", "waiting"), _POINTS)
    looks = {"in a step": Look(BLUE), "waiting": Look(VERMILLION, DASHED)}
    rows = [
        {"series": series, "s": at, "requests": value}
        for series, values in zip(looks, (running, waiting), strict=True)
        for at, value in zip(times.tolist(), values.tolist(), strict=True)
    ]
    return Chart(
        "requests",
        "Requests over time",
        rows,
        Axis("s", "seconds"),
        Axis("requests", "requests, all replicas"),
        mark="step",
        looks=looks,
    )


def _steps(found: Serving) -> Chart:
    """What the time of a step goes into, by the requests in it."""
    rows: list[dict[str, Any]] = [
        {"series": part, "requests": requests, "ms": 1e3 * seconds, "steps": steps}
        for requests, steps, parts in step_parts(found)
        for part, seconds in parts.items()
    ]
    takes_time = {row["series"] for row in rows if row["ms"] > _LEAST_MS}
    return Chart(
        "steps",
        "Time of a step",
        [row for row in rows if row["series"] in takes_time],
        Axis("requests", "requests in a step", "name"),
        Axis("ms", "milliseconds, mean"),
        mark="bar",
        details={"steps": "steps"},
        note="Of the host's work what the device waits for." if "host" in takes_time else "",
    )


def _cache(found: Serving) -> Chart:
    times, (used,) = sampled(found, ("used_blocks",), _POINTS)
    share = 100 * used / cache_blocks(found)
    pairs = zip(times.tolist(), share.tolist(), strict=True)
    preempted = int(found.engine["preemptions"])
    return Chart(
        "cache",
        "Cache over time",
        [{"series": "in use", "s": at, "used": value} for at, value in pairs],
        Axis("s", "seconds"),
        Axis("used", "cache in use (%)"),
        mark="step",
        note=f"{preempted:,} preemptions." if preempted else "No preemptions.",
    )


def _compared(found: ServingVerdict) -> Chart:
    rows = [
        {
            "series": side,
            "figure": f"{each.name} {statistic}",
            "ms": 1e3 * value.best,
            "low": 1e3 * value.low,
            "high": 1e3 * value.high,
        }
        for side in (_PREDICTED, _MEASURED)
        for each in found.latencies
        for statistic, value in getattr(each, side).items()
    ]
    interval = with_interval(rows, *_INTERVAL)
    return Chart(
        "figures",
        "Latencies, predicted and measured",
        rows,
        Axis("ms", "milliseconds", figure_scale([row["ms"] for row in rows])),
        Axis("figure", "", "name"),
        marks=_MARKS,
        looks=_LOOKS,
        interval=interval,
        note="Pale bars and thin bars are 95 % intervals." if interval else "",
    )


def _both_distributions(each: LatencyComparison) -> Chart:
    rows: list[Row] = []
    for series in (_PREDICTED, _MEASURED):
        rows += _shares(series, np.sort(1e3 * getattr(each, f"{series}_sample").seconds))
    title = f"{each.name}: distributions, {each.distance:.3f} apart"
    return _distribution(f"{each.name}-distribution", title, rows, f"{each.name} (ms)")


def _request_by_request(each: LatencyComparison) -> Chart:
    """Every request, or every n-th of many, in the mean over the replications."""
    measured = 1e3 * each.measured_sample.seconds
    predicted = 1e3 * each.predicted_sample.seconds.reshape(-1, measured.size).mean(axis=0)
    step = -(-measured.size // _REQUESTS)
    pairs = zip(measured[::step].tolist(), predicted[::step].tolist(), strict=True)
    return Chart(
        f"{each.name}-requests",
        f"{each.name}: request by request",
        [{"series": "a request", "measured": x, "predicted": y} for x, y in pairs],
        Axis("measured", f"{each.name} measured (ms)"),
        Axis("predicted", f"{each.name} predicted (ms)"),
        mark="point",
        diagonal=True,
        note=f"Every {step}th request." if step > 1 else "",
    )
