"""Charts, tables and inputs as the template shows them: texts, links and keys of legends."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specsim.report.columns import Column, columns_of, footnote_of
from specsim.report.page.chart import Chart, Look, Row
from specsim.report.page.words import alternative, cell
from specsim.report.tables import render

# Rows of a table that are on the page; a file of its data has all.
_MOST = 200
# Of descriptions, kinds that nobody types: what they are is in their name among the inputs.
_FIELDS_SAY_ALL = ("Deployment", "Parallelism", "Efficiency", "HostTime", "Cost", "PricedDrafter")
_DRAFTERS = ("DraftModel",)  # of two words, which are typed with a _
# Last words of kinds that say no more than the name of the input does.
_SORTS = ("arrivals", "length", "engine", "check", "verify")
_WORD = re.compile(r"[A-Z][a-z0-9]*")
# Shapes of points as paths around (15, 6), in the words of Vega.
_OUTLINES = {
    "circle": "M11 6a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
    "square": "M11.5 2.5h7v7h-7Z",
    "triangle-up": "M15 1.5l4.5 8h-9Z",
    "diamond": "M15 1l4 5l-4 5l-4 -5Z",
    "cross": "M13.5 1.5h3v3h3v3h-3v3h-3v-3h-3v-3h3Z",
}


@dataclass(frozen=True)
class Key:
    """A series in the legend.

    is_field, is_line, is_ring : whether it is drawn as fields of colour, as a line, as rings
    """

    name: str
    look: Look
    is_field: bool
    is_line: bool
    is_ring: bool

    @property
    def dash(self) -> str:
        return " ".join(f"{each:g}" for each in self.look.dash)

    @property
    def outline(self) -> str:
        """The shape of its points."""
        return _OUTLINES[self.look.shape]


@dataclass(frozen=True)
class ShownTable:
    """Rows of a table.

    columns : of the first 200 rows
    count : of all rows
    file, href : name and content of the file of the data
    """

    title: str
    columns: Sequence[Column]
    count: int
    file: str
    href: str

    @property
    def lines(self) -> Sequence[Sequence[tuple[str, bool]]]:
        """Cells, each with whether its column is of words."""
        texts = [[(cell, column.is_text) for cell in column.cells] for column in self.columns]
        return list(zip(*texts, strict=True))

    @property
    def footnote(self) -> str:
        """The one of tables on a terminal."""
        return footnote_of(self.columns)

    @staticmethod
    def of(
        name: str,
        title: str,
        shown: Sequence[Row],
        rows: Sequence[Row] | None = None,
        essential: Sequence[str] = (),
    ) -> ShownTable:
        """shown : as people read them, and ``essential`` the columns that come first; rows : as
        programs do, where those are others
        """
        data = (render(shown if rows is None else rows, "csv") + "\n").encode()
        href = f"data:text/csv;charset=utf-8;base64,{base64.b64encode(data).decode()}"
        columns = columns_of(shown[:_MOST], essential)
        return ShownTable(title, columns, len(shown), f"{name}.csv", href)


@dataclass(frozen=True)
class ShownChart:
    """A chart and what stands around it.

    text : for who does not see it
    keys : of the legend; empty where there is one series without a name
    """

    chart: Chart
    text: str
    keys: Sequence[Key]
    data: ShownTable

    @staticmethod
    def of(chart: Chart) -> ShownChart:
        keys = []
        for name in chart.names if any(chart.names) else []:
            mark = chart.mark_of(name)
            drawn = {"is_field": mark == "bar", "is_line": mark in ("line", "step")}
            keys.append(Key(name, chart.look_of(name), **drawn, is_ring=mark == "ring"))
        data = ShownTable.of(chart.name, chart.title, chart.rows)
        return ShownChart(chart, alternative(chart), keys, data)


def _kind_in_words(kind: str) -> str:
    """The kind of a description as it is typed: ``lognormal`` of a ``LognormalLength``,
    ``draft_model`` of a ``DraftModel``; empty where its fields say all.
    """
    if kind in _FIELDS_SAY_ALL:
        return ""
    words = [word.lower() for word in _WORD.findall(kind)]
    if kind in _DRAFTERS:
        return "_".join(words)
    return " ".join(words[:-1] if len(words) > 1 and words[-1] in _SORTS else words)


def name_of_input(name: str) -> str:
    """In words, with the unit that it ends with: ``layer_s`` is ``layer (s)``."""
    return re.sub(r"_s$", " (s)", name).replace("_", " ")


def shown_inputs(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Inputs as names and texts, what lies in another behind a point; the kind of a description
    stands at its own name in words, and what was not given is left out.

    value : as JSON has it
    """
    if isinstance(value, Mapping):
        for key, each in value.items():
            if name and key == "kind":
                yield from shown_inputs(_kind_in_words(str(each)), name)
            else:
                yield from shown_inputs(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for number, each in enumerate(value, 1):
            yield from shown_inputs(each, f"{name} {number}")
    elif value is not None and value != [] and value != "":
        yield name, f"{value:,.15g}" if isinstance(value, float) else cell(value)
