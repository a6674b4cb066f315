"""How much of the machine other programs use while something is measured on it.

Run times that are measured beside another program are too long, scatter, and say nothing of an
idle machine, so a measurement looks at the processors when it begins and all along, and what it
finds is a line in the profile that later commands repeat.  How far plain steps scatter tells less:
quartiles of an idle machine that drifts lay 10 to 26 % of the median apart, of one whose other core
was taken 20 %.  Run times are ratios to plain steps beside them, and what passes differ by is in
their interval.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from specsim.api.cores import CGROUP, own_processors, seconds_in_container, usable_cores
from specsim.api.progress import Progress, note
from specsim.checkpoint import Checkpoint
from specsim.profiles import BUSY

# Other programs may use a tenth of the cores beside the threads that measure, or four tenths of
# them where most cores are free: they share caches, memory and the power that the clock rate needs.
_SPARE, _SHARE = 0.1, 0.4
# More than that they may use in a tenth of the seconds of a phase.
_BRIEFLY = 0.1
# Seconds between two looks at the processors, and before the first says anything: they count
# hundredths of seconds.
_EVERY_S, _FIRST_S = 5.0, 0.5
_FILE = "others.json"
_START = "the start"


@dataclass(frozen=True)
class CpuTimes:
    """Seconds of processor time at one moment.

    at_s : of the clock
    all_s : used by all programs where this process may run, and taken there by other guests of the
        same host; None where the system does not say (it does on Linux)
    own_s : of them, used by this process and all that it started
    """

    at_s: float
    all_s: float | None
    own_s: float

    @staticmethod
    def now() -> CpuTimes:
        times = _all_seconds()
        own = sum(os.times()[:4]) if times is None else _own_seconds()
        return CpuTimes(time.monotonic(), times, own)

    def others_since(self, before: CpuTimes) -> float | None:
        """Cores that other programs used in between, on average; None where nothing says so."""
        elapsed = self.at_s - before.at_s
        own = self.own_s - before.own_s
        if own < 0:  # of processes that have ended nothing is told any more
            return None
        if self.all_s is not None and before.all_s is not None:
            return max(0.0, self.all_s - before.all_s - own) / elapsed
        if not hasattr(os, "getloadavg"):
            return None
        # Of the last minute: rough, but it sees a second program.
        return max(0.0, os.getloadavg()[0] - own / elapsed)


def _all_seconds(stat: Path = Path("/proc/stat"), cgroup: Path = CGROUP) -> float | None:
    """Of the processors that this process may run on; in a container with a quota, of what runs in
    it, since nobody else takes of that.
    """
    limited = seconds_in_container(cgroup)
    if limited is not None:
        return limited
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return None
    processors = dict(map(_processor_seconds, (each for each in lines if each.startswith("cpu"))))
    every = processors.pop("cpu")
    own = {f"cpu{number}" for number in own_processors()}
    # A container may be shown its own processors alone, under other numbers.
    return sum(processors[name] for name in own) if own < processors.keys() else every


def _processor_seconds(line: str) -> tuple[str, float]:
    """Name and used time, of user, nice, system, idle, iowait, irq, softirq, steal in ticks."""
    name, *words = line.split()
    ticks = [int(word) for word in words[:8]]
    return name, (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Of this process and its descendants, from ``/proc/PID/stat``."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for process, words in _processes():
        # Behind the name: state, parent, ..., and as 12th to 15th the ticks of user and system,
        # own and of the children that were waited for.
        parents[process] = int(words[1])
        seconds[process] = sum(map(int, words[11:15])) / tick
    own = {os.getpid()}
    grown = True
    while grown:
        found = {process for process, parent in parents.items() if parent in own} - own
        own |= found
        grown = bool(found)
    return sum(seconds.get(process, 0.0) for process in own)


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Number, and what its status says behind its name, of every process."""
    for folder in os.scandir("/proc"):
        if folder.name.isdigit():
            try:
                content = Path(folder.path, "stat").read_bytes()
            except OSError:
                continue  # it has ended
            # The kernel cuts a name at 15 bytes, which may be in the midst of a letter.
            yield int(folder.name), content.rpartition(b")")[2].decode().split()


def others_load(interval_s: float = _FIRST_S) -> float | None:
    """Cores that other programs use, on average over the next so many seconds."""
    before = CpuTimes.now()
    time.sleep(interval_s)
    return CpuTimes.now().others_since(before)


def too_busy(others: float | None, threads: int, cores: float | None = None) -> bool:
    """Whether so many cores used by other programs disturb a measurement with so many threads.

    cores : that may be used; None is as many as this process may
    """
    total = cores or usable_cores()
    limit = min((1 + _SPARE) * total - threads, _SHARE * total)
    # A core's tenth is always in use by somebody.
    return others is not None and others > max(limit, 0.1)


def busy_warning(others: float | None, threads: int, cores: float | None = None) -> str | None:
    """One line that says what to do, where other programs use too much just now."""
    if others is None or not too_busy(others, threads, cores):
        return None
    return (
        f"{BUSY}other programs use {others:.1f} of {cores or usable_cores():g} cores: stop them "
        "and start again, or run times come out too long and scatter; if it lasts, the result says "
        "so"
    )


class Watch:
    """What other programs use over a long run, phase by phase.

    It is kept with the run's checkpoint, so that a run that was killed knows of its first part.
    Says so at once, as a note of ``progress``, when the machine is too busy.

    threads : that measure
    untimed : how phases begin in which nothing is timed, so that others may run; the start is one
    look : what the processors have done so far
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        progress: Progress,
        threads: int,
        *,
        untimed: tuple[str, ...] = (),
        first_s: float = _FIRST_S,
        every_s: float = _EVERY_S,
        look: Callable[[], CpuTimes] = CpuTimes.now,
    ) -> None:
        self._checkpoint, self._report, self._threads = checkpoint, progress, threads
        self._untimed = (_START, *untimed)
        self._every_s, self._look = every_s, look
        self._said = False
        # Seconds, core seconds of other programs, and seconds of too many of them, by phase.
        self._phases: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        if _FILE in checkpoint:
            kept = checkpoint.keep_json(_FILE, dict, dict[str, list[float]])
            # Runs that were begun by an older version know the first two.
            self._phases.update({phase: [*each, 0.0][:3] for phase, each in kept.items()})
        self._before = look()
        time.sleep(first_s)
        self._phase = _START
        self._add()

    def progress(self, activity: str, done: int, total: int) -> None:
        """The progress to give to what measures; it looks at the processors now and then."""
        if activity != self._phase:
            self._add()
            self._phase = activity
        else:
            self.look_if_due()
        self._report(activity, done, total)

    def look_if_due(self) -> None:
        """Look at the processors if the last look was long ago; to call in the midst of what has
        nothing to report for long.
        """
        if time.monotonic() - self._before.at_s >= self._every_s:
            self._add()

    def warnings(self) -> list[str]:
        """One line about the timed phases in which other programs used too much, or none.

        Too much in the mean, or in more than a tenth of the time: a program that ran beside a part
        of the repeats disturbed those.
        """
        self._add()
        busy = []
        for phase, (took, used, disturbed) in self._phases.items():
            if not took or phase.startswith(self._untimed):
                continue
            if too_busy(used / took, self._threads):
                busy.append(f"{used / took:.1f} during {phase}")
            elif disturbed > _BRIEFLY * took:
                busy.append(
                    f"{used / took:.1f} during {phase} (too much for {disturbed / took:.0%} of it)"
                )
        if not busy:
            return []
        return [
            f"{BUSY}of {usable_cores():g} cores other programs used {', '.join(busy)}: run times "
            "came out too long and scatter; stop those programs and measure again"
        ]

    def _add(self) -> None:
        """What happened since the last look belongs to the phase that is going on."""
        now = self._look()
        others = now.others_since(self._before) if now.at_s > self._before.at_s else None
        took = now.at_s - self._before.at_s
        self._before = now
        if others is None:
            return
        spent = self._phases[self._phase]
        spent[0] += took
        spent[1] += took * others
        # Shorter looks are of too few ticks to say anything by themselves.
        warning = busy_warning(others, self._threads) if took >= _FIRST_S else None
        if warning is not None:
            spent[2] += took
        if self._checkpoint.begun:
            self._checkpoint.replace_json(_FILE, self._phases)
        if warning is not None and not self._said:
            self._said = True
            note(self._report, warning)
