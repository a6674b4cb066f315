"""What a long run has done so far, so that a run that was killed goes on where it was.

A checkpoint is a folder whose name ends in a key: a digest of everything that decides the result,
versions of the packages included.  Items in it are written whole or not at all.  Nothing is made
before there is an item to keep, and nothing is left once the run is done.  A process that works in
a folder holds its lock until it ends, and no two work on one output.  What killed runs left that
nobody took up again for days is removed when another run begins.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from specsim.api.answering import once_answered
from specsim.files import FileError, short_digest

# Packages that decide what is measured.
_PACKAGES = ("specsim", "numpy", "torch", "transformers")
# Names of folders, ours and nobody else's: of a run that writes a file, of one that writes none,
# and of the log of an inference engine.  One that is done is renamed before it is removed, so that
# no run that is killed meanwhile leaves half of it to go on with.
_DONE = ".done"
_NAMES = re.compile(
    r"(\..+\.[0-9a-f]{12}\.work|specsim-\d+-[0-9a-f]{12}|specsim-engine-[a-z0-9_]{8})(\.done)?"
)
_LOCK = ".lock"
# Descriptors of the locks that this process holds, by folder.
_HELD: dict[Path, int] = {}
# A run that was killed so many days ago is not taken up again.
_DAYS = 7


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
        remove_left_over(out.parent)
        folder = out.parent / f".{out.name}.{_key(decisive)}.work"
        return Checkpoint(folder, f".{glob.escape(out.name)}.{'[0-9a-f]' * 12}.work")

    @staticmethod
    def remove_behind(out: Path) -> None:
        """Remove what a kill left between the writing of ``out`` and the removal of its items."""
        Checkpoint.beside(out).done()

    @staticmethod
    def temporary(*decisive: object) -> Checkpoint:
        """Of a run that writes no file, in the folder of temporary files."""
        # Windows has no user numbers, and a temporary folder for each user.
        user = getattr(os, "getuid", int)()
        folder = Path(tempfile.gettempdir()) / f"specsim-{user}-{_key(decisive)}"
        remove_left_over(folder.parent)
        if os.path.lexists(folder) and not _is_own(folder):
            raise FileError(f"{folder}: belongs to somebody else; have it removed, or set TMPDIR")
        return Checkpoint(folder)

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on with."""
        return self._entered() and any(
            not each.name.startswith(".") for each in self.folder.iterdir()
        )

    def __contains__(self, name: str) -> bool:
        return self._entered() and (self.folder / name).is_file()

    def _entered(self) -> bool:
        """Whether there is a folder, which is then this process's."""
        if not self.folder.is_dir():
            self._refuse_others()
            return False
        self._take()
        return True

    def _take(self) -> None:
        """Be the only process at work on this output, in a folder that is made unless it is there.

        Refused before anything is made for it, and once more in case two begin at the same moment.
        """
        if not _is_held(self.folder):
            self._refuse_others()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _hold(self.folder):
            self._refuse_others()

    def _refuse_others(self) -> None:
        """Raises FileError where another process works on the same output under another key."""
        for other in self.folder.parent.glob(self.all_keys) if self.all_keys else ():
            if other != self.folder and _is_taken(other):
                raise FileError(_at_work(other))

    def keep(self, name: str, write: Callable[[Path], object]) -> Path:
        """The file of an item; unless it is there, ``write`` is given the path to write it to."""
        if name not in self:
            self._write(name, write)
        return self.folder / name

    def _write(self, name: str, write: Callable[[Path], object]) -> None:
        path, partial = self.folder / name, self.folder / f".{name}.{os.getpid()}.partial"
        try:
            self._take()
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
        """Remove it, and what runs of the same output left under other keys.

        Of a run that writes no file only when its answer is out, which is all that there is of it.
        """
        if self.all_keys:
            self._remove_all()
        else:
            once_answered(self._remove_all)

    def _remove_all(self) -> None:
        for folder in self.folder.parent.glob(self.all_keys or glob.escape(self.folder.name)):
            # The result is worth more than a clean folder, and who is at work keeps his.
            with suppress(FileError):
                _hold(folder)
                _remove(folder)


def remove_left_over(parent: Path, days: float = _DAYS, prefix: str = "") -> None:
    """Remove folders of ours in ``parent`` that no process holds and nobody wrote to for days.

    Links are not followed, and what belongs to another user stays.

    prefix : of their names; others stay
    """
    try:
        found = [
            each
            for each in parent.iterdir()
            if _NAMES.fullmatch(each.name) and each.name.startswith(prefix)
        ]
    except OSError:  # who cannot look has nothing to remove
        return
    for folder in found:
        with suppress(OSError, FileError):
            if not _is_own(folder):
                continue
            done = folder.name.endswith(_DONE)
            if done or time.time() - _last_change(folder) > days * 24 * 3600:
                _hold(folder)
                _remove(folder)


def _is_own(folder: Path) -> bool:
    """Whether it is a folder, no link, of the user who runs this."""
    found = folder.lstat()
    own = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return folder.is_dir() and not folder.is_symlink() and own


def _last_change(folder: Path) -> float:
    """Of it and of what lies in it; an engine's log grows without the folder changing."""
    return max(each.lstat().st_mtime for each in (folder, *folder.iterdir()))


def _remove(folder: Path) -> None:
    """A folder that this process holds."""
    descriptor = _HELD.pop(folder.absolute())
    # Windows renames no folder in which a file is open.  Elsewhere it is held until it has another
    # name: else another process could take it up just before.
    if sys.platform == "win32":
        os.close(descriptor)
    if not folder.name.endswith(_DONE):
        aside = folder.with_name(folder.name + _DONE)
        shutil.rmtree(aside, ignore_errors=True)
        with suppress(OSError):
            folder = folder.rename(aside)
    if sys.platform != "win32":
        os.close(descriptor)
    shutil.rmtree(folder, ignore_errors=True)


def _hold(folder: Path) -> bool:
    """Be the only process that works in it, until this one ends or removes it.

    Returns whether it was not before.  Raises FileError in one that another process works in.
    """
    lock, key = folder / _LOCK, folder.absolute()
    try:
        if _is_held(folder):
            return False
        if key in _HELD:
            os.close(_HELD.pop(key))
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        raise FileError(f"{folder}: cannot be written ({error.strerror})") from None
    if not _lock(descriptor):
        os.close(descriptor)
        raise FileError(_at_work(folder))
    _HELD[key] = descriptor
    return True


def _is_held(folder: Path) -> bool:
    """Whether this process holds it; a folder may have gone and come again."""
    lock, descriptor = folder / _LOCK, _HELD.get(folder.absolute())
    try:
        return descriptor is not None and os.path.samestat(lock.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _is_taken(folder: Path) -> bool:
    """Whether another process holds it."""
    if _is_held(folder):
        return False
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:  # nobody ever worked there, or somebody else's user
        return False
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def _at_work(folder: Path) -> str:
    return (
        f"{folder}: another specsim is at work on the same just now; let it come to its end, or "
        "end it and start this one again"
    )


def _lock(descriptor: int) -> bool:
    """Whether the lock of an open file is this process's now.

    A file system without locks gives it to everybody.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
    return True


def _key(decisive: tuple[object, ...]) -> str:
    return short_digest([*decisive, *map(_version, _PACKAGES)])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a machine that is lent may run what is not installed
        return ""
