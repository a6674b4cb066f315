"""The progress callback of the calls as a bar on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A callback ``(what is going on, done, total)`` that draws one bar on stderr for each kind."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )

    tasks: dict[str, TaskID] = {}
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )

    def report(activity: str, done: int, total: int) -> None:
        if activity not in tasks:
            # Not before: a call that ends at once with an error shows that one line and no bar.
            bars.start()
            tasks[activity] = bars.add_task(activity)
        bars.update(tasks[activity], completed=done, total=total)

    try:
        yield report
    finally:
        if tasks:
            bars.stop()
