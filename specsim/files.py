"""Tables and versioned documents from files, files written whole or not at all, and folders for
what is half done.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from specsim.checks import SpecsimError

if TYPE_CHECKING:
    import pandas as pd


Document = TypeVar("Document", bound=msgspec.Struct)


class FileError(SpecsimError):
    """A file cannot be written; the message says which and why."""


def write_atomically(path: Path, content: bytes) -> None:
    """Through a temporary file beside ``path``, so that a kill leaves the old file or none."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
            process = left.name.removeprefix(f".{path.name}.").removesuffix(".partial")
            if process.isdigit() and not _lives(int(process)):
                left.unlink(missing_ok=True)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise FileError(f"{path}: cannot be written ({error.strerror})") from None


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


@dataclass(frozen=True)
class Format:
    """A JSON file that names its schema and version.

    role : what the file is to its reader, for messages
    called : what it is to others, with its article
    remedy : what to do with one of another version
    error : raised where a file cannot be used; the message says which and why
    upgrades : by an older version, its content as that of this version
    """

    role: str
    called: str
    schema: str
    version: int
    remedy: str
    error: type[SpecsimError]
    upgrades: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)

    def is_meant(self, path: Path) -> bool:
        """Whether a file names this schema, whatever else is in it; never raises."""
        try:
            header = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return self._named(header)

    def read(self, path: Path, kind: type[Document]) -> Document:
        """Load a file and check it against its ``kind``."""
        name = f"{self.role} {path}"
        if not path.is_file():
            raise self.error(f"{name}: no such file")
        content = path.read_bytes()
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
                f"{name}: has version {version}, this specsim reads version {self.version}; "
                f"use the specsim that wrote it or {self.remedy}"
            )
        try:
            if upgrade is not None:
                return msgspec.convert(upgrade(header), type=kind)
            return msgspec.json.decode(content, type=kind)
        except msgspec.ValidationError as error:
            raise self.error(f"{name}: {error}") from None
        except (KeyError, TypeError, AttributeError) as error:
            raise self.error(f"{name}: not as version {version} is ({error!r})") from None

    def write(self, document: msgspec.Struct, path: Path) -> None:
        """Write whole or not at all."""
        write_atomically(path, msgspec.json.format(msgspec.json.encode(document)) + b"\n")

    def _named(self, header: Any) -> bool:
        return isinstance(header, dict) and header.get("schema") == self.schema


def make_folder(path: Path) -> None:
    """The folder of --out, with those that it lies in, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"--out {path}: cannot be made ({error.strerror})") from None


def short_digest(decisive: Sequence[object]) -> str:
    """Twelve hexadecimal digits that stand for all of it."""
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_frame(path: Path, what: str, error: type[SpecsimError]) -> pd.DataFrame:
    """A table in Parquet or CSV; ``what`` the file is, and the ``error`` to raise, name it."""
    import pandas as pd

    if not path.is_file():
        raise error(f"{what} {path}: no such file")
    try:
        if path.suffix == ".csv":
            return pd.read_csv(path)
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
    except (OSError, ValueError, pd.errors.ParserError) as problem:
        reason = str(problem).splitlines()[0]
        raise error(f"{what} {path}: cannot be read: {reason}") from None
    raise error(f"{what} {path}: the name must end in .parquet or .csv")


def check_frame_path(path: Path) -> None:
    """Refuse a name or folder that ``write_frame`` could not write."""
    if path.suffix not in (".parquet", ".csv") or not path.parent.is_dir():
        raise FileError(f"{path}: must be a .parquet or .csv in a folder that exists")


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """A table as Parquet or CSV, by the end of the name; whole or not at all."""
    import io

    check_frame_path(path)
    if path.suffix == ".csv":
        write_atomically(path, frame.to_csv(index=False).encode())
        return
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    write_atomically(path, buffer.getvalue())
