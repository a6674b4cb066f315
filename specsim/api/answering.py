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
    """What waits is done behind the block.  Where the block fails (a full disk, a pipe that its
    reader closed) it is not, since whoever asked may ask again.
    """
    global _waiting
    outer, actions = _waiting, list[Callable[[], None]]()
    _waiting = actions
    try:
        yield
    finally:
        _waiting = outer
    for action in actions:
        action()
