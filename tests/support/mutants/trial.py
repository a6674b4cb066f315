"""The tests of one module in a process of its own, in which a mutant stands for the module.

The process is forked where all that does not belong to this repository is loaded, and the mutant
comes from memory: no file is changed, and whatever a mutant does ends with its process.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest

from tests.support.mutants import plain

# Bytes of addresses that a mutant may take; libraries alone map some gigabytes.
_MOST_BYTES = 16 * 2**30
# A mutant may take so many times as long as the module does, and some seconds more.
_SLOWER, _SECONDS_MORE = 4, 5
# By the clock, where others compute beside it.
_BUSY = 10
_LOADED: set[str] = set()
_OURS = ("specsim", "calibrate", "studies", "tests", "conftest", "__main__")


@dataclass(frozen=True)
class Trial:
    """What became of a mutant, or of the module as it is.

    killed_by : the first test that failed, or ``import``, ``time``, ``crash``; nothing where all
        tests passed
    cpu_s : seconds of the processor
    loaded : names of all modules at the end
    """

    killed_by: str
    cpu_s: float
    loaded: tuple[str, ...] = ()


def try_out(
    module: str,
    source: str,
    tests: Sequence[str],
    profile: str,
    seconds: float | None = None,
) -> Trial:
    """Run tests with ``source`` for the module of this dotted name.

    profile : of hypothesis
    seconds : of the processor that the tests take with the module as it is
    """
    most = None if seconds is None else int(_SLOWER * seconds + _SECONDS_MORE)
    folder = tempfile.mkdtemp(prefix="mutant-")
    out, into = os.pipe()
    begun = time.monotonic()
    process = os.fork()
    if not process:
        os.close(out)
        _child(module, source, tests, profile, most, Path(folder), into)
    os.close(into)
    try:
        text = _read(out, None if most is None else _BUSY * most)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        _, status, usage = os.wait4(process, 0)
        os.close(out)
        shutil.rmtree(folder, ignore_errors=True)
    cpu_s = usage.ru_utime + usage.ru_stime
    if text:
        return Trial(**{**json.loads(text), "cpu_s": cpu_s})
    late = status and os.WTERMSIG(status) == signal.SIGXCPU
    waited = most is not None and time.monotonic() - begun > _BUSY * most
    return Trial("time" if late or waited else "crash", cpu_s)


def load(names: Sequence[str]) -> bool:
    """Load what is not of this repository, so that processes have it; whether any of it is new."""
    new = {name for name in names if name.partition(".")[0] not in _OURS} - _LOADED
    _LOADED.update(new)
    for name in sorted(new - sys.modules.keys()):
        # What cannot be loaded by its name was no module of a file.
        with suppress(Exception):
            importlib.import_module(name)
    return bool(new)


def _read(out: int, seconds: float | None) -> str:
    """All that a process writes until it ends, or nothing after so many seconds."""
    end = None if seconds is None else time.monotonic() + seconds
    found = b""
    while True:
        left = None if end is None else max(end - time.monotonic(), 0.0)
        if not select.select([out], [], [], left)[0]:
            return ""
        part = os.read(out, 2**16)
        if not part:
            return found.decode()
        found += part


def _child(
    module: str,
    source: str,
    tests: Sequence[str],
    profile: str,
    most: int | None,
    folder: Path,
    into: int,
) -> None:
    """What the process does; it never returns."""
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        if most is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
        silent = os.open(folder / "out.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        _replace({**plain.sources(), module: source})
        first = _First()
        words = ["-x", "--tb=no", "--no-header", f"--basetemp={folder / 'tmp'}"]
        words += ["-p", "no:cacheprovider", "-p", "no:xdist", f"--hypothesis-profile={profile}"]
        status = pytest.main([*words, *tests], plugins=[first])
        killed = first.failed or ("" if status == pytest.ExitCode.OK else "import")
        text = json.dumps({"killed_by": killed, "loaded": sorted(sys.modules)})
        with os.fdopen(into, "w") as stream:
            stream.write(text)
        code = 0
    finally:
        os._exit(code)


def _replace(sources: Mapping[str, str]) -> None:
    """Have modules of these names made of these sources."""
    for name in [*sys.modules]:
        if name.partition(".")[0] == "specsim":
            del sys.modules[name]
    sys.meta_path.insert(0, _Finder(sources))
    # Whole numbers wrap in the loops of the simulator.
    np.seterr(over="ignore")


class _First:
    """Which test failed first."""

    failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


class _Finder(MetaPathFinder):
    """Finds some modules, with other sources."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        source = self._sources.get(fullname)
        if source is None:
            return None
        file = str(Path(*fullname.split(".")).with_suffix(".py").resolve())
        return spec_from_file_location(fullname, file, loader=_Loader(fullname, file, source))


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)
