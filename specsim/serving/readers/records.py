"""Records of CSV, JSON and JSONL, each with its place in the file, and what is made of them."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from specsim.checks import Floats, Ints, SpecsimError
from specsim.files import read_regular
from specsim.serving.lengths import LONGEST
from specsim.serving.requests import PrefixBlocks, WorkloadError

Found = TypeVar("Found", covariant=True)

# Times of a clock from the first on are milliseconds since 1970 (in seconds: the year 33,658), and
# from the second on something smaller.
_MILLISECONDS, _SMALLER_UNITS = 1e12, 1e14

# Seconds between requests in the mean, from which on they may be milliseconds.
_LONG_GAP_S = 60.0

# Keys of a record that no reader knows, in a message.
_KEYS_SHOWN = 20


@dataclass(frozen=True, eq=False)
class RecordedRequests:
    """The requests of a file, in its order.

    format : the reader's name for it
    prompt_tokens, output_tokens : (N,) >= 1
    arrival_s : (N,) seconds, not falling; None where the file has no times
    prefix : what prompts share; None where the file does not tell
    notes : what is not as in the file, one sentence each
    file, sha256 : its name and the digest of its content; None without a file
    """

    format: str
    prompt_tokens: Ints
    output_tokens: Ints
    arrival_s: Floats | None = None
    prefix: PrefixBlocks | None = None
    notes: tuple[str, ...] = ()
    file: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Record:
    """One object of JSON or one row of CSV.

    place : "line 3" or "record 3", for messages
    """

    place: str
    values: Mapping[str, Any]

    def get(self, key: str) -> Any:
        """The value of a key that must be there."""
        if self.values.get(key) in (None, ""):
            raise WorkloadError(f"{self.place}: {key} is missing")
        return self.values[key]

    def tokens(self, key: str, low: int = 1) -> int:
        """A number of tokens, or of the entries of a list of token ids."""
        value = self.get(key)
        if isinstance(value, list):
            value = len(value)
        number = self._number(key, value)
        if number != math.floor(number) or not low <= number <= LONGEST:
            raise WorkloadError(
                f"{self.place}: {key} must be a whole number in [{low}, {LONGEST}], got "
                f"{str(value)[:40]}"
            )
        return int(number)

    def seconds(self, key: str, unit_s: float = 1.0) -> float:
        """A time in seconds, of a number of units."""
        number = self._number(key, self.get(key))
        if number < 0:
            raise WorkloadError(f"{self.place}: {key} must be >= 0, got {number:g}")
        return number * unit_s

    def ids(self, key: str) -> list[int]:
        """A list of whole numbers."""
        value = self.get(key)
        if not isinstance(value, list) or not all(type(each) is int for each in value):
            raise WorkloadError(f"{self.place}: {key} must be a list of whole numbers")
        return value

    def _number(self, key: str, value: Any) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise WorkloadError(f"{self.place}: {key} must be a number, got {str(value)[:40]!r}")
        return number


class RecordReader(Protocol[Found]):
    """A module that reads one kind of file."""

    def recognises(self, first: Record) -> bool:
        """Whether a file that begins with this record is of its kind; never raises."""
        ...

    def read(self, records: Sequence[Record]) -> Found:
        """All requests; WorkloadError names the place of what is wrong."""
        ...


def read_recognised(text: str, readers: Iterable[RecordReader[Found]], known: str) -> Found:
    """What the first reader that recognises the first record makes of a text.

    known : what is read, for the message
    """
    records = records_of(text)
    if not records:
        raise WorkloadError("no request in it")
    for reader in readers:
        if reader.recognises(records[0]):
            return reader.read(records)
    keys = ", ".join(str(key)[:40] for key in [*records[0].values][:_KEYS_SHOWN])
    raise WorkloadError(
        f"{records[0].place}: no format is recognised by its keys ({keys}): read are {known}"
    )


def read_file(path: Path, what: str, read: Callable[[str], Found]) -> Found:
    """What ``read`` makes of the text of a file; WorkloadError of one line names the file.

    what : that the file is, for the message
    """
    content = read_regular(path, what, WorkloadError)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise WorkloadError(f"{what} {path}: not a text in UTF-8") from None
    try:
        return read(text)
    except SpecsimError as error:
        raise WorkloadError(f"{what} {path}: {error}") from None


def records_of(text: str) -> list[Record]:
    """Of JSON (a list of objects, or one), of JSONL, or of CSV with a header."""
    start = text.lstrip()[:1]
    if start == "[" or (start == "{" and _is_one_document(text)):
        document = _parsed(text, "the file")
        found = document if isinstance(document, list) else [document]
        return [_record(f"record {n}", each) for n, each in enumerate(found, start=1)]
    if start == "{":
        # Not splitlines: JSON strings may hold the other line ends that Unicode knows.
        return [
            _record(f"line {n}", _parsed(line, f"line {n}"))
            for n, line in enumerate(text.split("\n"), start=1)
            if line.strip()
        ]
    return _rows(text)


def _rows(text: str) -> list[Record]:
    """Of CSV with a header."""
    rows = csv.reader(text.splitlines())
    found: list[Record] = []
    try:
        header = [name.strip() for name in next(rows, [])]
        if len(set(header)) < len(header):
            twice = next(name for name, times in Counter(header).items() if times > 1)
            raise WorkloadError(f"line 1: more than one column {twice[:40]!r}")
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise WorkloadError(
                    f"line {rows.line_num}: {len(row)} columns, but the header has {len(header)}"
                )
            found.append(Record(f"line {rows.line_num}", dict(zip(header, row, strict=True))))
    except csv.Error as error:
        raise WorkloadError(f"line {rows.line_num}: not CSV ({error})") from None
    return found


def in_order(records: Sequence[Record], times: Floats) -> Floats:
    """The times, refused with the first place where they fall."""
    falls = np.flatnonzero(np.diff(times) < 0)
    if falls.size:
        at = int(falls[0]) + 1
        raise WorkloadError(
            f"{records[at].place}: arrives {times[at - 1] - times[at]:g} s before the request "
            f"before it ({records[at - 1].place}); sort the file by time"
        )
    return times


def from_the_first(records: Sequence[Record], key: str) -> Floats:
    """The times under a key in seconds, the first at 0: seconds of any clock, or milliseconds since
    1970, which are 1e12 and more.
    """
    times = np.array([each.seconds(key) for each in records])
    last = int(times.argmax())
    if times[last] >= _SMALLER_UNITS:
        raise WorkloadError(
            f"{records[last].place}: {key} must be seconds, or milliseconds since 1970, got "
            f"{times[last]:g}"
        )
    if times[0] >= _MILLISECONDS:
        times = times * 1e-3
    return in_order(records, times - times[0])


def clock_notes(records: Sequence[Record], key: str) -> tuple[str, ...]:
    """That times under ``timestamp`` look like milliseconds from the begin, which other files have
    there, and are taken for seconds.
    """
    times = np.array([each.seconds(key) for each in records])
    gap = np.ptp(times) / max(times.size - 1, 1)
    whole = bool((times == np.floor(times)).all())
    if key != "timestamp" or not whole or times[0] >= _MILLISECONDS or gap < _LONG_GAP_S:
        return ()
    return (
        f"timestamp is taken for seconds, so that requests come every {gap:,.0f} s in the mean; if "
        "it is milliseconds, give --scale 1000",
    )


def _is_one_document(text: str) -> bool:
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) == 1:
        return True
    try:
        json.loads(lines[0])
    except (ValueError, RecursionError):
        return True  # an object that goes on over lines
    return False


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise WorkloadError(f"{place}: not complete JSON ({reason})") from None


def _record(place: str, value: Any) -> Record:
    if not isinstance(value, dict):
        raise WorkloadError(f"{place}: must be a JSON object, got {str(value)[:40]}")
    return Record(place, value)
