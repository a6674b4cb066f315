"""What waits until the answer of a command is out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Of the command that runs; None outside of one, where whoever called has the answer at once.
_waiting: list[Callable[[], None]] | None = None


def once_answered(action: Callable[[], None]) -> None:
    """Do it once the command that runs has given its answer, outside of one at once."""
    if _waiting is None:
        action()
    else:
        _waiting.append(action)


@contextmanager
def answering() -> Iterator[None]:
    """Until the answer of a command is out; what waits for that is not done where it is not: a full
    disk did not take it, or whoever read it has closed the pipe, and may ask again.
    """
    global _waiting
    actions: list[Callable[[], None]] = []
    _waiting = actions
    try:
        yield
    finally:
        _waiting = None
    for action in actions:
        action()
