"""Writing files whole or not at all, and naming them by their content."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from specsim.checks import SpecsimError


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


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
