"""What a page says in words: figures, cells of tables, and every chart as a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specsim.checks import significant
from specsim.report.page.chart import Chart, Row, is_known, with_interval

# Series, and places of an axis of names, that a text speaks of one by one.
_SERIES, _PLACES = 8, 12
# Names that have no capital at the start of a sentence; those with an underscore have none, too.
_SMALL = ("ttft", "tpot", "itl", "e2e", "max")
_KINDS = {
    "line": "Lines",
    "step": "Lines in steps",
    "point": "Points",
    "pale": "Points",
    "ring": "Points",
    "bar": "Stacked bars",
    "cell": "A map of colours",
}


def cell(value: Any) -> str:
    """A value for people; what is not there is a dash."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not is_known(value):
        return "-"
    if isinstance(value, float):
        return significant(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {cell(each)}" for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(cell, value))
    return str(value)


def sentence(words: str) -> str:
    """With a capital, unless it begins with a name, and a period."""
    words = words.strip()
    first = words.partition(" ")[0].rstrip(":")
    if "_" not in first and first not in _SMALL:
        words = words[:1].upper() + words[1:]
    return f"{words.removesuffix('.')}." if words else ""


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def alternative(chart: Chart) -> str:
    """The chart for who does not see it: what is drawn, and where each series begins, ends, and is
    highest and lowest.
    """
    kinds = listed(list(dict.fromkeys(_KINDS[chart.mark_of(name)].lower() for name in chart.names)))
    said = [sentence(f"{chart.title}: {kinds or 'nothing'}")]
    shown = chart.figure or chart.value
    along = chart.y if shown is chart.x else chart.x
    title = f"{shown.title} by {along.title}" if along.title else shown.title
    said.append(sentence(title))
    for name in chart.names[:_SERIES]:
        rows = [row for row in chart.of(name) if is_known(row.get(shown.column))]
        if rows:
            words = _cells(rows, chart) if chart.figure else _series(rows, chart)
            said.append(f"{name}: {words}." if name else sentence(words))
    if len(chart.names) > _SERIES:
        said.append(f"And {len(chart.names) - _SERIES} series more.")
    said += [f"A line at {significant(level.value)}: {level.name}." for level in chart.levels]
    if chart.interval and with_interval(chart.rows, *chart.interval):
        said.append("Intervals are drawn.")
    return " ".join(said)


def _series(rows: Sequence[Row], chart: Chart) -> str:
    value = chart.value.column
    along = (chart.y if chart.value is chart.x else chart.x).column

    def at(row: Row) -> str:
        where = row.get(along)
        return f"{significant(float(row[value]))} at {cell(where)}"

    if chart.y.scale == "name":
        words = [f"{cell(row[along])} {_with_ends(row, chart)}" for row in rows[:_PLACES]]
        more = len(rows) - _PLACES
        return "; ".join([*words, f"and {more} more"] if more > 0 else words)
    if len(rows) == 1:
        return f"{_with_ends(rows[0], chart)} at {cell(rows[0].get(along))}"
    highest, lowest = (pick(rows, key=lambda row: float(row[value])) for pick in (max, min))
    return (
        f"{at(rows[0])} to {at(rows[-1])}; highest {at(highest)}, lowest {at(lowest)}, "
        f"{len(rows)} points"
    )


def _with_ends(row: Row, chart: Chart) -> str:
    best = significant(float(row[chart.value.column]))
    ends = [row.get(column) for column in chart.interval or ()]
    if not ends or not all(map(is_known, ends)):
        return best
    low, high = (significant(float(end)) for end in ends if end is not None)
    return f"{best} ({low} to {high})"


def _cells(rows: Sequence[Row], chart: Chart) -> str:
    assert chart.figure is not None, "asked for where cells have one"
    column = chart.figure.column

    def at(row: Row) -> str:
        place = f"{cell(row[chart.x.column])}, {cell(row[chart.y.column])}"
        return f"{significant(float(row[column]))} at {place}"

    highest, lowest = (pick(rows, key=lambda row: float(row[column])) for pick in (max, min))
    return f"{len(rows)} cells, highest {at(highest)}, lowest {at(lowest)}"
