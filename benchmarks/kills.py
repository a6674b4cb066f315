"""Long commands killed at random moments and started again, against the same left alone.

    python -m benchmarks.kills [--kills 20] [--seed 0] [--interrupt] [--only calibrate score ...]
        [--out studies/measured/kills.csv]

Each command (``benchmarks.kill_commands``) measures the embedded family, most of them in a few
seconds.  It is started as a user would start it, killed (SIGKILL) at a random moment, started
again, and so on until it ends; where it ends before all its kills are spent, it is begun again in
an empty folder.  Two things are asked of it:

* what it had kept at a kill is there, the same bytes, at the next one: no sample is lost, and
  at most what was being measured just then is measured again;
* at its end it says what the undisturbed run says of everything that is no time (texts, traces,
  counts, numbers of samples), and leaves the same files and nothing else.

With --interrupt every other end is as of Ctrl-C (SIGINT), which must come within seconds, with one
line and status 130 once modules are loaded.  Prints a table, writes it to a file that is named, and
exits 1 on any difference.  Times are of the machine and differ.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.kill_commands import COMMANDS, ONLY_IF_ASKED, Command, contents, files_in

# Until an interrupted command must be gone.
_SECONDS_TO_END = 30


@dataclass
class Place:
    """A folder to run a command in, with a folder of temporary files."""

    command: Command
    folder: Path
    temporary: Path

    def start(self) -> subprocess.Popen[bytes]:
        """In a process group of its own; what it prints goes to files beside the folder."""
        with (
            self.folder.with_suffix(".out").open("wb") as out,
            self.folder.with_suffix(".err").open("wb") as err,
        ):
            program = ["-m", "specsim"]
            if self.command.smaller:
                run = "from specsim.__main__ import main; main()"
                program = ["-c", f"{self.command.smaller}\n{run}"]
            return subprocess.Popen(
                [sys.executable, *program, *self.command.words.split()],
                cwd=self.folder,
                env={**os.environ, "TMPDIR": str(self.temporary)},
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self.folder.with_suffix(".out").read_text()

    @property
    def complaint(self) -> str:
        return self.folder.with_suffix(".err").read_text()[-2000:]

    def kept(self) -> dict[str, str]:
        """Items of checkpoints, and results that stand, by name."""
        return {
            name: digest
            for base in (self.folder, self.temporary)
            for name, digest in contents(base).items()
            if self.command.is_kept(name)
        }

    def items(self) -> set[str]:
        """Names of the same."""
        found = (
            str(path.relative_to(base))
            for base in (self.folder, self.temporary)
            for path in files_in(base)
        )
        return {name for name in found if self.command.is_kept(name)}


@dataclass
class Found:
    """What came of a command.

    kept : items that stood at a kill and were looked for at the next
    problems : sentences
    """

    kills: int = 0
    ends: int = 0
    kept: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass
class Battery:
    """All commands in folders under ``root``, each against itself undisturbed."""

    root: Path
    random: random.Random
    interrupt: bool = False
    number: int = 0

    def place(self, command: Command) -> Place:
        self.number += 1
        folder = self.root / str(self.number)
        temporary = self.root / f"{self.number}-temporary"
        temporary.mkdir(parents=True)
        if command.after:
            shutil.copytree(self.made_by(command.after), folder)
        else:
            folder.mkdir()
        for name, content in command.files.items():
            (folder / name).write_text(content)
        return Place(command, folder, temporary)

    def made_by(self, name: str) -> Path:
        """A folder in which a command was run, left alone."""
        folder = self.root / name.replace(" ", "")
        if not folder.exists():
            making = folder.with_name(f"{folder.name}-making")
            making.mkdir()
            place = Place(COMMANDS[name], making, self.root)
            finish(place.start(), place)
            making.rename(folder)
        return folder

    def run(self, command: Command, kills: int) -> Found:
        found, undisturbed = Found(), self.place(command)
        first, total = _watch(undisturbed)
        said, left = command.said(undisturbed.folder, undisturbed.printed), self._left(undisturbed)
        while found.kills < kills or not found.ends:
            place = self.place(command)
            self._kill_until_it_ends(place, found, kills, (first, total), said)
            if command.said(place.folder, place.printed) != said:
                found.problems.append(f"says something else than undisturbed ({place.folder})")
            if self._left(place) != left:
                found.problems.append(f"leaves {self._left(place)}, undisturbed {left}")
        return found

    def _left(self, place: Place) -> list[str]:
        names = [str(path.relative_to(place.folder)) for path in place.folder.rglob("*")]
        return sorted([*names, *(path.name for path in place.temporary.iterdir())])

    def _kill_until_it_ends(
        self,
        place: Place,
        found: Found,
        kills: int,
        usual: tuple[float | None, float],
        said: Any,
    ) -> None:
        before: dict[str, str] = {}
        ended: set[str] = set()
        while True:
            process = place.start()
            if found.kills >= kills or self._ends_within(process, place, usual):
                break
            self._end(process, place, found)
            found.kills += 1
            print(f"\r{found.kills} of {kills} kills", end="\r", file=sys.stderr, flush=True)
            kept = place.kept()
            if before and not kept:
                # Killed between its result and its end: whoever starts it again begins anew.
                if not _has_said(place, said):
                    found.problems.append(f"lost all of {len(before)} items without a result")
                before, ended = {}, set()
                continue
            # Of a command of several stages the folder of one that has ended is removed.
            folders = {os.path.dirname(name) for name in kept}
            found.problems += [f"begun again: {name}" for name in folders & ended]
            ended |= {os.path.dirname(name) for name in before} - folders
            lost = [
                name
                for name, digest in before.items()
                if os.path.dirname(name) not in ended and kept.get(name) != digest
            ]
            found.kept += len(before)
            found.problems += [f"lost or made again: {name}" for name in lost]
            before = kept
        finish(process, place)
        found.ends += 1

    def _end(self, process: subprocess.Popen[bytes], place: Place, found: Found) -> None:
        """Kill it, or interrupt it and see that it ends as it should."""
        if not self.interrupt or self.random.random() < 0.5:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return
        os.killpg(process.pid, signal.SIGINT)
        try:
            code = process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            found.problems.append(f"still there {_SECONDS_TO_END} s after an interrupt")
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return
        # Before there is anything to catch it, the interpreter itself says so, and at the end of a
        # command it comes too late.
        if code not in (0, 1, 130, -signal.SIGINT):
            found.problems.append(f"an interrupt gives status {code}: {place.complaint}")
        if code == 130 and "Traceback" in place.complaint:
            found.problems.append(f"an interrupt gives a traceback: {place.complaint}")

    def _ends_within(
        self, process: subprocess.Popen[bytes], place: Place, usual: tuple[float | None, float]
    ) -> bool:
        """Whether the process ends before a random moment.

        Every fifth is while the command still begins, the others behind the first item that it
        keeps anew; of a command that keeps nothing any moment is as good.
        """
        first, total = usual
        if first is None:
            delay = self.random.uniform(0, total)
        elif self.random.random() < 0.2:
            delay = self.random.uniform(0, first)
        else:
            delay = self.random.uniform(0, (total - first) / 4)
            there = place.items()
            while process.poll() is None and place.items() == there:
                time.sleep(0.01)
        with suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        return process.returncode is not None


def _has_said(place: Place, said: Any) -> bool:
    """Whether a command that was killed had its result out."""
    try:
        return bool(place.command.said(place.folder, place.printed) == said)
    except (OSError, ValueError, LookupError):
        return False


def finish(process: subprocess.Popen[bytes], place: Place) -> None:
    """Wait for the end of a command, which must be a good one; 1 is a verdict, which times give."""
    if process.wait() not in (0, 1):
        raise SystemExit(
            f"{place.command.words}: exit code {process.returncode}: {place.complaint}"
        )


def _watch(place: Place) -> tuple[float | None, float]:
    """Seconds until the first item, None without any, and until the end, of a run that is left
    alone.
    """
    began, first = time.monotonic(), None
    process = place.start()
    while process.poll() is None:
        if first is None and place.items():
            first = time.monotonic() - began
        time.sleep(0.05)
    finish(process, place)
    total = time.monotonic() - began
    return first, total


def write_row(path: Path, row: Sequence[object]) -> None:
    """Behind those that are there."""
    new = not path.exists()
    with path.open("a", newline="") as stream:
        rows = csv.writer(stream, lineterminator="\n")
        if new:
            counts = "kills", "ends", "items_that_stood", "problems", "seconds"
            rows.writerow(("command", "by", "seed", *counts))
        rows.writerow(row)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = [name for name in COMMANDS if name not in ONLY_IF_ASKED]
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--interrupt", action="store_true")
    parser.add_argument("--only", nargs="+", default=usual, choices=list(COMMANDS))
    parser.add_argument("--out", type=Path, help="a CSV file, to which rows are added")
    given = parser.parse_args()
    failed = False
    head = f"{'command':26}{'kills':>6}{'ends':>6}{'items that stood':>18}{'problems':>10}{'s':>7}"
    print(head, flush=True)
    with tempfile.TemporaryDirectory(prefix="kills-") as root:
        battery = Battery(Path(root), random.Random(given.seed), given.interrupt)
        for after in filter(None, dict.fromkeys(COMMANDS[name].after for name in given.only)):
            battery.made_by(after)
        for name in given.only:
            command = COMMANDS[name]
            began = time.monotonic()
            found = battery.run(command, given.kills)
            took = time.monotonic() - began
            figures = f"{found.kills:6}{found.ends:6}{found.kept:18}{len(found.problems):10}"
            print(f"{name:26}{figures}{took:7.0f}", flush=True)
            if given.out:
                how = "kill or interrupt" if given.interrupt else "kill"
                counts = found.kills, found.ends, found.kept, len(found.problems), round(took)
                write_row(given.out, (name, how, given.seed, *counts))
            for problem in found.problems:
                print(f"    {problem}")
            failed = failed or bool(found.problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
