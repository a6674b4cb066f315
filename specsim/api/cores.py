"""The processors that this process may use: by its affinity, and by the quota of its container."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> float:
    """How many, which may be part of one."""
    own = float(len(own_processors()))
    quota = _quota(cgroup)
    return own if quota is None else min(own, quota)


def own_processors() -> set[int]:
    """The numbers of those that it may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def seconds_in_container(cgroup: Path = CGROUP) -> float | None:
    """Processor time of all that ran in the container; None where no quota makes it a part of the
    machine, or nothing says so.
    """
    quota = _quota(cgroup)
    if quota is None or quota >= len(own_processors()):
        return None
    for line in system_file(cgroup / "cpu.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == "usage_usec" and value.isdigit():
            return int(value) / 1e6
    return None


def system_file(path: Path) -> str:
    """The content of a file of the system; empty where there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _quota(cgroup: Path) -> float | None:
    """Cores' worth of time that a container may take; None is no limit."""
    words = system_file(cgroup / "cpu.max").split()
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / int(words[1])
    return None
