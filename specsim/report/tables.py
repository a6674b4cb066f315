"""Results on the terminal: a table for people, JSON, CSV or Markdown, and what to know beside."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from specsim.api.result import Result, plain
from specsim.report.kept import keep

FORMATS = ("table", "json", "csv", "markdown")

Row = Mapping[str, Any]

# Lines beside a result that a person reads; the JSON has all of them.
_MOST_NOTES = 20


def show(result: Result, output_format: str, title: str | None = None) -> None:
    """The answer on stdout; on stderr its sentences, warnings and what was left out.

    title : of the table, where the result has none of its own

    A table shows the rows; the JSON is the whole document.
    """
    if keep(result):
        return
    import click

    if output_format == "json":
        click.echo(result.to_json())
    else:
        rows = result.rows() if output_format == "csv" else result.table()
        click.echo(render(rows, output_format, result.title or title))
    show_notes(result)


def show_notes(result: Result) -> None:
    """On stderr what a table does not say, in at most 20 lines."""
    import click

    lines = [*result.sentences(), *result.warnings]
    lines += [f"{each.what} is left out: {each.why}" for each in result.left_out]
    if len(lines) > _MOST_NOTES:
        rest = len(lines) - _MOST_NOTES + 1
        lines = [*lines[: _MOST_NOTES - 1], f"and {rest} lines more, all in --format json"]
    for line in lines:
        click.echo(line, err=True)


def render(rows: Sequence[Row], output_format: str, title: str | None = None) -> str:
    """Rows as CSV, in full precision, as Markdown, or as a table for people."""
    if output_format == "csv":
        return _csv(rows)
    if output_format == "markdown":
        return _markdown(rows)
    return _table(rows, title)


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _csv(rows: Sequence[Row]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: _csv_cell(value) for name, value in row.items()} for row in rows])
    return stream.getvalue().rstrip("\n")


def _csv_cell(value: Any) -> Any:
    """A value of a CSV cell, which holds one: figures by name become a text."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={number:.6g}" for name, number in value.items())
    return plain(value)


def _markdown(rows: Sequence[Row]) -> str:
    columns = _columns(rows)
    lines = [columns, ["---"] * len(columns)]
    lines += [[text(row.get(column)) for column in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _table(rows: Sequence[Row], title: str | None) -> str:
    from rich.console import Console
    from rich.table import Table

    columns = _columns(rows)
    if len(rows) == 1:
        table = Table(show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for column in columns:
            table.add_row(_label(column), _cell(rows[0].get(column)))
    else:
        table = Table()
        for column in columns:
            is_text = all(isinstance(row.get(column), str) for row in rows)
            table.add_column(_label(column), justify="left" if is_text else "right")
        for row in rows:
            table.add_row(*[_cell(row.get(column)) for column in columns])
    console = Console(width=200, file=io.StringIO(), highlight=False)
    if title:  # by itself, as a narrow table would break it
        console.print(title)
    console.print(table)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip().splitlines())


def _cell(value: Any) -> str:
    """A cell of a table: whole numbers in groups of three digits."""
    return f"{value:,}" if type(value) is int else text(value)


def _label(column: str) -> str:
    return column.replace("_", " ")


def text(value: Any) -> str:
    """A cell for people: four significant digits, absent as a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(text(item) for item in value)
    return str(value)
