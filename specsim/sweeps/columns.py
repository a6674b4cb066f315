"""Answers as tables: which columns they have, of which types, and how several tables agree.

A part of a sweep is a table of its own rows, so its columns are those that its answers have, and
their types what its values need.  Once all parts are there, they get the columns and the types that
all of them have room in.  A type is one of

    null < bool, null < int64 < double, anything < string, T < list<T>

and two types meet in the least one above both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from specsim.sweeps.definition import Setting, SweepDefinition
from specsim.sweeps.values import Spaced, Stepped, Values, word

Kind = str
Answer = dict[str, Any]

SETTING = "setting"
FAILURE = "failure"
WARNINGS = "warnings"
LEFT_OUT = "left_out"
VERSION = "specsim_version"
INPUT = "input_"
# What closes every row.
CLOSING: dict[str, Kind] = {
    FAILURE: "string",
    WARNINGS: "list<string>",
    LEFT_OUT: "list<string>",
    VERSION: "string",
}
_SIMPLE = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
}


def part_table(
    first: int,
    settings: Sequence[Setting],
    answers: Sequence[Answer],
    version: str,
    inputs: Mapping[str, Kind],
) -> pa.Table:
    """A row for each setting: its number, its inputs, its answer, and what closes every row.

    first : number of the first of the settings
    answers : of each, by column (specsim.sweeps.chunks)
    inputs : types of the inputs' columns, by name
    """
    columns: dict[str, list[Any]] = {SETTING: list(range(first, first + len(settings)))}
    kinds: dict[str, Kind] = {SETTING: "int64"}
    for name, kind in inputs.items():
        columns[INPUT + name] = [input_cell(each.get(name)) for each in settings]
        kinds[INPUT + name] = kind
    for name in dict.fromkeys(name for row in answers for name in row if name not in CLOSING):
        columns[name] = [row.get(name) for row in answers]
        kinds[name] = kind_of(columns[name])
    for name, kind in CLOSING.items():
        columns[name] = [row.get(name) for row in answers]
        kinds[name] = kind
    columns[VERSION] = [version] * len(settings)
    return pa.table({name: _array(values, kinds[name]) for name, values in columns.items()})


def parquet(table: pa.Table) -> bytes:
    """The table as a file; the same bytes for the same table."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def input_kinds(definition: SweepDefinition) -> dict[str, Kind]:
    """The types of the columns of all inputs, known before anything is worked out."""
    found = {name: _kind_of_values(values) for name, values in definition.inputs.items()}
    for name in definition.names:
        if name not in found:
            found[name] = kind_of([input_cell(case.get(name)) for case in definition.cases])
    return {name: found[name] for name in definition.names}


def input_cell(value: Any) -> Any:
    """The value of an input as a cell; of several words the words with commas."""
    return word(value) if isinstance(value, tuple) else value


def together(parts: Iterable[Mapping[str, Kind]]) -> dict[str, Kind]:
    """The columns of all parts, in the order in which they come, with types that hold all."""
    found: dict[str, Kind] = {}
    for kinds in parts:
        for name, kind in kinds.items():
            found[name] = joined(found.get(name, "null"), kind)
    closing = {name: found.pop(name) for name in CLOSING if name in found}
    return {**found, **closing}


def fitted(table: pa.Table, kinds: Mapping[str, Kind]) -> pa.Table:
    """The same rows with these columns of these types."""
    own = kinds_of(table.schema)
    columns = {}
    for name, kind in kinds.items():
        if own.get(name) == kind:
            columns[name] = table.column(name)
        else:
            values = table.column(name).to_pylist() if name in own else [None] * table.num_rows
            columns[name] = _array(values, kind)
    return pa.table(columns)


def kinds_of(schema: pa.Schema) -> dict[str, Kind]:
    """The types of a table's columns, by name and in order."""
    return {field.name: _kind_of_arrow(field.type) for field in schema}


def is_kind(kind: Kind) -> bool:
    """Whether columns of sweeps are of this type."""
    return _element(kind) in _SIMPLE


def joined(one: Kind, other: Kind) -> Kind:
    """The least type that holds both."""
    if one == other or other == "null":
        return one
    if one == "null":
        return other
    if "list" in (one[:4], other[:4]):
        return f"list<{joined(_element(one), _element(other))}>"
    return "double" if {one, other} == {"int64", "double"} else "string"


def kind_of(values: Iterable[Any]) -> Kind:
    """The least type that holds all of the values."""
    return reduce(joined, map(_kind_of_value, values), "null")


def _kind_of_value(value: Any) -> Kind:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    if isinstance(value, float):
        return "double"
    return f"list<{kind_of(value)}>" if isinstance(value, list) else "string"


def _kind_of_values(values: Values) -> Kind:
    if isinstance(values, Stepped):
        return "int64" if values.whole else "double"
    if isinstance(values, Spaced):
        return "double"
    return kind_of(input_cell(values[index]) for index in range(len(values)))


def _kind_of_arrow(kind: pa.DataType) -> Kind:
    return f"list<{_kind_of_arrow(kind.value_type)}>" if pa.types.is_list(kind) else str(kind)


def _element(kind: Kind) -> Kind:
    return kind[len("list<") : -1] if kind.startswith("list<") else kind


def _array(values: Sequence[Any], kind: Kind) -> pa.Array:
    element = _element(kind)
    if element == kind:
        return pa.array([_as(value, kind) for value in values], type=_SIMPLE[kind])
    lists = [None if value is None else _as_list(value, element) for value in values]
    return pa.array(lists, type=pa.list_(_SIMPLE[element]))


def _as_list(value: Any, element: Kind) -> list[Any]:
    return [_as(each, element) for each in (value if isinstance(value, list) else [value])]


def _as(value: Any, kind: Kind) -> Any:
    """One value as that of a simple type which holds it."""
    if value is None:
        return None
    if kind == "double":
        return float(value)
    if kind == "string" and not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return value
