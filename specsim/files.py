"""Tables and versioned documents from files, files written whole or not at all, and folders for
what is half done.

What is read are regular files of a bounded size, and what is replaced are regular files: a pipe or
a device may have no end, and a name may lead anywhere.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from specsim.checks import Floats, InvalidArgumentError, SpecsimError, reason_of

if TYPE_CHECKING:
    import pandas as pd


Document = TypeVar("Document", bound=msgspec.Struct)

# Bytes of a text that is read whole: as Python objects it takes up to twenty times as many.
LARGEST_TEXT = 2**26
# The same of a table in CSV, and numbers of any table: 2 GiB of float64.
_LARGEST_CSV = 2**29
_MOST_CELLS = 2**28


class FileError(SpecsimError):
    """A file cannot be written; the message says which and why."""


def check_replaceable(path: Path, option: str = "") -> Path:
    """Where a file of this name is written: the path, or what a link of that name leads to.

    Refuses, before anything is worked out for it, whatever is not a regular file or nothing, and
    what lies in no folder that can be written to.

    option : that the path is the value of, for the message
    """
    name = f"{option} {path}" if option else str(path)
    target = Path(os.path.realpath(path)) if os.path.islink(path) else path
    try:
        mode = target.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.isdir(target.parent):
            raise FileError(f"{name}: cannot be written (no such folder {target.parent})") from None
    except (OSError, ValueError) as error:
        raise FileError(f"{name}: cannot be written ({_words(error)})") from None
    else:
        if stat.S_ISDIR(mode):
            raise FileError(f"{name}: is a folder; name a file in it")
        if not stat.S_ISREG(mode):
            raise FileError(f"{name}: is no regular file, and nothing else is replaced")
    if not os.access(target.parent, os.W_OK):
        raise FileError(f"{name}: cannot be written (no right to write in {target.parent})")
    return target


def write_atomically(path: Path, content: bytes) -> None:
    """Through a temporary file beside ``path``, so that a kill leaves the old file or none.

    Only a regular file, or nothing, is replaced.
    """
    target = check_replaceable(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.unlink(missing_ok=True)
        with partial.open("xb") as stream:  # never through a link that somebody else put there
            stream.write(content)
        partial.replace(target)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({_words(error)})") from None
    finally:
        with suppress(OSError):
            partial.unlink()
    with suppress(OSError):
        for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
            process = left.name.removeprefix(f".{target.name}.").removesuffix(".partial")
            if process.isdigit() and not _lives(int(process)):
                left.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    """Whether a process of this number runs, as far as can be said without harm to it."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def check_regular(
    path: Path, name: str, error: type[SpecsimError], most: int | None = None
) -> None:
    """Refuse what is not a regular file, or one of more than ``most`` bytes, without opening it.

    name : of the file in the message, with what it is
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise error(f"{name}: no such file") from None
    except (OSError, ValueError) as problem:
        raise error(f"{name}: cannot be read ({_words(problem)})") from None
    if stat.S_ISDIR(found.st_mode):
        raise error(f"{name}: is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise error(f"{name}: is no regular file (a pipe or a device, which may have no end)")
    if most is not None and found.st_size > most:
        raise error(f"{name}: {too_large(found.st_size, most)}")


def read_regular(
    path: Path, what: str, error: type[SpecsimError], most: int = LARGEST_TEXT
) -> bytes:
    """The content of a regular file of at most ``most`` bytes.

    what : that the file is, and the ``error`` to raise, for the message
    """
    name = f"{what} {path}" if what else str(path)
    check_regular(path, name, error, most)
    try:
        with path.open("rb") as stream:
            content = stream.read(most + 1)
    except OSError as problem:
        raise error(f"{name}: cannot be read ({_words(problem)})") from None
    if len(content) > most:  # one that grows meanwhile, or whose size nobody tells
        raise error(f"{name}: {too_large(len(content), most)}")
    return content


def too_large(size: int, most: int) -> str:
    """That a file has more bytes than are read."""
    return (
        f"has {size / 2**20:,.1f} MiB or more, at most {most / 2**20:,.0f} MiB are read; give a "
        "part of it"
    )


def check_file_name(name: str) -> None:
    """Refuse a name in a file that would lead out of the folder in which the file lies."""
    wrong = not name or name in (".", "..") or any(each in name for each in "/\\\0")
    if wrong or len(name.encode("utf-8", "surrogatepass")) > 255:
        raise InvalidArgumentError(
            f"a file beside this one is named without a folder, in at most 255 bytes, got "
            f"{name[:80]!r}"
        )


@dataclass(frozen=True)
class Format:
    """A JSON file that names its schema and version.

    role : what the file is to its reader, for messages
    called : what it is to others, with its article
    remedy : what to do with one of another version
    error : raised where a file cannot be used; the message says which and why
    upgrades : by an older version, its content as that of this version
    made_by : the command that writes one; empty: nothing is said of it
    """

    role: str
    called: str
    schema: str
    version: int
    remedy: str
    error: type[SpecsimError]
    upgrades: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    made_by: str = ""

    def is_meant(self, path: Path) -> bool:
        """Whether a file names this schema, whatever else is in it; never raises."""
        try:
            header = msgspec.json.decode(read_regular(path, "", FileError))
        except (SpecsimError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return self._named(header)

    def read(self, path: Path, kind: type[Document]) -> Document:
        """Load a file and check it against its ``kind``."""
        name = f"{self.role} {path}"
        if self.made_by and _is_missing(path):
            raise self.error(f"{name}: no such file; {self.made_by} writes one")
        content = read_regular(path, self.role, self.error)
        try:
            header = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.error(f"{name}: not complete JSON ({error})") from None
        if not self._named(header):
            raise self.error(f'{name}: not {self.called} (no "schema": "{self.schema}")')
        version = header.get("version")
        upgrade = self.upgrades.get(version) if isinstance(version, int) else None
        if version != self.version and upgrade is None:
            raise self.error(
                f"{name}: has version {str(version)[:40]}, this specsim reads version "
                f"{self.version}; use the specsim that wrote it or {self.remedy}"
            )
        try:
            if upgrade is not None:
                return msgspec.convert(upgrade(header), type=kind)
            return msgspec.json.decode(content, type=kind)
        except (msgspec.ValidationError, SpecsimError) as error:
            raise self.error(f"{name}: {error}") from None
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise self.error(f"{name}: not as version {version} is ({error!r})") from None

    def write(self, document: msgspec.Struct, path: Path) -> None:
        """Write whole or not at all."""
        try:
            content = msgspec.json.encode(document)
        except (UnicodeEncodeError, OverflowError) as error:
            raise FileError(f"{path}: cannot be written ({reason_of(error)})") from None
        write_atomically(path, msgspec.json.format(content) + b"\n")

    def _named(self, header: Any) -> bool:
        return isinstance(header, dict) and header.get("schema") == self.schema


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        pass
    return False


def make_folder(path: Path) -> None:
    """The folder of --out, with those that it lies in, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise FileError(f"--out {path}: cannot be made ({_words(error)})") from None


def short_digest(decisive: Sequence[object]) -> str:
    """Twelve hexadecimal digits that stand for all of it."""
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_frame(
    path: Path,
    what: str,
    error: type[SpecsimError],
    wanted: Callable[[str], bool] | None = None,
) -> pd.DataFrame:
    """A table in Parquet or CSV; ``what`` the file is, and the ``error`` to raise, name it.

    wanted : which columns are read, by their names; None: all
    """
    name = f"{what} {path}"
    check_regular(path, name, error, _LARGEST_CSV if path.suffix == ".csv" else None)
    if path.suffix not in (".parquet", ".csv"):
        raise error(f"{name}: the name must end in .parquet or .csv")
    try:
        return _read_csv(path, wanted) if path.suffix == ".csv" else _read_parquet(path, wanted)
    except SpecsimError as problem:
        raise error(f"{name}: {problem}") from None
    # A damaged file leads its reader to exceptions of any kind, which all mean the same.
    except Exception as problem:
        raise error(f"{name}: cannot be read: {reason_of(problem)}") from None


def _read_csv(path: Path, wanted: Callable[[str], bool] | None) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(path, usecols=wanted, low_memory=False)


def column_numbers(column: pd.Series[Any]) -> Floats:
    """A column of a table as float64, where numbers may be written as words: nan where there is no
    number, an infinite one where no float64 reaches it.
    """
    import numpy as np
    import pandas as pd

    try:
        return np.asarray(pd.to_numeric(column, errors="coerce"), np.float64)
    except OverflowError:  # digits of a whole number, of which Python has any number
        return np.array([_as_float(value) for value in column])


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf
    except (TypeError, ValueError):
        return nan


def _read_parquet(path: Path, wanted: Callable[[str], bool] | None) -> pd.DataFrame:
    """Nothing but the columns and the attributes of what was a DataFrame: what else pandas notes
    of it need not be there, and need not be whole.
    """
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        names = parquet_columns(file, wanted)
        cells = file.metadata.num_rows * len(names)
        if cells > _MOST_CELLS:
            raise InvalidArgumentError(
                f"has {cells:,} numbers in {len(names)} columns, at most {_MOST_CELLS:,} are "
                "read; give a part of it"
            )
        table = file.read(columns=names)
        attributes = (file.schema_arrow.metadata or {}).get(b"PANDAS_ATTRS", b"{}")
    frame: pd.DataFrame = table.replace_schema_metadata(None).to_pandas()
    found = json.loads(attributes)
    if not isinstance(found, dict):
        raise InvalidArgumentError("its attributes (PANDAS_ATTRS) must be a JSON object")
    frame.attrs.update(found)
    return frame


def parquet_columns(file: Any, wanted: Callable[[str], bool] | None) -> list[str]:
    """Names of the wanted columns of an open ``ParquetFile``, each there once, of plain values."""
    import pyarrow.types as types

    fields = [each for each in file.schema_arrow if wanted is None or wanted(each.name)]
    names = [each.name for each in fields]
    for each in fields:
        if types.is_nested(each.type):
            raise InvalidArgumentError(
                f"column {each.name} must hold numbers or words, got {each.type}"
            )
        if names.count(each.name) > 1:
            raise InvalidArgumentError(f"has more than one column {each.name}")
    return names


def check_frame_path(path: Path) -> None:
    """Refuse a name or folder that ``write_frame`` could not write."""
    if path.suffix not in (".parquet", ".csv") or not os.path.isdir(path.parent):
        raise FileError(f"{path}: must be a .parquet or .csv in a folder that exists")
    check_replaceable(path)


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """A table as Parquet or CSV, by the end of the name; whole or not at all."""
    check_frame_path(path)
    write_atomically(path, frame_bytes(frame, path.suffix))


def frame_bytes(frame: pd.DataFrame, suffix: str) -> bytes:
    """What a file of a table holds: CSV with ``.csv``, else Parquet, which keeps its attributes."""
    if suffix == ".csv":
        return bytes(frame.to_csv(index=False).encode())
    return bytes(frame.to_parquet(index=False))


def _words(error: Exception) -> str:
    """What an operating system says of a name."""
    return str(getattr(error, "strerror", None) or reason_of(error))
