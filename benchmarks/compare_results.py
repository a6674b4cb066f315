"""Whether two folders of study results hold the same tables.

    python benchmarks/compare_results.py OLD NEW [--renames FILE]

Every CSV is compared cell by cell, byte for byte, apart from comment lines before the header and
from the renames of FILE (by default ``renames.toml`` beside this script): columns and labels of
OLD that NEW calls otherwise, tables and columns that NEW alone has, and columns of prose, of which
only the numbers are compared.  Prints every difference with its file, row and column, and in the
last line how many tables are the same and how many differ; exits 1 on a difference.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product, zip_longest
from pathlib import Path

# Differences of one table that are printed; a table that was sorted otherwise has thousands.
_SHOWN = 10
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Renames:
    """What NEW may call otherwise, or add.

    columns : the new name of a column, by the old one, in every table
    labels : the new texts that a cell may have, or its part before or behind a colon, by the old
        one, in every table; several where one old label had several meanings
    prose : by table, columns of sentences: their numbers must be the same, their words need not
    new_columns : by table, the columns that NEW alone has
    new_tables : files that NEW alone has
    """

    columns: dict[str, str] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    prose: dict[str, list[str]] = field(default_factory=dict)
    new_columns: dict[str, list[str]] = field(default_factory=dict)
    new_tables: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Table:
    """A CSV without the comment lines before its header."""

    columns: list[str]
    rows: list[list[str]]


def read(file: Path) -> Table:
    with file.open(newline="", encoding="utf-8") as stream:
        lines = list(csv.reader(stream))
    while lines and lines[0] and lines[0][0].startswith("#"):
        del lines[0]
    return Table(lines[0], lines[1:]) if lines else Table([], [])


def differences(name: str, old: Table, new: Table, renames: Renames) -> Iterator[str]:
    """One line per difference, with its row (the first below the header is 1) and column."""
    columns = [renames.columns.get(column, column) for column in old.columns]
    added = renames.new_columns.get(name, [])
    kept = [column for column in new.columns if column not in added]
    if columns != kept:
        yield f"{name}, header: {', '.join(columns)} became {', '.join(kept)}"
        return
    places = [at for at, column in enumerate(new.columns) if column not in added]
    for number, (before, after) in enumerate(zip_longest(old.rows, new.rows), 1):
        if before is None or after is None:
            yield f"{name}: {len(old.rows)} rows became {len(new.rows)}"
            return
        for column, was, place in zip(columns, before, places, strict=True):
            found = after[place]
            if column in renames.prose.get(name, []):
                was, found = " ".join(_NUMBER.findall(was)), " ".join(_NUMBER.findall(found))
            if found != was and found not in _renamed(was, renames):
                yield f"{name}, row {number}, {column}: {was!r} became {found!r}"


def _renamed(cell: str, renames: Renames) -> set[str]:
    """What a cell may be called now."""
    if cell in renames.labels:
        return set(renames.labels[cell])
    parts = (renames.labels.get(part, [part]) for part in cell.split(": "))
    return {": ".join(chosen) for chosen in product(*parts)}


def compare(old: Path, new: Path, renames: Renames) -> tuple[int, int]:
    """How many tables are the same, and how many differ or are missing; prints what differs."""
    names = {folder: {file.name for file in folder.glob("*.csv")} for folder in (old, new)}
    same = different = 0
    for name in sorted((names[old] | names[new]) - set(renames.new_tables)):
        if name in names[old] & names[new]:
            found = list(differences(name, read(old / name), read(new / name), renames))
        else:
            found = [f"{name}: only in {old if name in names[old] else new}"]
        different, same = different + bool(found), same + (not found)
        print(*found[:_SHOWN], sep="\n", end="\n" if found else "")
        if len(found) > _SHOWN:
            print(f"{name}: and {len(found) - _SHOWN} more differences")
    return same, different


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare two folders of study results.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--renames", type=Path, default=Path(__file__).with_name("renames.toml"))
    given = parser.parse_args(arguments)
    for folder in (given.old, given.new):
        if not any(folder.glob("*.csv")):
            parser.error(f"{folder} has no CSV files")
    renames = Renames(**tomllib.loads(given.renames.read_text()))
    same, different = compare(given.old, given.new, renames)
    print(f"{same} tables are the same, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
