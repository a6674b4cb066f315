"""What ``specsim.doctor`` looks at, one function each; what to do is said in words."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from specsim import __version__
from specsim.api.cores import CGROUP, system_file, usable_cores

_GIB = 1 << 30
# Twice what calibrate --quick has at most with two of the embedded models, 529 MiB, rounded down.
_LEAST_BYTES = _GIB
# As pyproject.toml writes them: a name, the least version, and the extra that asks for it.
_REQUIREMENT = re.compile(r"([\w.-]+)\s*>=\s*([\w.]+)(?:.*extra\s*==\s*[\"'](\w+)[\"'])?")
_NO_MODELS = "not known without torch and transformers"
# Extras for those who change specsim.
_NOT_FOR_USERS = ("dev", "browser", "mutants")


@dataclass(frozen=True)
class Condition:
    """One thing that was looked at.

    what : its name
    found : how it is, in words
    advice : what to do about it; empty where it is well
    needed : whether specsim lacks something until that is done
    known : whether anything could be found out
    """

    what: str
    found: str
    advice: str = ""
    needed: bool = False
    known: bool = True

    @property
    def state(self) -> Literal["ok", "advice", "to do", "unknown"]:
        if not self.advice:
            return "ok" if self.known else "unknown"
        return "to do" if self.needed else "advice"


def versions() -> list[Condition]:
    """specsim and Python, the packages that it needs, and those of each extra."""
    found = [Condition("specsim", f"{__version__}, Python {platform.python_version()}")]
    try:
        required = metadata.requires("specsim") or []
    except metadata.PackageNotFoundError:
        words = "specsim is not installed: nothing says which"
        return [*found, Condition("packages", words, known=False)]
    wanted: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in required:
        if match := _REQUIREMENT.match(line):
            name, least, extra = match.groups()
            wanted[extra or ""].append((name, least))
    return found + [packages(*each) for each in wanted.items() if each[0] not in _NOT_FOR_USERS]


def packages(extra: str, wanted: Sequence[tuple[str, str]]) -> Condition:
    """Those of an extra, or of specsim itself where that is empty.

    wanted : names and least versions
    """
    have = [(name, _version(name)) for name, _ in wanted]
    lacking = [
        f"{name} >= {least}"
        for (name, least), (_, version) in zip(wanted, have, strict=True)
        if version is None or _numbers(version) < _numbers(least)
    ]
    there = ", ".join(f"{name} {version}" for name, version in have if version is not None)
    what = f"packages of {extra}" if extra else "packages"
    if not lacking:
        return Condition(what, there)
    source, when = (f"'specsim[{extra}]'", ", if wanted") if extra else ("specsim", "")
    advice = f"pip install {source}{when}: {', '.join(lacking)}"
    return Condition(what, there or "not installed", advice, needed=not extra)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """2.13.0+cpu as (2, 13, 0)."""
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))


def cores() -> Condition:
    """Of the machine, and those that this process may use."""
    total, usable = os.cpu_count() or 1, usable_cores()
    limited = f", of which {usable:g} may be used" if usable < total else ""
    return Condition("cores", f"{total}{limited}")


def threads(target: str | None) -> Condition:
    """How many ``calibrate`` takes; of a target that is named, by a trial."""
    if not _runs_models():
        return Condition("threads", _NO_MODELS, known=False)
    from calibrate.models.threads import tried_threads

    tried = tried_threads()
    if target is not None:
        from calibrate.models.trial import threads_for

        words = f"calibrate takes {threads_for(target)} for {target}"
    else:
        words = "calibrate takes 1 for the embedded family"
        if len(tried) > 1:
            words += f", and for others what is fastest of {', '.join(map(str, tried))}"
    asked = os.environ.get("OMP_NUM_THREADS")
    if asked and tried[-1] < usable_cores():
        more = f"unset OMP_NUM_THREADS ({asked}) to let large models have more threads"
        return Condition("threads", words, more)
    return Condition("threads", words)


def _runs_models() -> bool:
    return all(find_spec(name) is not None for name in ("torch", "transformers"))


def accelerator() -> Condition:
    """The card that models run on."""
    if not _runs_models():
        return Condition("accelerator", _NO_MODELS, known=False)
    from calibrate.models import trial

    found = trial.accelerator()
    if found is not None:
        return Condition("accelerator", found)
    words = "none: models run on the CPU"
    if shutil.which("nvidia-smi") is None:
        return Condition("accelerator", words)
    advice = f"torch {_version('torch')} sees no card though nvidia-smi is here: install a build "
    return Condition("accelerator", words, f"{advice}of torch for its driver")


def others(seconds: float) -> Condition:
    """What other programs use of the machine, over so many seconds."""
    from calibrate.models.busy import others_load, too_busy

    used = others_load(seconds)
    if used is None:
        return Condition("other programs", "the system does not say what they use", known=False)
    words = f"use {used:.1f} of {usable_cores():g} cores just now"
    advice = "stop them before anything is measured: run times come out too long and scatter"
    return Condition("other programs", words, advice if too_busy(used, threads=1) else "")


def family() -> Condition:
    """The embedded models."""
    from calibrate.models.embedded import FAMILY, damaged_files, family_files

    broken = damaged_files()
    if not broken:
        return Condition("embedded family", f"{FAMILY}, {len(family_files())} files, all whole")
    more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
    words = f"{FAMILY}: {'; '.join(broken[:3])}{more}"
    return Condition("embedded family", words, "install specsim again", needed=True)


def engine() -> Condition:
    """vLLM, with which predictions can be checked."""
    from calibrate.engine.client import EngineError
    from calibrate.engine.server import find_program

    try:
        return Condition("inference engine", str(find_program(None)))
    except EngineError:
        advice = "make engine (3.5 GB) in a checkout, for validate and calibrate --engine"
        return Condition("inference engine", "no vllm is found", advice)


def memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = CGROUP) -> Condition:
    """What is free, of what this process may have at all."""
    told = (line.partition(":") for line in system_file(meminfo).splitlines())
    lines = {name: words for name, _, words in told}
    try:
        total, free = (int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (KeyError, ValueError, IndexError):
        return Condition("memory", "the system does not say", known=False)
    most, used = (system_file(cgroup / f"memory.{name}").strip() for name in ("max", "current"))
    if most.isdigit() and used.isdigit() and int(most) < total:
        # Files that were read and not for a while are given back when memory is asked for.
        idle = re.search(
            r"^inactive_file (\d+)$", system_file(cgroup / "memory.stat"), re.MULTILINE
        )
        total = int(most)
        free = min(free, total - int(used) + (int(idle[1]) if idle else 0))
    words = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB free"
    if free >= _LEAST_BYTES:
        return Condition("memory", words)
    advice = f"leave {_LEAST_BYTES / _GIB:.0f} GiB to specsim, and beside it what your models take"
    return Condition("memory", words, advice)


def caches() -> list[Condition]:
    """Where numba keeps what it compiles, and where models of the Hub are kept."""
    from specsim.hardware.hub import cache_folder

    compiled, advice = _compiled_folder(), ""
    if not is_writable(compiled):
        advice = "set NUMBA_CACHE_DIR to a folder that can be written, or serve compiles each time"
    hub = cache_folder()
    hub_advice = "" if is_writable(hub) else "set HF_HOME to a folder that can be written"
    return [
        Condition("compiled code", str(compiled), advice, needed=bool(advice)),
        Condition("models of the Hub", str(hub), hub_advice),
    ]


def _compiled_folder() -> Path:
    """As numba chooses it: what is asked for, beside the module, or the user's own."""
    if asked := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(asked).expanduser()
    beside = Path(__file__).parents[1] / "serving" / "__pycache__"
    if is_writable(beside):
        return beside
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "numba"


def is_writable(folder: Path) -> bool:
    """Whether a file can be written there, or in what there is of the folders that it lies in.

    It is tried: permissions say nothing of disks that are full or mounted to be read.
    """
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as stream:
            stream.write(b"specsim")
            stream.flush()
    except OSError:
        return False
    return True
