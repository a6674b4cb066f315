"""The columns of a table for people: headings in words with their unit, figures written alike.

How a figure is written follows from the name of its column by one table of rules: ``p99_ms`` is a
time, ``requests_per_s`` is none, ``share`` is a share.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import isfinite, isnan
from typing import Any

from specsim.checks import significant
from specsim.intervals import Interval

# Stands for what does not apply, or is not known.
ABSENT = "-"
_FOOTNOTE = f"{ABSENT}: does not apply, or is not known"
# Characters between two columns.
_GAP = 2
# Of words, where a table is too wide.
_LONGEST_WORDS = 24


@dataclass(frozen=True)
class Unit:
    """What the figures of a column are written in.

    word : stands in brackets behind the heading; empty: none
    times : what figures are multiplied by
    least : the largest figure must be so many of it, or a smaller unit is taken
    decimals : digits behind the point; None: as many as make four significant ones
    signed : whether a plus is written
    """

    word: str = ""
    times: float = 1.0
    least: float = 0.0
    decimals: int | None = None
    signed: bool = False


_PLAIN = (Unit(),)
_SECONDS = (Unit("s", 1.0, 10.0), Unit("ms", 1e3, 1.0), Unit("us", 1e6))
_MILLISECONDS = (Unit("ms", 1.0, 1.0), Unit("us", 1e3))
_BYTES = tuple(
    Unit(word, 2.0**-power, 1.0) for word, power in (("GiB", 30), ("MiB", 20), ("KiB", 10))
)
_PERCENT = (Unit("%", 1e2, decimals=1),)

# The first that matches all of a name, without the word for an end of its interval, says what a
# column is written in: the largest unit first, of which there is one at least.
_RULES: tuple[tuple[str, tuple[Unit, ...]], ...] = (
    (r"(.*_)?per_s", _PLAIN),
    (r"(.*_)?s", _SECONDS),
    (r"(.*_)?ms(_per_.*)?", _MILLISECONDS),
    (r"(.*_)?bytes", (*_BYTES, Unit("B"))),
    (r"gb", (Unit("GB"),)),
    (r"gflops", (Unit("GFLOP"),)),
    (r"rate|(.*_)?rate_per_card", (Unit("1/s"),)),
    (r"(.*_)?share|shared|spread|loss|error_(between|beyond)_.*", _PERCENT),
    (r"relative_error|cut_or_held_error", (replace(_PERCENT[0], signed=True),)),
    (r"error_.*", (Unit(decimals=3, signed=True),)),
    (r"marginal|conditional|rejection|quality.*", (Unit(decimals=3),)),
    (r"regret", (Unit(decimals=4),)),
)
# Where a name without its unit is not what a person would say.
_WORDS = {"ms": "time", "gb": "traffic", "gflops": "work"}

_END = re.compile(r"(^|_)(low|high)$")
_FIGURE = re.compile(r"[-+]?\d[\d.,]*%?( \(.*\))?")


@dataclass(frozen=True)
class Column:
    """One column, as it is written.

    name : of the row's value
    heading : words, with the unit in brackets
    cells : one a row
    is_text : whether it holds words, which begin at the left, and no figures
    """

    name: str
    heading: str
    cells: tuple[str, ...]
    is_text: bool

    @property
    def width(self) -> int:
        """Characters of the widest cell, or of the longest word of the heading."""
        return max(map(len, (*self.heading.split(), *self.cells)))

    @property
    def heading_lines(self) -> list[str]:
        """The heading, broken at spaces."""
        return textwrap.wrap(
            self.heading, self.width, break_long_words=False, break_on_hyphens=False
        )

    def shortened(self, most: int) -> Column:
        """With words of at most so many characters, the middle of longer ones left out."""
        if not self.is_text:
            return self
        behind = (most - 1) // 2
        before = most - 1 - behind
        cells = (
            cell if len(cell) <= most else f"{cell[:before]}…{cell[len(cell) - behind :]}"
            for cell in self.cells
        )
        return replace(self, cells=tuple(cells))


def columns_of(rows: Sequence[Mapping[str, Any]], essential: Sequence[str] = ()) -> list[Column]:
    """The columns of rows: those that are named first, in that order, then the others.

    Figures of one kind are in one unit throughout.  Columns in which nothing is known are left out.
    """
    found = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in dict.fromkeys((*essential, *found)) if name in found]
    cells = {name: [_known(row.get(name)) for row in rows] for name in names}
    known = {name: each for name, each in cells.items() if any(cell is not None for cell in each)}
    largest: dict[tuple[Unit, ...], float] = {}
    for name, each in known.items():
        figures = [figure for cell in each for figure in _figures(cell)]
        units = _units(name)
        largest[units] = max(largest.get(units, 0.0), _largest(figures))
    return [
        _column(name, each, _unit(units, largest[units]))
        for name, each in known.items()
        for units in [_units(name)]
    ]


def footnote_of(columns: Sequence[Column]) -> str:
    """What stands below a table of these columns: what empty cells mean; empty without one."""
    cells = {cell for column in columns for cell in column.cells}
    return _FOOTNOTE if ABSENT in cells else ""


def unit_of(name: str, figures: Iterable[float]) -> Unit:
    """What the figures of a column of this name are written in."""
    return _unit(_units(name), _largest(figures))


def fitting(
    columns: Sequence[Column], width: int | None
) -> tuple[Sequence[Column], Sequence[Column]]:
    """The columns that have room beside each other in ``width`` characters, and those without.

    width : None is without limit

    The last are left out first, the low end of an interval together with its high end; the first
    always stays.  Before a column is left out, long words are shortened, as little as will do.
    """
    if width is None or _width(columns) <= width:
        return columns, ()
    least = [column.shortened(min(_LONGEST_WORDS, width)) for column in columns]
    count = max((n for n in range(1, len(least) + 1) if _width(least[:n]) <= width), default=1)
    without = {column.name for column in columns[count:]}
    while count > 1 and _END.sub(r"\1high", columns[count - 1].name) in without:
        count -= 1
    some = (
        [column.shortened(most) for column in columns[:count]]
        for most in range(width, _LONGEST_WORDS, -1)
    )
    shown = next((each for each in some if _width(each) <= width), least[:count])
    return shown, columns[count:]


def text(value: Any) -> str:
    """A value by itself: four significant digits, no exponent of a large one, absent as a dash."""
    value = _known(value)
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        short = f"{value:.4g}"
        return significant(value).replace(",", "") if "e+" in short else short
    if isinstance(value, Interval):
        return _with_ends([text(each) for each in _figures(value)])
    if isinstance(value, (list, tuple)):
        return ", ".join(text(item) for item in value)
    return str(value)


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


def _units(name: str) -> tuple[Unit, ...]:
    """What a column of this name may be written in."""
    stem = _END.sub("", name)
    return next((units for pattern, units in _RULES if re.fullmatch(pattern, stem)), _PLAIN)


def _largest(figures: Iterable[float]) -> float:
    return max((abs(figure) for figure in figures if isfinite(figure)), default=0.0)


def _unit(units: tuple[Unit, ...], size: float) -> Unit:
    """The largest of which there is one at least in a figure of this size."""
    enough = (unit for unit in units if size * unit.times >= unit.least)
    return next(enough, units[-1]) if size else units[0]


def _column(name: str, cells: Sequence[Any], unit: Unit) -> Column:
    figures = [_figures(cell) for cell in cells]
    written = iter(_written([figure for each in figures for figure in each], unit))
    texts = tuple(
        _cell(cell, [next(written) for _ in each])
        for cell, each in zip(cells, figures, strict=True)
    )
    has_words = any(
        not isinstance(cell, bool) and shown != ABSENT and not _FIGURE.fullmatch(shown)
        for cell, shown in zip(cells, texts, strict=True)
    )
    return Column(name, heading_of(name, unit.word), texts, has_words and not any(figures))


def heading_of(name: str, unit: str = "") -> str:
    """Words of a column's name, and its unit."""
    if name in _WORDS:
        words = _WORDS[name]
    else:
        words = re.sub(r"_per_s(?=_low$|_high$|$)", "/s", name)
        words = re.sub(r"(^|_)ms(?=_per_)", r"\1time", words)
        words = re.sub(r"_(ms|s|bytes)(?=_low$|_high$|$)", "", words)
        words = re.sub(r"^(prompt|output)_(?=mean$|p\d+$)", r"\1_tokens_", words)
    heading = words.replace("_", " ")
    return f"{heading} ({unit})" if unit else heading


def _known(value: Any) -> Any:
    """A value of Python's own; None where there is none."""
    if getattr(value, "shape", None) == ():  # of numpy
        value = value.item()
    if isinstance(value, str):
        return " ".join(value.split()) or None
    best = value.best if isinstance(value, Interval) else value
    return None if isinstance(best, float) and isnan(best) else value


def _figures(value: Any) -> list[float]:
    """The figures of a cell: one, or that of an interval with its ends where they are known."""
    if isinstance(value, Interval):
        ends = [value.low, value.high]
        return [value.best] if any(map(isnan, ends)) else [value.best, *ends]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def _cell(value: Any, figures: Sequence[str]) -> str:
    """A cell, its figures written already."""
    if figures:
        return _with_ends(figures)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text(each)}" for name, each in value.items())
    return text(value)


def _with_ends(figures: Sequence[str]) -> str:
    best, *ends = figures
    return f"{best} ({' to '.join(ends)})" if ends else best


def _written(figures: Sequence[float], unit: Unit) -> list[str]:
    """The figures of one column, alike."""
    values = [figure if unit.times == 1 else figure * unit.times for figure in figures]
    if unit.decimals is not None:
        sign = "+" if unit.signed else ""
        return [f"{value:{sign},.{unit.decimals}f}" for value in values]
    if all(abs(value) < 1e15 and value == round(value) for value in values):
        return [f"{value:,.0f}" for value in values]
    return _trimmed([significant(value, zeros=True) for value in values])


def _trimmed(figures: Sequence[str]) -> list[str]:
    """Without the zeros behind the point that all of them end with."""
    pointed = ["." in each and "e" not in each for each in figures]
    ends = [len(each) - len(each.rstrip("0")) for each in compress(figures, pointed)]
    spare = min(ends, default=0)
    return [
        each[: len(each) - spare].rstrip(".") if has_point else each
        for each, has_point in zip(figures, pointed, strict=True)
    ]
