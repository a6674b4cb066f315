"""A command in this process with bounds on its time and memory, and what may come of any."""

from __future__ import annotations

import io
import json
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import click

from specsim.checks import SpecsimError
from specsim.cli import main
from tests.support.fuzz_readers import READERS

# Seconds that an answer or a refusal may take: of its own, and by the clock.
LONGEST_S = 10.0
_LONGEST_WAIT_S = 60.0
# Bytes that it may take besides what the process has before: of 2 GiB, libraries take up to a half.
MOST_BYTES = 3 * 2**29
# Commands that run models, measure the machine or answer thousands of questions: their words are
# read, and then no more is done.
_LONG = ("calibrate", "demo", "doctor", "score", "study", "sweep")


class TooSlowError(BaseException):
    """A command takes too long; no reader may take that for a damaged file."""


@dataclass(frozen=True)
class Outcome:
    """What a command said.

    parsed : whether its words were understood
    ran : whether more was done than that
    seconds : of this process
    peak_bytes : the most memory that the process had meanwhile beyond what it had before; 0 where
        nobody tells
    """

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    parsed: bool = True
    ran: bool = True
    seconds: float = 0.0
    peak_bytes: int = 0

    def check(self) -> None:
        """Refuse a traceback, a status of its own, a refusal of several lines, a number that is
        none of its kind, too much time or memory.
        """
        problem = self.problem()
        assert problem is None, f"{problem}: {' '.join(self.words)}\n{self.err[-2000:]}"

    def problem(self) -> str | None:
        """What must not come of any command, in a few words."""
        asked_for_help = {"--help", "-h", "--version"} & {*self.words}
        if self.seconds > LONGEST_S:
            return f"took {self.seconds:.0f} s"
        if self.peak_bytes > MOST_BYTES:
            return f"took {self.peak_bytes / 2**30:.1f} GiB"
        if self.code not in (0, 1, 2):
            return f"status {self.code}"
        if "Traceback" in self.out + self.err:
            return "a traceback"
        if self.code == 2 and not asked_for_help:
            if self.out:
                return "a refusal with an answer"
            if not self.err.startswith("specsim: error: ") or self.err.count("\n") != 1:
                return "a refusal of other than one line"
        if self.code != 2 and self.out.startswith("{"):
            return _wrong_figure(self.out)
        return None


def run_bounded(*words: str) -> Outcome:
    """``specsim WORDS``, or a reader that the first word names; status 3 is that of what takes too
    long, too.
    """
    out, err = io.StringIO(), io.StringIO()
    is_reader = bool(words) and words[0] in READERS
    parsed, ran = is_reader, True
    begun = time.process_time()
    before = _forgotten_peak()

    def say(code: int, more: str = "") -> Outcome:
        seconds = time.process_time() - begun
        said = err.getvalue() + more
        return Outcome(
            words, code, out.getvalue(), said, parsed, ran, seconds, _peak_bytes() - before
        )

    def begin(command: click.Command, context: click.Context) -> Any:
        nonlocal parsed, ran
        # Of a group the command below is still to be read.
        below = isinstance(command, click.Group) and (
            context.invoked_subcommand is not None or not command.invoke_without_command
        )
        parsed = parsed or not below
        if not below and _is_long(context):
            ran = False
            raise click.exceptions.Exit(0)
        return invoke(command, context)

    invoke = click.Command.invoke
    with redirect_stdout(out), redirect_stderr(err), _alarm():
        try:
            if is_reader:
                return say(*_called(READERS[words[0]], words[1:]))
            with patch.object(click.Command, "invoke", begin):
                main(list(words))
        except SystemExit as ended:
            return say(int(ended.code or 0))
        except TooSlowError as slow:
            return say(3, str(slow))
        except KeyboardInterrupt:
            raise
        except BaseException:  # libraries in Rust panic with what is no Exception
            return say(3, traceback.format_exc())
    return say(3, "came back")


def _called(reader: Callable[[Path], None], words: Sequence[str]) -> tuple[int, str]:
    """As the command line would end."""
    try:
        reader(Path(words[0]))
    except SpecsimError as error:
        return 2, f"specsim: error: {error}\n"
    return 0, ""


def _is_long(context: click.Context) -> bool:
    """Whether a command would take long whatever is asked of it."""
    _, *names = context.command_path.split()
    given = context.params
    if names[:1] == ["validate"] and "serving" not in given:
        from specsim.profiles import is_profile

        return is_profile(given["profile"])
    if names[:1] == ["plan"]:
        return not given["analytic"]
    return names[0] in _LONG


@contextmanager
def _alarm() -> Iterator[None]:
    """Of the time that the command itself takes, whatever else the machine does; what waits for
    something that never comes takes none, and has a longer one.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        own = number == signal.SIGPROF
        raise TooSlowError(f"more than {LONGEST_S if own else _LONGEST_WAIT_S:g} s")

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


def _forgotten_peak() -> int:
    """Have Linux count the most memory of this process anew; what it has now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return 1024 * int(status.partition("VmHWM:")[2].split(maxsplit=1)[0])


def _wrong_figure(out: str) -> str | None:
    """What an answer in JSON says that no figure of its kind can be."""

    def refuse(word: str) -> Any:
        raise ValueError(word)

    try:
        document = json.loads(out, parse_constant=refuse)
    except json.JSONDecodeError as error:
        return f"no JSON ({error})"
    except ValueError as error:
        return f"a figure that is {error}"
    least_tokens = _least_tokens_per_call(document)
    for name, value in _figures(document):
        if not (value is None or _within(name, value, least_tokens)):
            return f"{name} = {value}"
    return None


def _least_tokens_per_call(document: Any) -> float:
    """Every target run leaves a token; only a response that is written whole and of which a
    request takes a part leaves some of its runs without.
    """
    inputs = document.get("inputs") if isinstance(document, dict) else None
    if not isinstance(inputs, dict) or inputs.get("scheme") != "sequence-cascade":
        return 1.0
    tokens, length = inputs.get("tokens"), inputs["description"]["length"]
    return 1.0 if tokens is None else tokens / (-(-tokens // length) * length)


def _figures(document: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of an answer, not of what was asked; losses are shares of a time, in nats,
    by what they are of.
    """
    waiting = [document.get("answer")] if isinstance(document, dict) else []
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            told = {name: each for name, each in value.items() if name != "losses"}
            yield from told.items()
            waiting.extend(told.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _within(name: str, value: Any, least_tokens: float) -> bool:
    if not isinstance(value, (int, float)):
        return True
    if name in ("tokens_per_call", "tokens_per_call_low", "tokens_per_call_high"):
        return value >= least_tokens - 1e-9
    if name.startswith("speedup") or name.endswith("_ms"):
        return value >= 0
    if name in ("alpha", "acceptance", "rejection"):
        return -1e-9 <= value <= 1 + 1e-9
    return True
