"""Charts in the grammar of Vega-Lite (Satyanarayan et al. 2017), which the page's library draws.

Everything that has the colour of text is ``currentColor``, so that style sheets alone decide what
is light and what is dark.  The parameter ``hidden`` lists series that are switched off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from specsim.api.result import plain
from specsim.report.page.chart import (
    BLUE,
    INK,
    Axis,
    Chart,
    Level,
    Mark,
    is_known,
    with_interval,
)
from specsim.report.page.labels import labels_of
from specsim.report.page.words import alternative

Spec = dict[str, Any]

_HEIGHT, _BAR, _AROUND = 270, 34, 56
# Of series with more points none is seen, but each still has its tooltip.
_SEEN = 60
# Whole numbers, and others, along an axis that each have a tick.
_TICKS, _FEW = 16, 8
_NUMBERS = ",.4~r"
# One empty row: a mark is drawn once.
_ONCE: Spec = {"values": [{}]}
_ACROSS: Spec = {"color": INK, "opacity": 0.6, "strokeDash": [4, 3], "aria": False}
_CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "numberFormat": _NUMBERS,
    "view": {"stroke": None},
    "mark": {"color": BLUE},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": INK,
        "tickColor": INK,
        "gridColor": INK,
        "domainOpacity": 0.5,
        "tickOpacity": 0.5,
        "gridOpacity": 0.13,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    },
    # Above the axis, where it may be long and is read without turning the head.
    "axisY": {
        "titleAngle": 0,
        "titleAlign": "left",
        "titleBaseline": "bottom",
        "titleX": 0,
        "titleY": -10,
        "titleLimit": 300,
    },
    "axisX": {"tickCount": {"expr": "ceil(width / 70)"}, "labelSeparation": 6},
    "text": {"color": INK, "fontSize": 12},
    "legend": {
        "labelColor": INK,
        "titleColor": INK,
        "titleLimit": 300,
        "orient": "top",
        "gradientLength": 160,
    },
}


def specification(chart: Chart) -> Spec:
    """The chart as Vega-Lite has it, as wide as what it stands in."""
    return {
        "description": alternative(chart),
        "width": "container",
        "height": _height(chart),
        "autosize": {"type": "fit", "contains": "padding"},
        "params": [{"name": "hidden", "value": []}],
        "data": {"values": _points(chart)},
        "transform": [{"filter": f"indexof(hidden, {_datum(chart.series)}) < 0"}],
        "layer": [
            *(_level(chart, level) for level in chart.levels),
            *([_diagonal(chart)] if chart.diagonal else []),
            *(layer for kind, names in _kinds(chart) for layer in _layers(chart, kind, names)),
            *(_level_name(chart, level, number) for number, level in enumerate(chart.levels)),
        ],
        "config": _CONFIG,
    }


def _datum(column: str) -> str:
    """A column in an expression."""
    return f"datum[{json.dumps(column)}]"


def _height(chart: Chart) -> int:
    if chart.y.scale != "name":
        return _HEIGHT
    return _AROUND + _BAR * len(chart.places(chart.y))


def _points(chart: Chart) -> list[Spec]:
    """The rows that have a place, as far as they are drawn or told; ``place`` counts them."""
    axes = [axis.column for axis in (chart.x, chart.y, chart.figure) if axis is not None]
    told = [*axes, *(chart.interval or ()), *chart.details, *filter(None, [chart.label])]
    found = []
    for number, row in enumerate(chart.rows):
        if all(is_known(row.get(column)) for column in axes):
            point = {column: plain(row.get(column)) for column in told}
            point[chart.series] = str(row.get(chart.series, ""))
            found.append({**point, "place": number})
    return found


def _kinds(chart: Chart) -> list[tuple[Mark, list[str]]]:
    """The series of each kind of mark; what lies below comes first."""
    order: tuple[Mark, ...] = ("cell", "bar", "line", "step", "pale", "point", "ring")
    names = chart.names or [""]  # rows without the column are one series without a name
    found = [(kind, [name for name in names if chart.mark_of(name) == kind]) for kind in order]
    return [(kind, of_kind) for kind, of_kind in found if of_kind]


def _layers(chart: Chart, kind: Mark, names: Sequence[str]) -> list[Spec]:
    of_these = {"filter": {"field": chart.series, "oneOf": list(names)}}
    return [
        {**layer, "transform": [of_these, *layer.get("transform", [])]}
        for layer in _DRAWN[kind](chart, kind, names)
    ]


def _line(chart: Chart, kind: Mark, names: Sequence[str]) -> list[Spec]:
    turned = {"interpolate": "step-after"} if kind == "step" else {}
    both = {**_axes(chart), **_colour(chart)}
    band = {"type": "area", "opacity": 0.17, "aria": False, **turned}
    layers = _interval(chart, names, band, both)
    line = {"type": "line", "strokeWidth": 2, "aria": False, **turned}
    layers.append({"mark": line, "encoding": {**both, **_by_series(chart, "strokeDash", "dash")}})
    seen = max(len(chart.of(name)) for name in names) <= _SEEN
    mark: Spec = {"type": "point", "filled": True, "aria": seen}
    mark |= {"size": 45, "opacity": 1} if seen else {"size": 90, "opacity": 0}
    layers.append({"mark": mark, "encoding": {**both, **_shape(chart), **_told(chart)}})
    return layers


def _point(chart: Chart, kind: Mark, names: Sequence[str]) -> list[Spec]:
    both = {**_axes(chart), **_colour(chart)}
    bar: Spec = {"type": "rule", "aria": False}
    bar |= {"strokeWidth": 9, "opacity": 0.3} if kind == "pale" else {"strokeWidth": 1.5}
    layers = _interval(chart, names, bar, both)
    mark = {"type": "point", "filled": True, "size": 55, "opacity": 1}
    layers.append({"mark": mark, "encoding": {**both, **_shape(chart), **_told(chart)}})
    return layers


def _ring(chart: Chart, kind: Mark, names: Sequence[str]) -> list[Spec]:
    mark: Spec = {"type": "point", "filled": False, "shape": "circle"}
    mark |= {"size": 240, "strokeWidth": 2, "opacity": 1}
    return [{"mark": mark, "encoding": {**_axes(chart), **_colour(chart), **_told(chart)}}]


def _bar(chart: Chart, kind: Mark, names: Sequence[str]) -> list[Spec]:
    axes = _axes(chart)
    axes["x" if chart.value is chart.x else "y"]["stack"] = "zero"
    encoding = {**axes, **_colour(chart), **_told(chart)}
    encoding["order"] = {"field": "place", "type": "quantitative"}
    return [{"mark": {"type": "bar", "stroke": INK, "strokeWidth": 0.5}, "encoding": encoding}]


def _cell(chart: Chart, kind: Mark, names: Sequence[str]) -> list[Spec]:
    assert chart.figure is not None, "cells are coloured by a figure"
    column = chart.figure.column
    colour = {
        "field": column,
        "type": "quantitative",
        "title": chart.figure.title,
        "scale": {"scheme": "viridis", "zero": False},
    }
    field = {"mark": {"type": "rect"}, "encoding": {**_axes(chart), "color": colour}}
    field["encoding"] |= _told(chart)
    if not chart.label:
        return [field]
    known = [float(row[column]) for row in chart.rows if is_known(row.get(column))]
    middle = (min(known) + max(known)) / 2 if known else 0.0
    # The upper half of the colours is light.
    light = {"test": f"{_datum(column)} > {middle!r}", "value": "black"}
    text = {
        "text": {"field": chart.label, "type": "nominal"},
        "color": {"condition": light, "value": "white"},
    }
    return [field, {"mark": {"type": "text", "aria": False}, "encoding": {**_axes(chart), **text}}]


_DRAWN: dict[Mark, Callable[[Chart, Mark, Sequence[str]], list[Spec]]] = {
    "line": _line,
    "step": _line,
    "point": _point,
    "pale": _point,
    "ring": _ring,
    "bar": _bar,
    "cell": _cell,
}


def _axes(chart: Chart) -> Spec:
    return {"x": _position(chart, chart.x), "y": _position(chart, chart.y)}


def _position(chart: Chart, axis: Axis) -> Spec:
    found: Spec = {"field": axis.column, "title": axis.title or None}
    if axis.scale == "name":
        scale = {"domain": plain(chart.places(axis))}
        shown = labels_of(scale["domain"]) if axis is chart.y else {"labelAngle": 0}
        return {**found, "type": "nominal", "scale": scale, "axis": shown}
    found |= {"type": "quantitative"}
    found["scale"] = {"type": "log"} if axis.scale == "log" else {"zero": axis.zero}
    whole = all(float(value).is_integer() for value in chart.places(axis))
    if whole and axis.scale == "linear":
        found["axis"] = {"tickMinStep": 1}
    if axis is chart.x and axis is not chart.value:
        # Figures alone end at round numbers.
        found["scale"]["nice"] = False
        values = sorted(set(map(float, chart.places(axis))))
        if len(values) <= (_TICKS if whole else _FEW):
            found["axis"] = {"values": values}
    return found


def _interval(chart: Chart, names: Sequence[str], mark: Spec, encoding: Spec) -> list[Spec]:
    """The intervals of series that have some, by a mark with two ends."""
    if chart.interval is None:
        return []
    rows = [row for name in names for row in chart.of(name)]
    if with_interval(rows, *chart.interval) is None:
        return []
    low, high = chart.interval
    name = "x" if chart.value is chart.x else "y"
    ends = {name: {**_position(chart, chart.value), "field": low}, f"{name}2": {"field": high}}
    known = " && ".join(f"isValid({_datum(end)})" for end in chart.interval)
    transform = [{"filter": known}]
    return [{"mark": mark, "encoding": {**encoding, **ends}, "transform": transform}]


def _colour(chart: Chart) -> Spec:
    return _by_series(chart, "color", "colour")


def _shape(chart: Chart) -> Spec:
    return _by_series(chart, "shape", "shape")


def _by_series(chart: Chart, channel: str, part: str) -> Spec:
    """A channel by the looks of the series.

    It has no legend: the page's own is reached by keyboards and screen readers.
    """
    if not chart.names:
        return {}
    values = [getattr(chart.look_of(name), part) for name in chart.names]
    if part == "dash":
        values = [list(dash) or [1, 0] for dash in values]
    scale = {"domain": chart.names, "range": values}
    return {channel: {"field": chart.series, "type": "nominal", "scale": scale, "legend": None}}


def _told(chart: Chart) -> Spec:
    """What a tooltip says."""
    titles = {chart.series: "series"} if any(chart.names) else {}
    for axis in (chart.x, chart.y, chart.figure):
        if axis is not None:
            titles[axis.column] = axis.title or axis.column
    if chart.interval:
        titles |= dict(zip(chart.interval, ("from", "to"), strict=True))
    known = {column for row in chart.rows for column in row if is_known(row[column])}
    titles |= {column: title for column, title in chart.details.items() if column in known}
    told = [
        {"field": column, "title": title, **_kind_of(chart, column)}
        for column, title in titles.items()
    ]
    return {"tooltip": told}


def _kind_of(chart: Chart, column: str) -> Spec:
    known = [row[column] for row in chart.rows if is_known(row.get(column))]
    numbers = all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in known)
    if known and numbers and column != chart.series:
        return {"type": "quantitative", "format": _NUMBERS}
    return {"type": "nominal"}


def _level(chart: Chart, level: Level) -> Spec:
    mark = {"type": "rule", **_ACROSS}
    return {"data": _ONCE, "mark": mark, "encoding": {level.axis: _at_level(chart, level)}}


def _level_name(chart: Chart, level: Level, number: int) -> Spec:
    """At the right end, or at the upper one; the style sheet lays the ground around it."""
    text: Spec = {"type": "text", "aria": False, "fontSize": 11}
    if level.axis == "x":
        place: Spec = {"y": {"value": 2}}
        text |= {"align": "left", "baseline": "top", "dx": 4}
    else:
        place = {"x": {"value": "width"}}
        text |= {"align": "right", "baseline": "bottom", "dx": -2, "dy": -2}
    encoding = {level.axis: _at_level(chart, level), **place, "text": {"value": level.name}}
    return {"name": f"level_{number}", "data": _ONCE, "mark": text, "encoding": encoding}


def _at_level(chart: Chart, level: Level) -> Spec:
    axis = chart.x if level.axis == "x" else chart.y
    found = {name: each for name, each in _position(chart, axis).items() if name != "field"}
    return {**found, "datum": level.value}


def _diagonal(chart: Chart) -> Spec:
    columns = chart.x.column, chart.y.column
    values = [float(row[c]) for row in chart.rows for c in columns if is_known(row.get(c))]
    ends = [dict.fromkeys(columns, end) for end in (min(values), max(values))]
    mark = {"type": "line", **_ACROSS}
    return {"data": {"values": ends}, "mark": mark, "encoding": _axes(chart)}
