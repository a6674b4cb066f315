"""What a page shows, described: a ``Chart`` is rows and the names of their columns, a ``Content``
the question, its answer, and charts and tables beside it.

Nothing here knows how charts are drawn (``vega.py``) or where they stand (``write.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

Row = Mapping[str, Any]

# How a series is drawn.  line, step: connected, its interval a band.  point: by itself, its
# interval a bar.  pale: the same on a broad pale bar, for another point to lie on.  ring: a circle
# around a point.  bar: stacked on the series before it.  cell: a field coloured by a figure.
Mark = Literal["line", "step", "point", "pale", "ring", "bar", "cell"]

# The first four are of the palette of Okabe and Ito (2008), "Color Universal Design"
# (https://jfly.uni-koeln.de/color/), the two others were looked for beside them: every two differ
# to people with protanopia, deuteranopia and tritanopia, and each has a contrast of 3 to 1 or more
# both on white and on the page's dark ground, so that one chart does for both (test_colours.py).
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
GREY, BROWN = "#6E6E6E", "#84603C"
# The colour of the text around it: black on white, white on black.
INK = "currentColor"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, GREY, BROWN)
DASHED = (5.0, 3.0)


@dataclass(frozen=True)
class Axis:
    """A column along an axis.

    column : its name in the rows
    title : what it is, with its unit
    scale : ``name`` is one place for each value, in the order of the rows
    zero : whether a linear axis begins at 0
    """

    column: str
    title: str
    scale: Literal["linear", "log", "name"] = "linear"
    zero: bool = True


@dataclass(frozen=True)
class Level:
    """A line across a chart.

    value : where, on the axis of that name
    name : what stands at it
    """

    value: float
    name: str
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True)
class Look:
    """How a series is told from others.

    dash : lengths of strokes and gaps; empty is a whole line
    """

    colour: str
    dash: tuple[float, ...] = ()
    shape: str = "circle"


@dataclass(frozen=True)
class Chart:
    """One picture.

    name : of the chart and of the file of its data, unique on its page
    rows : a point each; None is a point that has no place there
    series : the column that tells series apart; they have the order of their first rows
    marks : how the series of that name are drawn, all others as ``mark``
    looks : of series that have one of their own; others take the next colour, dash and shape
    interval : columns of the low and the high end of the figure (y, or x where y has names)
    figure : of cells, the column that colours them, and ``label`` the one that stands in them
    details : further columns of a tooltip, by column their names
    levels : lines across
    diagonal : whether the line of equal x and y is drawn
    note : a sentence below
    """

    name: str
    title: str
    rows: Sequence[Row]
    x: Axis
    y: Axis
    series: str = "series"
    mark: Mark = "line"
    marks: Mapping[str, Mark] = field(default_factory=dict)
    looks: Mapping[str, Look] = field(default_factory=dict)
    interval: tuple[str, str] | None = None
    figure: Axis | None = None
    label: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    levels: Sequence[Level] = ()
    diagonal: bool = False
    note: str = ""

    @property
    def value(self) -> Axis:
        """The axis of the figures: x where y has names."""
        return self.x if self.y.scale == "name" else self.y

    @property
    def names(self) -> list[str]:
        """Of the series."""
        return list(dict.fromkeys(str(row[self.series]) for row in self.rows if self.series in row))

    def mark_of(self, name: str) -> Mark:
        return self.marks.get(name, self.mark)

    def look_of(self, name: str) -> Look:
        """Its own, or by its place: colours first, then dashes with the same colours."""
        if name in self.looks:
            return self.looks[name]
        place = [each for each in self.names if each not in self.looks].index(name)
        around, colour = divmod(place, len(PALETTE))
        return Look(PALETTE[colour], _DASHES[around % len(_DASHES)], SHAPES[place % len(SHAPES)])

    def of(self, name: str) -> list[Row]:
        """The rows of one series."""
        return [row for row in self.rows if str(row.get(self.series, "")) == name]

    def places(self, axis: Axis) -> list[Any]:
        """The values along an axis, in the order of the rows."""
        values = (row.get(axis.column) for row in self.rows)
        return list(dict.fromkeys(value for value in values if is_known(value)))


SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")
_DASHES: tuple[tuple[float, ...], ...] = ((), DASHED, (1.5, 2.5), (8.0, 3.0, 1.5, 3.0))


@dataclass(frozen=True)
class Table:
    """Rows beside those of the result itself; ``name`` is that of the file of its data."""

    name: str
    title: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Content:
    """What a page says of one result.

    question : that it answers
    answer : in a sentence or two
    said : further sentences
    """

    question: str
    answer: str
    said: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()


def number_scale(values: Sequence[float]) -> Literal["linear", "log", "name"]:
    """How numbers lie best along an axis: log where they span eightfold, by name where there is one
    of them.
    """
    known = [value for value in values if isfinite(value)]
    if len(set(known)) < 2:
        return "name"
    return "log" if min(known) > 0 and max(known) >= 8 * min(known) else "linear"


def figure_scale(values: Sequence[float]) -> Literal["linear", "log"]:
    """Of figures, which have a number each."""
    return "log" if number_scale(values) == "log" else "linear"


def is_known(value: Any) -> bool:
    """Whether a value is there, and is no nan or infinity."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return isfinite(value)
    return value is not None


def with_interval(rows: Sequence[Row], low: str, high: str) -> tuple[str, str] | None:
    """The two columns, if some row knows them."""
    known = any(is_known(row.get(low)) and is_known(row.get(high)) for row in rows)
    return (low, high) if known else None
