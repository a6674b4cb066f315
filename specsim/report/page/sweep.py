"""The page of ``specsim sweep``: figures of the answer by the inputs that vary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specsim.api.result import significant
from specsim.report.page.chart import (
    Axis,
    Chart,
    Content,
    Row,
    Table,
    figure_scale,
    number_scale,
    with_interval,
)
from specsim.report.page.words import cell, sentence

if TYPE_CHECKING:
    import pandas as pd

    from specsim.api.sweep import SettingsSweep

# Figures and inputs that have charts; lines of a chart, and values of an input.
_FIGURES, _INPUTS, _LINES, _VALUES = 3, 4, 8, 200
# Cells of the table of settings.
_CELLS = 60_000
_INPUT = "input_"
# Figures that are drawn before others, where an answer has them.
_FIRST = (
    *("speedup", "gamma", "metrics_ttft_p99", "metrics_tpot_p99"),
    *("metrics_output_tokens_per_s", "tokens_per_s", "tokens_per_call"),
)
_ENDS = ("low", "high")


def settings_sweep(found: SettingsSweep) -> Content:
    """What follows from the inputs."""
    inputs = _inputs(found)
    figures = dict(_figures(found))
    charts = [
        chart
        for number, (name, values) in enumerate(figures.items(), 1)
        for chart in _charts(number, name, inputs.join(values, how="inner"), list(inputs))
    ]
    answer = f"{found.settings - found.failed:,} of {found.settings:,} settings have an answer"
    if figures:
        name = next(iter(figures))
        answer += f"; {_reach(name, inputs.join(figures[name], how='inner'), list(inputs))}"
    rows = _first_settings(found)
    title = "All settings" if len(rows) == found.settings else f"The first {len(rows):,} settings"
    return Content(
        f"What does specsim {found.inputs['command']} answer, setting by setting?",
        sentence(answer),
        [f"All settings are in {found.folder}, as Parquet."],
        charts,
        [Table("settings", title, rows)],
    )


def _columns(found: SettingsSweep) -> dict[str, str]:
    """Types of the columns, by name."""
    import pyarrow.dataset as ds

    schema = ds.dataset(found.folder, format="parquet").schema
    return {each.name: str(each.type) for each in schema}


def _read(found: SettingsSweep, names: Sequence[str]) -> pd.DataFrame:
    """Columns, a row for each setting."""
    import pyarrow.parquet as pq

    frame: pd.DataFrame = pq.read_table(found.folder, columns=list(names)).to_pandas()
    return frame


def _inputs(found: SettingsSweep) -> pd.DataFrame:
    """Those that vary; numbers before words, and the one with most values first."""
    frame = _read(found, [name for name in _columns(found) if name.startswith(_INPUT)])
    counts = {name: frame[name].nunique(dropna=False) for name in frame}
    varying = [name for name in frame if counts[name] > 1]
    varying.sort(key=lambda name: (not _is_number(frame[name]), -counts[name]))
    return frame[varying]


def _is_number(values: pd.Series) -> bool:
    return values.dtype.kind in "if" and bool(values.notna().all())


def _figures(found: SettingsSweep) -> Iterator[tuple[str, pd.DataFrame]]:
    """The first numbers that are not the same in all settings, as ``figure``, ``low`` and
    ``high``.
    """
    columns = _columns(found)
    own = [
        name
        for name, kind in columns.items()
        if kind in ("int64", "double")
        and name != "setting"
        and not name.startswith(_INPUT)
        and f"{_INPUT}{name}" not in columns
        and not name.endswith(_ENDS)
    ]
    order = [name for name in _FIRST if name in own] + [name for name in own if name not in _FIRST]
    left = _FIGURES
    for name in order:
        # The interval of a speedup stands beside it without its name.
        before = "" if name == "speedup" and "speedup_low" not in columns else f"{name}_"
        ends = {f"{before}{end}": end for end in _ENDS if f"{before}{end}" in columns}
        values = _read(found, [name, *ends]).rename(columns={name: "figure", **ends})
        values = values.dropna(subset=["figure"])
        if values["figure"].nunique() > 1:
            yield name, values
            left -= 1
        if not left:
            return


def _charts(number: int, name: str, frame: pd.DataFrame, inputs: list[str]) -> list[Chart]:
    """One with a line for each setting of the other inputs; where these are too many, one for each
    input over all settings of the others.
    """
    if not inputs:
        return []
    first, *others = inputs
    lines = frame[others].drop_duplicates().shape[0] if others else 1
    if lines <= _LINES and frame[first].nunique() <= _VALUES and _is_number(frame[first]):
        return [_lines(f"figure-{number}", name, frame, first, others)]
    return [
        _over_others(f"figure-{number}-{place}", name, frame, each)
        for place, each in enumerate(inputs[:_INPUTS], 1)
        if frame[each].nunique() <= _VALUES
    ]


def _lines(chart: str, name: str, frame: pd.DataFrame, first: str, others: Sequence[str]) -> Chart:
    rows: list[Row] = [
        {"series": _said(row, others), **row}
        for row in frame.sort_values(first, kind="stable").to_dict("records")
    ]
    interval = with_interval(rows, *_ENDS)
    return Chart(
        chart,
        _title(name, first),
        rows,
        Axis(first, _words(first), number_scale(frame[first].tolist()), zero=False),
        Axis("figure", _words(name), figure_scale(frame["figure"].tolist())),
        interval=interval,
        note="Bands are intervals of the answers." if interval else "",
    )


def _over_others(chart: str, name: str, frame: pd.DataFrame, along: str) -> Chart:
    """The median over all settings of the other inputs, and how far they reach."""
    grouped = frame.groupby(along, dropna=False, sort=_is_number(frame[along]))["figure"]
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
    if _is_number(frame[along]):
        x = Axis(along, _words(along), number_scale(frame[along].tolist()), zero=False)
        y = Axis("figure", _words(name), scale)
    else:
        rows = [{**row, along: cell(row[along])} for row in rows]
        x, y = Axis("figure", _words(name), scale), Axis(along, "", "name")
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


def _reach(name: str, frame: pd.DataFrame, inputs: Sequence[str]) -> str:
    """Between what a figure lies, and where."""
    ends = [frame.loc[frame["figure"].idxmin()], frame.loc[frame["figure"].idxmax()]]
    low, high = (
        f"{significant(float(end['figure']))} ({_said(end, inputs)})"
        if inputs
        else significant(float(end["figure"]))
        for end in ends
    )
    return f"{_words(name)} lies between {low} and {high}"


def _said(row: Row, inputs: Sequence[str]) -> str:
    """Inputs of a setting in words."""
    return ", ".join(f"{_words(each)} {cell(row[each])}" for each in inputs)


def _title(name: str, along: str) -> str:
    return sentence(f"{_words(name)} by {_words(along)}").removesuffix(".")


def _words(name: str) -> str:
    """A column in words."""
    return name.removeprefix(_INPUT).removeprefix("metrics_").replace("_", " ")


def _first_settings(found: SettingsSweep) -> list[Row]:
    """As many as a page has room for."""
    import pyarrow.dataset as ds

    data = ds.dataset(found.folder, format="parquet")
    rows: list[Row] = data.head(max(1, _CELLS // len(data.schema))).to_pylist()
    return rows
