"""One batch of a long run, and the process that tries one after the other."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from tests.support.fuzz_examples import example_number
from tests.support.fuzz_kinds import KINDS
from tests.support.fuzz_run import Outcome
from tests.support.fuzz_session import Example, FuzzSession
from tests.support.fuzz_tally import Tally

# Bytes of addresses that a process may take; libraries alone map some gigabytes.
_MOST_ADDRESSES = 12 * 2**30
# Runs in which a line that failed is made shorter.
_MOST_CUTS = 40
# How the folders of processes at work begin.
WORK = "work-"
_PLACES = re.compile(r'File "[^"]*?((?:specsim|calibrate)/[^"]*\.py)", line \d+, in (\w+)')


@dataclass(frozen=True)
class Finding:
    """An example of which came what must not.

    problem : in a few words, the same for examples that fail in one place
    said : what the command said, with its traceback
    """

    example: Example
    problem: str
    said: str


@dataclass
class Tried:
    """What came of a batch."""

    tally: Tally = field(default_factory=Tally)
    findings: list[Finding] = field(default_factory=list)


def work(connection: Connection, at: ctypes.c_long, folder: Path, size: int) -> None:
    """Try the batches whose numbers are received.

    at : where the number of the example is kept that is tried just now
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_ADDRESSES, _MOST_ADDRESSES))
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory(prefix=WORK, dir=folder) as place:
        tempfile.tempdir = place  # tracebacks go there, too
        os.chdir(place)
        session = FuzzSession(Path(place))
        session.warm_up()
        for kind in KINDS:
            session.original(kind.name)
        gc.collect()
        gc.freeze()
        counted = 0.0
        with suppress(EOFError, ConnectionError):  # nobody is there to hand out more
            while True:
                tried = try_batch(session, connection.recv(), size, at)
                now = time.process_time()
                tried.tally.cpu_s, counted = now - counted, now
                connection.send(tried)


def try_batch(session: FuzzSession, batch: int, size: int, at: ctypes.c_long) -> Tried:
    """So many examples, by the numbers of the batch."""
    tried = Tried()
    for index in range(size):
        at.value = index
        example = example_number(session, batch, index)
        outcome = example.run(session)
        tried.tally.count(example, outcome)
        if outcome.problem() is not None:
            found = finding(session, example, outcome)
            tried.findings.append(found)
            tried.tally.found[found.problem] = tried.tally.found.get(found.problem, 0) + 1
    return tried


def finding(session: FuzzSession, example: Example, outcome: Outcome) -> Finding:
    """The example, made shorter where it is a line."""
    said = outcome.err + _traceback(outcome.err)
    problem = _named(example, outcome, said)
    line = list(example.line)
    if line and not problem.startswith("took"):
        for _ in range(_MOST_CUTS):
            for at in range(len(line)):
                shorter = line[:at] + line[at + 1 :]
                again = session.run_line(shorter) if shorter else outcome
                text = again.err + _traceback(again.err)
                if shorter and again.problem() and _named(example, again, text) == problem:
                    line = shorter
                    break
            else:
                break
        example = Example(line=tuple(line))
    return Finding(example, problem, said)


def _named(example: Example, outcome: Outcome, said: str) -> str:
    """The place in specsim where it failed, or the command and what is wrong."""
    if outcome.code == 3 and (places := _PLACES.findall(said)):
        last = re.findall(r"^(\w[\w.]*)(?::|$)", said, re.MULTILINE)
        return f"{places[-1][0]}, {places[-1][1]}: {last[-1] if last else 'unknown'}"
    problem = re.sub(r"= .*|-?\d[\d.e+-]*", "", outcome.problem() or "").strip()
    return f"{problem} ({example.words[0]} {example.kind})".strip()


def _traceback(err: str) -> str:
    """Of a command that ended with status 3."""
    found = re.search(r"its traceback is in (\S+);", err)
    try:
        return Path(found[1]).read_text(errors="backslashreplace") if found else ""
    except OSError:
        return ""
