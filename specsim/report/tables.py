"""Results on the terminal: a table for people, JSON, CSV or Markdown, and what to know beside."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from specsim.api.result import Result, plain
from specsim.report.columns import ABSENT, Column, columns_of, fitting, footnote_of, text
from specsim.report.kept import keep
from specsim.report.terminal import PIPED, broken, say, table_width

FORMATS = ("table", "json", "csv", "markdown")

Row = Mapping[str, Any]

# Lines beside a result that a person reads; the JSON has all of them.
_MOST_NOTES = 20


def show(result: Result, output_format: str, title: str | None = None) -> None:
    """The answer on stdout; on stderr its sentences, warnings and what was left out.

    title : of the table, where the result has none of its own

    A table shows the rows, in the columns that have room; the JSON is the whole document.
    """
    if keep(result):
        return
    import click

    if output_format == "json":
        click.echo(result.to_json())
    elif output_format == "table":
        show_table(result.table(), result.title or title, result.essential, below=result.told_below)
    else:
        rows = result.rows() if output_format == "csv" else result.table()
        click.echo(render(rows, output_format))
    show_notes(result)


def show_table(
    rows: Sequence[Row],
    title: str | None = None,
    essential: Sequence[str] = (),
    told: str | None = None,
    below: str = "",
) -> None:
    """A table on stdout, as wide as there is room; on stderr which columns have none.

    essential : columns that come first, and are left out last
    told : a column of words that, where it has no room, is told below the table line by line
    below : a column of words of which those cells are told below that have no room
    """
    import click

    width = table_width()
    columns = columns_of(rows, essential)
    shown, hidden = fitting(columns, width)
    lines = []
    if told is not None and list(shown) != columns:
        lines = _told(columns, told)
        shown, hidden = fitting([each for each in columns if each.name != told], width)
    lines += _cut(columns, shown, below)
    click.echo("\n".join([_lines(shown, title, width), *(broken(line, width) for line in lines)]))
    if hidden:
        say(_more(hidden))


def show_notes(result: Result) -> None:
    """On stderr what a table does not say, in at most 20 notes.  Of many sentences the last, as
    failures are, give way to the warnings, which may explain them.
    """
    sentences = result.sentences()
    behind = [*result.warnings, *(each.line for each in result.left_out)]
    lines = [*sentences, *behind]
    if len(lines) > _MOST_NOTES:
        room = max(_MOST_NOTES - 1 - len(behind), _MOST_NOTES // 2)
        kept = [*sentences[:room], *behind][: _MOST_NOTES - 1]
        lines = [*kept, f"and {len(lines) - len(kept)} lines more, all in --format json"]
    for line in lines:
        say(line)


def render(rows: Sequence[Row], output_format: str, title: str | None = None) -> str:
    """Rows as CSV, in full precision, as Markdown, or as a table of 80 characters for people."""
    if output_format == "csv":
        return _csv(rows)
    if output_format == "markdown":
        return _markdown(rows)
    shown, _ = fitting(columns_of(rows), PIPED)
    return _lines(shown, title, PIPED)


def _csv(rows: Sequence[Row]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _names(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: _csv_cell(value) for name, value in row.items()} for row in rows])
    return stream.getvalue().rstrip("\n")


def _csv_cell(value: Any) -> Any:
    """A value of a CSV cell, which holds one: figures by name become a text, in full precision."""
    if isinstance(value, Mapping):
        known = {name: plain(number) for name, number in value.items()}
        return " ".join(f"{name}={'' if each is None else each}" for name, each in known.items())
    return plain(value)


def _markdown(rows: Sequence[Row]) -> str:
    names = _names(rows)
    lines = [names, ["---"] * len(names)]
    lines += [[text(row.get(name)) for name in names] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _lines(columns: Sequence[Column], title: str | None, width: int | None) -> str:
    """Title, table, and a footnote where cells are empty."""
    parts = [broken(title, width)] if title else []
    parts.append(_table(columns) if columns else "nothing to show")
    if footnote := footnote_of(columns):
        parts.append(footnote)
    return "\n".join(parts)


def _told(columns: Sequence[Column], told: str) -> list[str]:
    """Of each row that has such words, its first cell and them."""
    words = [each for each in columns if each.name == told]
    return [
        f"{first} {column.heading}: {cell}"
        for column in words
        for first, cell in zip(columns[0].cells, column.cells, strict=True)
        if cell != ABSENT
    ]


def _cut(columns: Sequence[Column], shown: Sequence[Column], name: str) -> list[str]:
    """Of each row whose cell of that name is shown in part or not at all, its first cell and it."""
    whole, part = ([each.cells for each in some if each.name == name] for some in (columns, shown))
    return [
        f"{first}: {cell}"
        for cells in whole
        for place, (first, cell) in enumerate(zip(columns[0].cells, cells, strict=True))
        if not part or part[0][place] != cell
    ]


def _table(columns: Sequence[Column]) -> str:
    """Columns beside each other, as wide as they are."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        heading = "\n".join(column.heading_lines)
        table.add_column(heading, justify="left" if column.is_text else "right", no_wrap=True)
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=sum(column.width + 2 for column in columns),
        color_system=None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip().splitlines())


def _more(hidden: Sequence[Column]) -> str:
    """How many columns have no room and how to see them; which, where that is a short line."""
    count = len(hidden)
    line = f"{count} column{'' if count == 1 else 's'} more with --wide"
    named = f"{line}: {', '.join(column.heading for column in hidden)}"
    return named if len(named) <= PIPED else line
