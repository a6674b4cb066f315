"""Tables from files, files written whole or not at all, and folders for what is half done."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.checks import SpecsimError

if TYPE_CHECKING:
    import pandas as pd


class FileError(SpecsimError):
    """A file cannot be written; the message says which and why."""


def write_atomically(path: Path, content: bytes) -> None:
    """Through a temporary file beside ``path``, so that a kill leaves the old file or none."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise FileError(f"{path}: cannot be written ({error.strerror})") from None


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
