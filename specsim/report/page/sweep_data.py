"""What the page of a sweep reads of its Parquet: inputs, figures, and the first settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from specsim.report.page.chart import Row

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from specsim.api.sweep import SettingsSweep

INPUT = "input_"
# Figures that are drawn, and those that come before others where an answer has them.
_FIGURES = 3
_FIRST = (
    *("speedup", "plan_cards", "plan_cost_per_million_tokens", "plan_gain_goodput_per_card"),
    *("gamma", "metrics_ttft_p99", "metrics_tpot_p99"),
    *("metrics_output_tokens_per_s", "tokens_per_s", "tokens_per_call"),
)
# What was asked of a workload, and not what came of it.
_ASKED = "workload_"
_ENDS = ("low", "high")
# Columns that say where the rows of one answer are, and how many of these places are drawn.
_PLACES, _MOST_PLACES = ("batch", "context"), 4
_NUMBERS = ("int64", "double")
# Rows of a table that are on a page; of all others it has the CSV alone (shown.py).
_SHOWN = 200
# Of the table of settings: cells that are read at most, and bytes that it may have on the page.
_CELLS, _BYTES = 60_000, 2_000_000
# Bytes around a cell, of markup and of zeros at the end of a figure.
_AROUND = 40


@dataclass(frozen=True)
class SweepFigure:
    """One figure of the answers.

    name : of its column
    places : columns of ``values`` that tell rows of one answer apart
    values : ``figure``, ``low`` and ``high``, by the numbers of settings
    """

    name: str
    places: tuple[str, ...]
    values: pd.DataFrame


def varying_inputs(found: SettingsSweep) -> pd.DataFrame:
    """Those that vary; numbers before words, and the one with most values first."""
    frame = _read(found, [name for name in _columns(found) if name.startswith(INPUT)]).to_pandas()
    counts = {name: frame[name].nunique(dropna=False) for name in frame}
    varying = [name for name in frame if counts[name] > 1]
    varying.sort(key=lambda name: (not is_number(frame[name]), -counts[name]))
    chosen: pd.DataFrame = frame[varying]
    return chosen


def is_number(values: pd.Series) -> bool:
    return values.dtype.kind in "if" and bool(values.notna().all())


def figures_of(found: SettingsSweep) -> Iterator[SweepFigure]:
    """The first three numbers that are not the same in all settings: those of whole answers, or
    where there are none those of their rows by load.
    """
    columns = _columns(found)
    yet = 0
    for read, kinds in (
        (_whole, _NUMBERS),
        (_by_load, tuple(f"list<element: {kind}>" for kind in _NUMBERS)),
    ):
        for name in _candidates(columns, kinds):
            figure = read(found, name, columns)
            if figure is not None and figure.values["figure"].nunique() > 1:
                yield figure
                yet += 1
            if yet == _FIGURES:
                return
        if yet:
            return


def _candidates(columns: dict[str, str], kinds: Sequence[str]) -> list[str]:
    """Columns of figures that have one of these types, in the order in which they are drawn."""
    own = [
        name
        for name, kind in columns.items()
        if kind in kinds
        and name not in ("setting", *_PLACES)
        and not name.startswith(INPUT)
        and f"{INPUT}{name}" not in columns
        and not name.endswith(_ENDS)
    ]
    first = [name for name in _FIRST if name in own]
    rest = sorted((name for name in own if name not in first), key=lambda n: n.startswith(_ASKED))
    return [*first, *rest]


def _ends(name: str, columns: dict[str, str]) -> dict[str, str]:
    """Columns of the interval, with the ends that they are."""
    # The interval of a speedup stands beside it without its name.
    before = "" if name == "speedup" and "speedup_low" not in columns else f"{name}_"
    return {f"{before}{end}": end for end in _ENDS if f"{before}{end}" in columns}


def _whole(found: SettingsSweep, name: str, columns: dict[str, str]) -> SweepFigure:
    ends = _ends(name, columns)
    values = _read(found, [name, *ends]).to_pandas().rename(columns={name: "figure", **ends})
    return SweepFigure(name, (), values.dropna(subset=["figure"]))


def _by_load(found: SettingsSweep, name: str, columns: dict[str, str]) -> SweepFigure | None:
    """The figure at the first places that all answers have; None where rows have no places."""
    places = [each for each in _PLACES if columns.get(each, "").startswith("list<")]
    if not places:
        return None
    ends = _ends(name, columns)
    table = _read(found, [name, *places, *ends])
    values = _rows_of_lists(table, [name, *places, *(end for end in ends if end in columns)])
    if values is None:
        return None
    values = values.rename(columns={name: "figure", **ends}).dropna(subset=["figure", *places])
    several = tuple(each for each in places if values[each].nunique() > 1)
    counts = values.groupby(places, sort=True).size()
    kept = counts[counts == values.index.nunique()].index[:_MOST_PLACES]
    values = values.set_index(places, append=True)
    inside = values.index.droplevel(0).isin(kept)
    return SweepFigure(name, several, values[inside].reset_index(level=places))


def _rows_of_lists(table: pa.Table, names: Sequence[str]) -> pd.DataFrame | None:
    """The rows of all answers, by the numbers of their settings; None where lists of one answer
    have not the same length.
    """
    import pandas as pd
    import pyarrow.compute as pc

    lists = {name: table.column(name).combine_chunks() for name in names}
    parents = {name: pc.list_parent_indices(each).to_pylist() for name, each in lists.items()}
    first = parents[names[0]]
    # An interval that some rows have not is left out.
    whole = {name: each for name, each in lists.items() if parents[name] == first}
    if not all(name in whole for name in names if name in (names[0], *_PLACES)):
        return None
    flat = {name: pc.list_flatten(each).to_pandas() for name, each in whole.items()}
    return pd.DataFrame(flat).set_axis(pd.Index(first), axis=0)


def _columns(found: SettingsSweep) -> dict[str, str]:
    """Types of the columns, by name."""
    import pyarrow.dataset as ds

    schema = ds.dataset(found.folder, format="parquet").schema
    return {each.name: str(each.type) for each in schema}


def _read(found: SettingsSweep, names: Sequence[str]) -> pa.Table:
    """Columns, a row for each setting."""
    import pyarrow.parquet as pq

    return pq.read_table(found.folder, columns=list(names))


def first_settings(found: SettingsSweep) -> list[Row]:
    """As many as a page has room for."""
    import pyarrow.dataset as ds

    data = ds.dataset(found.folder, format="parquet")
    rows: list[Row] = data.head(max(1, _CELLS // len(data.schema))).to_pylist()
    room = float(_BYTES)
    for number, row in enumerate(rows):
        room -= sum(_bytes(cell, shown=number < _SHOWN) for cell in row.values())
        if room < 0:
            return rows[:number]
    return rows


def _bytes(cell: Any, shown: bool) -> float:
    """At most so many a cell takes on the page: of its CSV in base 64, and of the table."""
    text = "" if cell is None else str(cell)
    size = len(text.encode())
    in_csv = 4 / 3 * (size + text.count('"') + 3)
    return in_csv + (_AROUND + len(escape(text).encode()) if shown else 0)
