"""A few settings of a sweep, and their answers: what one worker does at a time.

An answer is one row.  The values of its summary and of its only row are columns of their own; of
several rows every column holds the list of theirs.  Objects inside become columns too
(``metrics_ttft_p99``), a figure with its interval three (``_low`` and ``_high`` are its ends), and
what is deeper than that is JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec
import pyarrow as pa

from specsim import __version__
from specsim.api.result import Result, plain
from specsim.checks import SpecsimError
from specsim.intervals import Interval
from specsim.sweeps.columns import (
    CLOSING,
    FAILURE,
    INPUT,
    LEFT_OUT,
    SETTING,
    WARNINGS,
    Answer,
    Kind,
    parquet,
    part_table,
)
from specsim.sweeps.definition import Setting

# Loaded before threads are limited: a library that comes later would not know of the limit.
_WITH_THREADS = ("numpy", "scipy.linalg")
_BEYOND_INT64 = 2**63
# One text for every way in which it can end, so that results are the same bytes everywhere.
_ENDED = "the process that answered it ended, each time: killed, or out of memory"


@dataclass(frozen=True)
class Chunk:
    """Settings that one worker answers at a time, and that make one part of the results.

    number : of the chunk, which is that of its part
    first : number of its first setting
    inputs : types of the inputs' columns, by name
    fatal : places in ``settings`` of those that end every process that tries them, and so are
        failures without being tried
    """

    number: int
    command: str
    first: int
    settings: tuple[Setting, ...]
    inputs: Mapping[str, Kind]
    fatal: tuple[int, ...] = ()


@dataclass(frozen=True)
class AnsweredChunk:
    """A part of the results as the worker made it, so that who collects them has only to write.

    number : of the part
    versions : the worker's, of what decides its bytes (``versions``)
    content : Parquet
    """

    number: int
    versions: str
    content: bytes


def answer_chunk(chunk: Chunk) -> AnsweredChunk:
    """Answer every setting, in this process and on one thread.

    How many threads a matrix product has can decide its last bit, and answers must be the same to
    the last bit wherever they are worked out.
    """
    from threadpoolctl import threadpool_limits

    for name in _WITH_THREADS:
        import_module(name)
    with threadpool_limits(1):
        answers = [
            {FAILURE: _ENDED} if place in chunk.fatal else answer_setting(chunk.command, each)
            for place, each in enumerate(chunk.settings)
        ]
    table = part_table(chunk.first, chunk.settings, answers, __version__, chunk.inputs)
    return AnsweredChunk(chunk.number, versions(), parquet(table))


def versions() -> str:
    """Of the packages that answer and write, which must be one wherever a sweep is answered."""
    return f"specsim {__version__} and pyarrow {pa.__version__}"


def answer_setting(command: str, setting: Setting) -> Answer:
    """The columns of one answer; of a setting that has none, the reason in one line."""
    from specsim.commands._answers import answer

    try:
        return columns_of(answer(command, setting))
    except MemoryError:  # the end of a worker, not an answer
        raise
    except SpecsimError as error:
        return {FAILURE: _line(str(error))}
    except Exception as error:  # one setting that nobody thought of must not end the others
        return {FAILURE: _line(f"{type(error).__name__}: {error}")}


def columns_of(result: Result) -> Answer:
    """A result as one row."""
    rows = [_flat(row) for row in result.rows()]
    if len(rows) == 1:
        (columns,) = rows
    else:
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: _several([row.get(name) for row in rows]) for name in names}
    summary = {name: value for name, value in result.summary().items() if name != "title"}
    for name, value in _flat(summary).items():
        columns[f"summary_{name}" if name in columns else name] = value
    found = {_column(name): value for name, value in columns.items()}
    left_out = [f"{each.what}: {each.why}" for each in result.left_out]
    return {**found, WARNINGS: list(result.warnings), LEFT_OUT: left_out}


def _flat(named: Mapping[str, Any], before: str = "") -> Answer:
    """Objects inside, and the ends of intervals, as columns of their own."""
    found: Answer = {}
    for name, value in named.items():
        if isinstance(value, Interval):
            found.update(_flat(value.columns(name), before))
        elif isinstance(value, Mapping):
            found.update(_flat(value, f"{before}{name}_"))
        elif isinstance(inside := plain(value), dict):
            found.update(_flat(inside, f"{before}{name}_"))
        else:
            found[before + name] = _cell(inside)
    return found


def _cell(value: Any) -> Any:
    """Simple values and lists of them as they are, nothing where a list has none, else JSON."""
    if isinstance(value, int) and abs(value) >= _BEYOND_INT64:
        return float(value)
    if not isinstance(value, list):
        return value
    if any(isinstance(each, (list, dict)) for each in value):
        return _json(value)
    return value if any(each is not None for each in value) else None


def _several(values: Sequence[Any]) -> Any:
    """The cell of a column that has a value in each of several rows."""
    return _cell([_json(each) if isinstance(each, list) else each for each in values])


def _column(name: str) -> str:
    """A name that is none of the sweep's own."""
    taken = name in (SETTING, *CLOSING) or name.startswith(INPUT)
    return f"answer_{name}" if taken else name


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _line(text: str) -> str:
    return " ".join(text.split())
