"""Results that a command would show, kept for whoever called it instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from specsim.api.result import Result

_KEPT: ContextVar[list[Result] | None] = ContextVar("kept", default=None)


@contextmanager
def kept_results() -> Iterator[list[Result]]:
    """The results that ``show`` is given meanwhile in this thread; it prints none of them."""
    kept: list[Result] = []
    token = _KEPT.set(kept)
    try:
        yield kept
    finally:
        _KEPT.reset(token)


def is_kept() -> bool:
    """Whether somebody asks for the results in place of a terminal."""
    return _KEPT.get() is not None


def keep(result: Result) -> bool:
    """Keep a result where somebody asks for it; False where it is to be shown."""
    kept = _KEPT.get()
    if kept is None:
        return False
    kept.append(result)
    return True
