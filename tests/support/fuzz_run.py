"""A command in this process with bounds on its time, and what may come of any command at all."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from types import FrameType
from typing import Any

from specsim.cli import main

# Seconds that an answer or a refusal may take: of its own, and by the clock.
LONGEST_S = 10.0
_LONGEST_WAIT_S = 60.0


class TooSlowError(BaseException):
    """A command takes too long; no reader may take that for a damaged file."""


@dataclass(frozen=True)
class Outcome:
    """What a command said."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    def check(self) -> None:
        """Refuse a traceback, a status of its own, a refusal of several lines, a number that is
        none of its kind.
        """
        said = f"{' '.join(self.words)}\n{self.err[-2000:]}"
        assert self.code in (0, 1, 2), said
        assert "Traceback" not in self.out + self.err, said
        if self.code == 2:
            assert self.out == "", said
            assert self.err.startswith("specsim: error: "), said
            assert self.err.count("\n") == 1, said
        elif self.out.startswith("{"):
            for name, value in _figures(json.loads(self.out)):
                assert value is None or _within(name, value), f"{name} = {value}: {said}"


def run_bounded(*words: str) -> Outcome:
    """``specsim WORDS``; status 3 is that of what takes too long, too."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err), _alarm():
        try:
            main(list(words))
        except SystemExit as ended:
            code = int(ended.code or 0)
        except TooSlowError as slow:
            return Outcome(words, 3, out.getvalue(), f"{err.getvalue()}{slow}")
    return Outcome(words, code, out.getvalue(), err.getvalue())


@contextmanager
def _alarm() -> Iterator[None]:
    """Of the time that the command itself takes, whatever else the machine does; what waits for
    something that never comes takes none, and has a longer one.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlowError(f"more than {LONGEST_S:g} s")

    timers = (
        (signal.ITIMER_PROF, signal.SIGPROF, LONGEST_S),
        (signal.ITIMER_REAL, signal.SIGALRM, _LONGEST_WAIT_S),
    )
    before = [signal.signal(number, ring) for _, number, _ in timers]
    for timer, _, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _figures(document: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of an answer, not of what was asked."""
    waiting = [document.get("answer")] if isinstance(document, dict) else []
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value.items()
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _within(name: str, value: Any) -> bool:
    if not isinstance(value, (int, float)):
        return True
    if name in ("tokens_per_call", "tokens_per_call_low", "tokens_per_call_high"):
        return value >= 1 - 1e-9
    if name.startswith("speedup") or name.endswith("_ms"):
        return value >= 0
    if name in ("alpha", "acceptance", "rejection"):
        return -1e-9 <= value <= 1 + 1e-9
    return True
