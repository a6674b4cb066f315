"""The files that command lines name and those that are damaged, made once for many commands."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import specsim
from tests.support.fuzz_damage import Damage
from tests.support.fuzz_kinds import KINDS, Original
from tests.support.fuzz_run import Outcome, run_bounded
from tests.support.fuzz_words import named

_KINDS = {kind.name: kind for kind in KINDS}
# The kind of file that a word of a line stands for.
_OF_KIND = {
    "PROFILE": "profile",
    "TRACE": "trace",
    "POSITIONS": "positions",
    "LOG": "vllm-log-current.txt",
    "WORKLOAD": "workload of Mooncake",
    "COUNTS": "timed engine",
    "BENCH": "log of vllm bench",
    "RESULT": "result of evaluate",
    "SETTINGS": "sweep in TOML",
    "PROMPTS": "prompts",
    "SWEPT": "sweep's record",
}


class FuzzSession:
    """A folder with whole files of every kind, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, Original] = {}

    def warm_up(self) -> None:
        """Compile the loops of the simulator, which may take longer than an answer may."""
        requests = specsim.workload(rate=20, requests=2, prompt=20, output=6)
        specsim.serve(requests, step_model="step_ms=5", engine="vllm:num_gpu_blocks=600")

    def original(self, name: str) -> Original:
        """The whole file of a kind."""
        if name not in self._made:
            folder = self.folder / "whole" / str(len(self._made))
            self._made[name] = Original.written(_KINDS[name], folder)
        return self._made[name]

    def run_line(self, line: list[str]) -> Outcome:
        """A command line whose words in capitals stand for files."""
        return run_bounded(*named(line, self._path_of))

    def run_damaged(self, name: str, damage: Mapping[str, bytes], command: str) -> Outcome:
        """One of the commands of a kind of file on a damaged one; without damage on a whole one."""
        original = self.original(name)
        place = original.path.relative_to(self.folder / "whole").parts[0]
        path = original.laid_out(dict(damage), self.folder / "damaged" / place)
        return run_bounded(*original.words(command, path, self.original("profile").path))

    def _path_of(self, word: str) -> str:
        if word in _OF_KIND:
            path = self.original(_OF_KIND[word]).path
            return str(path.parent if word == "SWEPT" else path)
        place = self.folder / "named"
        place.mkdir(parents=True, exist_ok=True)
        if word == "PIPE":
            place /= "pipe"
            if not place.exists():
                os.mkfifo(place)
        return str(place)


@dataclass(frozen=True)
class Example:
    """A command line, or a command on a damaged file.

    line : words, of which those in capitals stand for files; empty: a file is read
    kind : of the file, by name
    damage : its new content, and that of what lies beside it
    command : of its kind
    """

    line: tuple[str, ...] = ()
    kind: str = ""
    damage: Damage = field(default_factory=dict)
    command: str = ""

    @property
    def words(self) -> list[str]:
        return list(self.line) or self.command.split()

    def run(self, session: FuzzSession) -> Outcome:
        if self.line:
            return session.run_line(list(self.line))
        return session.run_damaged(self.kind, self.damage, self.command)
