"""What a long run has done so far, so that a run that was killed goes on where it was.

A checkpoint is a folder whose name ends in a key: a digest of everything that decides the result,
versions of the packages included.  Items in it are written whole or not at all.  Nothing is made
before there is an item to keep, and nothing is left once the run is done.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from specsim.files import FileError, short_digest

# Packages that decide what is measured.
_PACKAGES = ("specsim", "numpy", "torch", "transformers")


@dataclass(frozen=True)
class Checkpoint:
    """Items by name, in a folder.

    all_keys : pattern of the folders of this run under any key, all of which go when it is done
    """

    folder: Path
    all_keys: str = ""

    @staticmethod
    def beside(out: Path, *decisive: object) -> Checkpoint:
        """Of a run that writes ``out``; ``decisive`` (as JSON) is all that decides what."""
        folder = out.parent / f".{out.name}.{_key(decisive)}.work"
        return Checkpoint(folder, f".{glob.escape(out.name)}.{'[0-9a-f]' * 12}.work")

    @staticmethod
    def temporary(*decisive: object) -> Checkpoint:
        """Of a run that writes no file, in the folder of temporary files."""
        # Windows has no user numbers, and a temporary folder for each user.
        user = getattr(os, "getuid", int)()
        return Checkpoint(Path(tempfile.gettempdir()) / f"specsim-{user}-{_key(decisive)}")

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on with."""
        return self.folder.is_dir() and any(self.folder.iterdir())

    def __contains__(self, name: str) -> bool:
        return (self.folder / name).is_file()

    def keep(self, name: str, write: Callable[[Path], object]) -> Path:
        """The file of an item; unless it is there, ``write`` is given the path to write it to."""
        if name not in self:
            self._write(name, write)
        return self.folder / name

    def _write(self, name: str, write: Callable[[Path], object]) -> None:
        path, partial = self.folder / name, self.folder / f".{name}.{os.getpid()}.partial"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                write(partial)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise FileError(f"{path}: cannot be written ({error.strerror})") from None

    def keep_json(
        self,
        name: str,
        make: Callable[[], Any],
        kind: Any = Any,
        decode: Callable[[type, Any], Any] | None = None,
    ) -> Any:
        """The same of a value as JSON, read back even when it was just made.

        kind, decode : type and ``dec_hook`` of ``msgspec.json.decode``
        """
        # Made outside of ``keep``: what fails there is no file's fault.
        if name in self:
            content = (self.folder / name).read_bytes()
        else:
            content = msgspec.json.encode(make())
            self.keep(name, lambda path: path.write_bytes(content))
        return msgspec.json.decode(content, type=kind, dec_hook=decode)

    def replace_json(self, name: str, value: Any) -> None:
        """Keep a value that changes as the run goes on, in place of what it was."""
        self._write(name, lambda path: path.write_bytes(msgspec.json.encode(value)))

    def done(self) -> None:
        """Remove it, and what runs of the same output left under other keys."""
        # The result is worth more than a clean folder.
        for folder in self.folder.parent.glob(self.all_keys or glob.escape(self.folder.name)):
            shutil.rmtree(folder, ignore_errors=True)


def _key(decisive: tuple[object, ...]) -> str:
    return short_digest([*decisive, *map(_version, _PACKAGES)])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a machine that is lent may run what is not installed
        return ""
