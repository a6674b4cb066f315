"""The page of ``specsim sweep``: figures of the answer by the inputs that vary."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from specsim.api.result import plain
from specsim.checks import significant
from specsim.report.columns import Unit, heading_of, unit_of
from specsim.report.page.chart import (
    Axis,
    Chart,
    Content,
    Row,
    Table,
    figure_scale,
    is_known,
    number_scale,
    with_interval,
)
from specsim.report.page.sweep_data import (
    INPUT,
    figures_of,
    first_settings,
    is_number,
    varying_inputs,
)
from specsim.report.page.words import cell, sentence

if TYPE_CHECKING:
    import pandas as pd

    from specsim.api.sweep import SettingsSweep

# Inputs that have charts; lines of a chart, and values of an input (on average, of lines).
_INPUTS, _LINES, _VALUES = 4, 8, 200
_ENDS = ("low", "high")
# What all charts together may take of the page, and how often it has each of their points: for the
# script, and as CSV in base 64.
_BYTES, _TIMES = 2_400_000, 7 / 3
# Summaries say these in seconds.
_LATENCY = re.compile(r"(ttft|tpot|itl|e2e)_(mean|p\d+)")


def settings_sweep(found: SettingsSweep) -> Content:
    """What follows from the inputs."""
    inputs = varying_inputs(found)
    charts: list[Chart] = []
    answer = f"{found.settings - found.failed:,} of {found.settings:,} settings have an answer"
    for number, figure in enumerate(figures_of(found), 1):
        unit = unit_of(_plain(figure.name), figure.values["figure"])
        frame = _in_unit(inputs.join(figure.values, how="inner"), unit)
        along = _along(frame, list(inputs), figure.places)
        if number == 1:
            answer += f"; {_reach(figure.name, unit, frame, along)}"
        charts += _charts(number, figure.name, unit, frame, along)
    drawn = _with_room(charts)
    rows = first_settings(found)
    said = [f"All settings are in {found.folder}, as Parquet."]
    if len(rows) < found.settings:
        said.append(f"The table of settings shows the first {len(rows):,} of {found.settings:,}.")
    if len(drawn) < len(charts):
        said.append(f"The first {len(drawn)} of {len(charts)} charts have room.")
    title = "All settings" if len(rows) == found.settings else f"The first {len(rows):,} settings"
    return Content(
        f"What does specsim {found.inputs['command']} answer, setting by setting?",
        sentence(answer),
        said,
        drawn,
        [Table("settings", title, rows)] if rows else [],
    )


def _with_room(charts: Sequence[Chart]) -> list[Chart]:
    """The first that together have room on a page."""
    sizes = accumulate(_TIMES * len(json.dumps(plain(list(each.rows)))) for each in charts)
    return [chart for chart, size in zip(charts, sizes, strict=True) if size <= _BYTES]


def _in_unit(frame: pd.DataFrame, unit: Unit) -> pd.DataFrame:
    if unit.times == 1:
        return frame
    ends = [name for name in ("figure", *_ENDS) if name in frame]
    return frame.assign(**{name: frame[name] * unit.times for name in ends})


def _along(frame: pd.DataFrame, inputs: Sequence[str], places: Sequence[str]) -> list[str]:
    """What figures are drawn by: inputs that are numbers, places of the rows, other inputs."""
    numbers = [each for each in inputs if is_number(frame[each])]
    return [*numbers, *places, *(each for each in inputs if each not in numbers)]


def _charts(
    number: int, name: str, unit: Unit, frame: pd.DataFrame, inputs: list[str]
) -> list[Chart]:
    """One with a line for each setting of the other inputs; where these are too many, one for each
    input over all settings of the others.
    """
    if not inputs:
        return []
    first, *others = inputs
    lines = frame[others].drop_duplicates().shape[0] if others else 1
    if lines <= _LINES and len(frame) <= _LINES * _VALUES and is_number(frame[first]):
        return [_lines(f"figure-{number}", name, unit, frame, first, others)]
    return [
        _over_others(f"figure-{number}-{place}", name, unit, frame, each)
        for place, each in enumerate(inputs[:_INPUTS], 1)
        if frame[each].nunique() <= _VALUES
    ]


def _lines(
    chart: str, name: str, unit: Unit, frame: pd.DataFrame, first: str, others: Sequence[str]
) -> Chart:
    own = [each for each in (first, "figure", *_ENDS) if each in frame]
    rows: list[Row] = [
        {"series": _said(row, others), **{each: row[each] for each in own}}
        for row in frame.sort_values(first, kind="stable").to_dict("records")
    ]
    interval = with_interval(rows, *_ENDS)
    return Chart(
        chart,
        _title(name, first),
        rows,
        Axis(first, _title_of_input(first, frame), number_scale(frame[first].tolist()), zero=False),
        Axis("figure", _words(name, unit.word), figure_scale(frame["figure"].tolist())),
        interval=interval,
        note="Bands are intervals of the answers." if interval else "",
    )


def _over_others(chart: str, name: str, unit: Unit, frame: pd.DataFrame, along: str) -> Chart:
    """The median over all settings of the other inputs, and how far they reach."""
    grouped = frame.groupby(along, dropna=False, sort=is_number(frame[along]))["figure"]
    rows: list[Row] = [
        {"series": "median", along: value, "figure": middle, "low": low, "high": high, "of": count}
        for value, middle, low, high, count in zip(
            *(grouped.median().index.tolist(), grouped.median().tolist()),
            *(grouped.min().tolist(), grouped.max().tolist(), grouped.size().tolist()),
            strict=True,
        )
    ]
    reach = "lowest to the highest over all other inputs"
    scale = figure_scale([row["figure"] for row in rows])
    if is_number(frame[along]):
        title = _title_of_input(along, frame)
        x = Axis(along, title, number_scale(frame[along].tolist()), zero=False)
        y = Axis("figure", _words(name, unit.word), scale)
    else:
        rows = [
            {**row, along: cell(row[along]) if is_known(row[along]) else "not given"}
            for row in rows
        ]
        x, y = Axis("figure", _words(name, unit.word), scale), Axis(along, "", "name")
    return Chart(
        chart,
        _title(name, along),
        rows,
        x,
        y,
        mark="point" if y.scale == "name" else "line",
        interval=_ENDS,
        details={"of": "settings"},
        note=f"The median; {'bars' if y.scale == 'name' else 'bands'} reach from the {reach}.",
    )


def _reach(name: str, unit: Unit, frame: pd.DataFrame, inputs: Sequence[str]) -> str:
    """Between what a figure lies, and where."""
    ends = [frame.iloc[int(pick(frame["figure"].to_numpy()))] for pick in (np.argmin, np.argmax)]
    low, high = (
        _at(f"{significant(float(end['figure']))} {unit.word}", end, inputs) for end in ends
    )
    return f"{_words(name)} lies between {low} and {high}"


def _at(figure: str, row: Row, inputs: Sequence[str]) -> str:
    where = _said(row, inputs)
    return f"{figure.strip()} ({where})" if where else figure.strip()


def _said(row: Row, inputs: Sequence[str]) -> str:
    """Inputs of a setting in words; what it does not have is not said."""
    return ", ".join(f"{_words(each)} {cell(row[each])}" for each in inputs if is_known(row[each]))


def _title(name: str, along: str) -> str:
    return sentence(f"{_words(name)} by {_words(along)}").removesuffix(".")


def _title_of_input(name: str, frame: pd.DataFrame) -> str:
    """With its unit, where that is the one in which it is typed."""
    unit = unit_of(_plain(name), frame[name])
    return _words(name, unit.word) if unit.times == 1 else _words(name)


def _words(name: str, unit: str = "") -> str:
    """A column in words, with its unit."""
    return heading_of(_plain(name), unit)


def _plain(name: str) -> str:
    """The name that a column has in the table of one answer."""
    if name.startswith(INPUT):
        return name.removeprefix(INPUT)
    for before in ("metrics_", "plan_"):
        name = name.removeprefix(before)
    return f"{name}_s" if _LATENCY.fullmatch(name) else name
