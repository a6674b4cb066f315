"""Fuzzing for as long as one likes: batch after batch of other command lines and damaged files.

    python -m tests.fuzz.long [--minutes 60] [--workers N] [--examples 400] [--folder build/fuzz]

A run that was stopped goes on behind the batches that it had begun.  FOLDER/tally.json counts what
was tried and what came of it, over all runs, and is printed as a table at the end.  What fails is
kept among the cases of the short run (tests/fuzz/cases), with what it said in FOLDER/found-N.txt.
Exits 1 where anything failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import time
from collections import Counter
from multiprocessing import connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.fuzz_batches import WORK, Finding, Tried, work
from tests.support.fuzz_examples import example_number, keep_case
from tests.support.fuzz_session import FuzzSession
from tests.support.fuzz_tally import Tally

# Seconds by the clock of an example that nothing in Python ends, and batches of a process: what
# libraries do not give back ends with it.
_LONGEST_S = 300.0
_BATCHES = 100
# Cases of one problem that are kept.
_KEPT = 2


class Worker:
    """A process and the batch that it tries."""

    def __init__(self, folder: Path, size: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.at: Any = spawn.RawValue("l", 0)
        self.pipe, other = spawn.Pipe()
        self.process = spawn.Process(target=work, args=(other, self.at, folder, size))
        self.process.start()
        other.close()
        self.batch: int | None = None
        self.tried = 0
        self._seen, self._since = -1, time.monotonic()

    def hand(self, batch: int) -> None:
        self.batch, self._seen = batch, -1
        self.tried += 1
        self.pipe.send(batch)

    def hangs(self) -> bool:
        """Whether it has been at one example for long."""
        if self.at.value != self._seen:
            self._seen, self._since = self.at.value, time.monotonic()
        return time.monotonic() - self._since > _LONGEST_S

    def answer(self) -> Tried | None:
        """What came of its batch; None where the process ended."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            return None

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class LongRun:
    """What is kept in a folder while workers try batches."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size = folder.absolute(), size
        self.folder.mkdir(parents=True, exist_ok=True)
        self._tidy()
        self.tally = Tally.at(self.folder / "tally.json")
        self.failed = False
        self._kept = Counter(self.tally.found)

    def run(self, seconds: float, workers: int) -> None:
        begun = self._counted_at = time.monotonic()
        busy: list[Worker] = []
        try:
            busy += (self._handed(Worker(self.folder, self.size)) for _ in range(workers))
            self._try_batches(busy, begun + seconds)
        finally:
            for worker in busy:
                worker.end()
            self._tidy()

    def _tidy(self) -> None:
        """Remove what processes left that were killed."""
        for left in self.folder.glob(f"{WORK}*"):
            shutil.rmtree(left, ignore_errors=True)

    def _try_batches(self, busy: list[Worker], end: float) -> None:
        """Until the time is over, and what was begun is done."""
        while busy:
            ready = connection.wait([each.pipe for each in busy], timeout=1.0)
            for worker in list(busy):
                if worker.pipe in ready:
                    tried = worker.answer()
                elif worker.hangs():
                    tried = None
                else:
                    continue
                busy.remove(worker)
                self._count(worker, tried)
                more = time.monotonic() < end
                if tried is None or worker.tried >= _BATCHES or not more:
                    worker.end()
                    worker = Worker(self.folder, self.size) if more else None
                if worker is not None:
                    busy.append(self._handed(worker))

    def _handed(self, worker: Worker) -> Worker:
        worker.hand(self.tally.batches)
        self.tally.batches += 1
        self.tally.write(self.folder / "tally.json")
        return worker

    def _count(self, worker: Worker, tried: Tried | None) -> None:
        if tried is None:
            tried = Tried()
            tried.findings.append(self._lost(worker))
            tried.tally.found = {tried.findings[0].problem: 1}
        for found in tried.findings:
            self.failed = True
            self._keep(found)
        self.tally.add(tried.tally)
        now = time.monotonic()
        self.tally.wall_s += now - self._counted_at
        self._counted_at = now
        self.tally.write(self.folder / "tally.json")

    def _keep(self, found: Finding) -> None:
        """As a case, unless there are some of the problem."""
        self._kept[found.problem] += 1
        if self._kept[found.problem] > _KEPT:
            return
        where = keep_case(found.example, found.problem)
        words = " ".join(found.example.words)
        number = len(list(self.folder.glob("found-*.txt")))
        path = self.folder / f"found-{number}.txt"
        text = f"{found.problem}\n{where}\n{words}\n\n{found.said}"
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
        print(f"{path}: {found.problem}", flush=True)

    def _lost(self, worker: Worker) -> Finding:
        """The example that a process ended with, or did not end."""
        worker.process.join(timeout=5.0)
        ended = worker.process.exitcode
        worker.end()
        with TemporaryDirectory(prefix=WORK, dir=self.folder) as place:
            session = FuzzSession(Path(place))
            example = example_number(session, worker.batch or 0, worker.at.value)
        what = "hangs" if ended is None else f"ends the process ({ended})"
        return Finding(example, f"{what} ({' '.join(example.words)[:60]} {example.kind})", "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--examples", type=int, default=400, help="of a batch")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"))
    asked = parser.parse_args()
    found = LongRun(asked.folder, asked.examples)
    try:
        found.run(60 * asked.minutes, asked.workers)
    except KeyboardInterrupt:
        print("stopped; the same command goes on")
    print(*found.tally.lines(), sep="\n")
    return 1 if found.failed else 0


if __name__ == "__main__":
    sys.exit(main())
