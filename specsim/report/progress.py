"""The progress callback of the calls: a bar on a terminal, elsewhere a line a minute."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from specsim.api.progress import Progress, quiet
from specsim.report.kept import is_kept

# Of a bar, seconds by whose pace what is left is judged: reports may be minutes apart.
_PERIOD_S = 3600.0
# Seconds between two lines where there is no terminal.
_INTERVAL_S = 60.0
# What is left is judged by the pace of so many lines.
_LINES = 5
# Steps that come so soon, in seconds, were done before a kill, and tell nothing of the pace.
_AT_ONCE_S = 0.005


@contextmanager
def progress_bar(vanishes: bool = False, after_s: float = 0.0) -> Iterator[Progress]:
    """A callback ``(what is going on, done, total)`` that says on stderr how far it is.

    vanishes : whether nothing of the bar is left on the terminal when it is done
    after_s : seconds in which there is no bar yet

    A total of 0 is a note, which is shown at once.  Where somebody keeps the results in place of a
    terminal, nothing is said.
    """
    from rich.console import Console

    if is_kept():
        yield quiet
    elif Console(stderr=True).is_terminal:
        with _bars(vanishes=vanishes, after_s=after_s) as report:
            yield report
    else:
        with _lines() as report:
            yield report


@contextmanager
def _bars(
    clock: Callable[[], float] = time.monotonic, vanishes: bool = False, after_s: float = 0.0
) -> Iterator[Progress]:
    """One bar for each kind.

    clock : seconds, by which the time left is told
    vanishes : whether nothing of it is left when it is done
    after_s : seconds in which there is none yet
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )

    begun, is_shown = clock(), False
    tasks: dict[str, TaskID] = {}
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        get_time=clock,
        speed_estimate_period=_PERIOD_S,
        transient=vanishes,
    )

    def report(activity: str, done: int, total: int) -> None:
        nonlocal is_shown
        if not total:
            bars.console.print(activity, markup=False, highlight=False)
            return
        # Not before: a call that ends at once with an error shows that one line and no bar.
        if not is_shown and clock() - begun >= after_s:
            bars.start()
            is_shown = True
        if activity not in tasks:
            tasks[activity] = bars.add_task(activity)
        bars.update(tasks[activity], completed=done, total=total)

    try:
        yield report
    finally:
        if is_shown:
            bars.stop()


@dataclass
class _Pace:
    """How far an activity was at the last lines, and is now.

    told_s : seconds of the last report
    kept : of what is done, what was done before a kill
    seen : seconds, what was done and what was kept then
    """

    done: int
    total: int
    told_s: float
    kept: int = 0
    seen: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=_LINES))

    def __post_init__(self) -> None:
        self.seen.append((self.told_s, self.done, self.kept))

    def tell(self, done: int, total: int, now: float) -> None:
        """A report."""
        if now - self.told_s < _AT_ONCE_S:
            self.kept += done - self.done
        self.done, self.total, self.told_s = done, total, now

    def line(self, activity: str, now: float) -> str:
        """What, done / total, time left; from the second report of the activity on."""
        before, done, kept = self.seen[0]
        self.seen.append((now, self.done, self.kept))
        said = f"{activity}: {self.done} / {self.total}"
        if self.done == self.total:
            return said
        if self.done == done:
            return f"{said}, time left unknown"
        # Where all of it came at once, it is quick.
        worked = self.done - done - (self.kept - kept) or self.done - done
        left = (now - before) / worked * (self.total - self.done)
        return f"{said}, {_duration(left)} left"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def _lines(interval_s: float = _INTERVAL_S) -> Iterator[Progress]:
    """A line about what is going on, every so many seconds, also in the midst of a long step."""
    paces: dict[str, _Pace] = {}
    current: str | None = None
    over = threading.Event()

    def say(line: str) -> None:
        if sys.stderr is None:  # for which print would take stdout
            return
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)

    def report(activity: str, done: int, total: int) -> None:
        nonlocal current
        if not total:
            say(activity)
            return
        now = time.monotonic()
        if activity not in paces:
            paces[activity] = _Pace(done, total, now)
        paces[activity].tell(done, total, now)
        current = activity

    def speak() -> None:
        while not over.wait(interval_s):
            if current is not None:
                say(paces[current].line(current, time.monotonic()))

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield report
    finally:
        over.set()
        speaker.join()
