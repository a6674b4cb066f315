"""What a long run has tried so far: a file that is written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from specsim.checks import SpecsimError
from specsim.files import read_regular, write_atomically
from tests.support.fuzz_run import Outcome
from tests.support.fuzz_session import Example

# How command lines are called among the kinds of files.
LINES = "command lines"
# What may come of an example: a status, 2 before its words were understood, or no more than that
# they were (``fuzz_run``).
ENDS = ("0", "1", "2", "2 parsing", "parsed", "else")


class Tally(msgspec.Struct):
    """Examples by kind and by what came of them.

    batches : that were handed out; the next one has this number
    wall_s : of the runs
    cpu_s : of their processes, beginning and all
    slowest_s, peak_bytes : of one example, with the libraries of the process
    found : how often each problem came
    """

    batches: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    slowest_s: float = 0.0
    slowest: str = ""
    peak_bytes: int = 0
    counts: dict[str, dict[str, int]] = {}
    seconds: dict[str, float] = {}
    found: dict[str, int] = {}

    @staticmethod
    def at(path: Path) -> Tally:
        """What a file says, or nothing yet."""
        if not path.exists():
            return Tally()
        return msgspec.json.decode(read_regular(path, "tally", SpecsimError), type=Tally)

    def write(self, path: Path) -> None:
        write_atomically(path, msgspec.json.format(msgspec.json.encode(self)) + b"\n")

    def count(self, example: Example, outcome: Outcome) -> None:
        kind = LINES if example.line else example.kind
        ends = self.counts.setdefault(kind, {})
        ends[_end(outcome)] = ends.get(_end(outcome), 0) + 1
        self.seconds[kind] = self.seconds.get(kind, 0.0) + outcome.seconds
        if outcome.seconds > self.slowest_s:
            self.slowest_s, self.slowest = outcome.seconds, " ".join(example.words)
        self.peak_bytes = max(self.peak_bytes, outcome.peak_bytes)

    def add(self, other: Tally) -> None:
        """What another one counted besides."""
        for kind, ends in other.counts.items():
            own = self.counts.setdefault(kind, {})
            for end, number in ends.items():
                own[end] = own.get(end, 0) + number
        for kind, seconds in other.seconds.items():
            self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds
        for problem, number in other.found.items():
            self.found[problem] = self.found.get(problem, 0) + number
        self.cpu_s += other.cpu_s
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest

    def lines(self) -> Iterator[str]:
        """A table, and what it took."""
        files = {kind: ends for kind, ends in self.counts.items() if kind != LINES}
        together: dict[str, int] = {}
        for ends in files.values():
            for end, number in ends.items():
                together[end] = together.get(end, 0) + number
        yield " ".join([f"{'':36}", f"{'tried':>9}", *(f"{end:>9.9}" for end in ENDS), "ms each"])
        for kind, ends in sorted(files.items()):
            yield self._row(kind, ends, self.seconds.get(kind, 0.0))
        of_files = sum(seconds for kind, seconds in self.seconds.items() if kind != LINES)
        yield self._row("damaged files", together, of_files)
        yield self._row(LINES, self.counts.get(LINES, {}), self.seconds.get(LINES, 0.0))
        yield (
            f"{self.wall_s / 60:.1f} minutes by the clock, {self.cpu_s / 3600:.2f} core hours; the "
            f"slowest example took {self.slowest_s:.1f} s ({self.slowest[:120]}), the most memory "
            f"{self.peak_bytes / 2**30:.2f} GiB"
        )
        yield f"problems: {sum(self.found.values())}"
        yield from (f"  {number} x {problem}" for problem, number in self.found.items())

    def _row(self, kind: str, ends: Mapping[str, int], seconds: float) -> str:
        tried = sum(ends.values())
        cells = [f"{ends.get(end, 0):>9,}" for end in ENDS]
        return " ".join(
            [f"{kind:36.36}", f"{tried:>9,}", *cells, f"{1e3 * seconds / (tried or 1):7.1f}"]
        )


def _end(outcome: Outcome) -> str:
    if outcome.code not in (0, 1, 2):
        return "else"
    if outcome.code == 2 and not outcome.parsed:
        return ENDS[3]
    return str(outcome.code) if outcome.ran else ENDS[4]
