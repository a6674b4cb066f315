"""Damage to a file: to its bytes, its text, its JSON or its table."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet

from tests.support.mutations import mutations

_DEEP: Any = 0
for _ in range(150):
    _DEEP = [_DEEP]
_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2, 0.5, -0.5, 1e300, 1e-300, 2**63, -(2**70), 10**400, 10**9),
    *("", "x", "nan", "1e400", "\ud800", "../../x", "/dev/zero", "y" * 10_000, "\x00", "0" * 64),
    *([], {}, [1], [[]], {"a": 1}, _DEEP),
)
_CELLS = (np.nan, np.inf, -np.inf, -1, 0, 0.5, 2, 1e300, 2**62, "x", "", None, [1], True)


@dataclass(frozen=True)
class WholeFile:
    """A file as it should be, with what lies beside it.

    name : of the file
    contents : of it and of what lies beside it, by name
    victims : what is damaged; the file itself unless others are named
    """

    name: str
    contents: Mapping[str, bytes]
    victims: tuple[str, ...] = ()


# New contents of files, by name.
Damage = dict[str, bytes]
Change = Callable[[WholeFile, Random], Damage]


def damaged(whole: WholeFile, change: Change | None, random: Random) -> Damage:
    """The files that are others than before.

    change : how the content is damaged beside its bytes and its text
    """
    if change is not None and random.random() < 0.7:
        return change(whole, random)
    name = random.choice(whole.victims or (whole.name,))
    content = whole.contents[name]
    if random.random() < 0.5:
        return {name: _changed_bytes(content, random)}
    (text,) = mutations(content.decode("utf-8", "surrogateescape"), 1, random.randrange(2**32))
    try:
        return {name: text.encode("utf-8", "surrogateescape")}
    except UnicodeEncodeError:  # half of a surrogate pair that was none of its bytes
        return {name: text.encode("utf-8", "replace")}


def in_file(changed: Callable[[bytes, str, Random], bytes]) -> Change:
    """Of one of the victims the content is changed, whose kind its name tells."""

    def change(whole: WholeFile, random: Random) -> Damage:
        name = random.choice(whole.victims or (whole.name,))
        return {name: changed(whole.contents[name], name, random)}

    return change


def _changed_bytes(content: bytes, random: Random) -> bytes:
    """Bytes that are cut, doubled, exchanged or put in somewhere."""
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(content) or 1)
        to = min(at + random.choice((1, 1, 8, 100)), len(content))
        some = bytes(random.randrange(256) for _ in range(random.choice((0, 1, 4))))
        content = random.choice(
            (
                content[:at] + content[to:],
                content[:at] + some + content[to:],
                content[:at] + content[at:to] * 2 + content[to:],
                content[:at],
            )
        )
    return content


# --- JSON --------------------------------------------------------------------------------------


def changed_json(content: bytes, name: str, random: Random) -> bytes:
    """One to three values of a document, or of a line of JSONL, are others, gone, or there twice;
    lines may be so, too.
    """
    try:
        json.loads(content)
        lines = [content.decode()]
    except ValueError:
        lines = content.decode().splitlines()
    if len(lines) > 1 and random.random() < 0.2:
        at, to = random.randrange(len(lines)), random.randrange(len(lines))
        lines[at:to] = random.choice(([], [lines[at]] * 2, lines[at:to][::-1]))
        return "\n".join(lines).encode()
    at = random.randrange(len(lines))
    document = [json.loads(lines[at])]
    for _ in range(random.choice((1, 1, 2, 3))):
        _change_value(document, random)
    lines[at] = json.dumps(document[0]) if document else ""
    return "\n".join(lines).encode()


def _change_value(document: Any, random: Random) -> None:
    """Walks down to a random place of a list or an object and changes what is there."""
    place = document
    while True:
        keys = list(range(len(place))) if isinstance(place, list) else list(place)
        if not keys:
            return
        key = random.choice(keys)
        inner = place[key]
        if isinstance(inner, (list, dict)) and inner and random.random() < 0.85:
            place = inner
            continue
        break
    what = random.randrange(8)
    if what == 0 and place is not document:
        del place[key]
    elif what == 1 and isinstance(place, list):
        place.insert(random.randrange(len(place) + 1), place[key])
    elif what in (2, 3) and isinstance(inner, (int, float)) and abs(inner) < 1e300:
        place[key] = inner * random.choice((-1, 0, 0.5, 1.01, 2, 10, 1e6, 1e-6))
    elif what == 4 and isinstance(inner, int):
        place[key] = inner + random.choice((-1, 1, 7))
    elif what == 5:
        other = random.choice(keys)
        place[key], place[other] = place[other], random.choice((place[key], place[other]))
    elif what == 6 and isinstance(place, dict):
        place[random.choice((*keys, "surprise"))] = deepcopy(random.choice(_VALUES))
    else:
        place[key] = deepcopy(random.choice(_VALUES))


# --- tables ------------------------------------------------------------------------------------


def changed_table(content: bytes, name: str, random: Random) -> bytes:
    """A column or a cell is another, rows are gone, doubled or out of order."""
    is_csv = name.endswith(".csv")
    frame = _frame(content, is_csv)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that a type has not
        for _ in range(random.choice((1, 1, 2))):
            frame = _changed_frame(frame, random)
    if is_csv:
        return frame.to_csv(index=False).encode("utf-8", "replace")
    frame = frame.copy(deep=False)
    frame.attrs = {"temperature": random.choice((0, 1.0, 1.0, "hot", None, -1, [1]))}
    stream, schema = io.BytesIO(), parquet.read_schema(io.BytesIO(content))
    try:
        if b"pandas" in (schema.metadata or {}):
            frame.to_parquet(stream, index=False)
        else:
            kept = pa.schema([each for each in schema if each.name in frame])
            parquet.write_table(pa.Table.from_pandas(frame[kept.names], kept), stream)
    except Exception:  # not every mixture of values is a column, nor may pandas have one twice
        columns = [pa.array(column.astype(str)) for _, column in frame.items()]
        stream = io.BytesIO()
        parquet.write_table(pa.Table.from_arrays(columns, names=list(frame.columns)), stream)
    return stream.getvalue()


@lru_cache(maxsize=64)
def _frame(content: bytes, is_csv: bool) -> pd.DataFrame:
    """Of a whole table; it must not be changed."""
    stream = io.BytesIO(content)
    return pd.read_csv(stream) if is_csv else pd.read_parquet(stream)


def _changed_frame(frame: pd.DataFrame, random: Random) -> pd.DataFrame:
    if not frame.columns.is_unique:
        return frame
    name = random.choice(list(frame.columns)) if len(frame.columns) else "x"
    row = random.randrange(len(frame) or 1)
    match random.randrange(9):
        case 0:
            return frame.drop(columns=name, errors="ignore")
        case 1:
            return frame.rename(columns={name: random.choice(("x", "request", "matched", "beta"))})
        case 2:
            return pd.concat([frame, frame.iloc[row : row + random.choice((1, 5, 500))]])
        case 3:
            return frame.drop(index=frame.index[row : row + 1])
        case 4:
            return frame.sample(frac=1.0, random_state=random.randrange(2**32))
        case 5:
            value = random.choice(_CELLS)
            return frame.assign(**{name: [value] * len(frame)})
        case 6:
            column = frame[name].astype(object).to_list() if name in frame else [None] * len(frame)
            if column:
                column[row % len(column)] = random.choice(_CELLS)
            return frame.assign(**{name: column})
        case 7:
            factor = random.choice((-1, 0, 0.5, 1.01, 2, 1e6))
            try:
                return frame.assign(**{name: frame[name] * factor})
            except (KeyError, TypeError, ValueError, OverflowError):
                return frame.iloc[:1]
        case _:
            kind = random.choice((str, "float32", "int8", "bool", "category", "datetime64[ns]"))
            try:
                return frame.assign(**{name: frame[name].astype(kind)})
            except (KeyError, TypeError, ValueError, OverflowError):
                return frame.iloc[:0]


def changed_trace_of_profile(whole: WholeFile, random: Random) -> Damage:
    """The trace beside a profile, whose hash is that of the changed one."""
    content = json.loads(whole.contents[whole.name])
    reference = content["acceptance"][0]["trace"]
    trace = changed_table(whole.contents[reference["file"]], reference["file"], random)
    reference["sha256"] = sha256(trace).hexdigest()
    return {reference["file"]: trace, whole.name: json.dumps(content).encode()}
