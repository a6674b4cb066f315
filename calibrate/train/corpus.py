"""The text the embedded family is trained and measured on: Python's own standard library.

The sources are found through ``sysconfig`` on the machine at hand, so nothing is downloaded.
A fixed list of modules is held out of training; they are the default prompts of a calibration.
"""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

# Modules that training never sees.  All are present in every Python from 3.11 on, most of them
# are long enough for several prompts, and together they cover parsers, protocols, containers,
# numerics and text.
HELD_OUT: tuple[str, ...] = (
    "argparse.py",
    "asyncio/queues.py",
    "calendar.py",
    "concurrent/futures/thread.py",
    "configparser.py",
    "contextlib.py",
    "csv.py",
    "dataclasses.py",
    "difflib.py",
    "email/message.py",
    "fractions.py",
    "ftplib.py",
    "heapq.py",
    "http/cookiejar.py",
    "json/decoder.py",
    "logging/handlers.py",
    "mailbox.py",
    "multiprocessing/pool.py",
    "shlex.py",
    "statistics.py",
    "tarfile.py",
    "textwrap.py",
    "urllib/parse.py",
    "xml/dom/minidom.py",
)

# Left out of training: tests, tables of numbers and text that is not Python, installed packages.
_SKIPPED_FOLDERS = {
    "__pycache__",
    "encodings",
    "ensurepip",
    "idle_test",
    "pydoc_data",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
}


def library_root() -> Path:
    """Folder of the standard library's Python sources."""
    return Path(sysconfig.get_paths()["stdlib"])


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def held_out_texts() -> dict[str, str]:
    """Held-out modules by relative path; modules this Python lacks are absent."""
    root = library_root()
    texts = {name: _read(root / name) for name in HELD_OUT}
    return {name: text for name, text in texts.items() if text}


def training_texts() -> dict[str, str]:
    """Every other source file of the standard library, by relative path, in sorted order."""
    texts = {name: _read(path) for name, path in _library_files().items()}
    return {name: text for name, text in texts.items() if text}


def sampled_texts(most_bytes: int) -> dict[str, str]:
    """Source files of the standard library and of installed packages, until so many bytes.

    They come in the order of a hash of their relative paths, so that a part of them is a sample of
    all.  Packages bring copies of each other's files and of held-out modules; those are left out.
    """
    paths = sysconfig.get_paths()
    held_out = {Path(name).name for name in HELD_OUT}
    files = {
        path.relative_to(root).as_posix(): path
        for root in sorted({Path(paths["purelib"]), Path(paths["platlib"])})
        for path in root.rglob("*.py")
        if path.name not in held_out
    } | _library_files()
    seen = {_sha256(text) for text in held_out_texts().values()}
    texts: dict[str, str] = {}
    size = 0
    for name in sorted(files, key=_sha256):
        if size >= most_bytes:
            break
        text = _read(files[name])
        if text and _sha256(text) not in seen:
            seen.add(_sha256(text))
            texts[name] = text
            size += len(text)
    return texts


def _library_files() -> dict[str, Path]:
    """Source files of the standard library that models may be trained on, in sorted order."""
    root = library_root()
    files = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.py"))}
    return {
        name: path
        for name, path in files.items()
        if not _SKIPPED_FOLDERS.intersection(name.split("/")[:-1]) and name not in HELD_OUT
    }


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def digest(texts: dict[str, str]) -> str:
    """SHA-256 over names and contents, so that a record can say which text was used."""
    sha = hashlib.sha256()
    for name, text in texts.items():
        sha.update(f"{name}\0{text}\0".encode())
    return sha.hexdigest()
