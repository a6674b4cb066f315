"""Pages with commands and what they print: run them, and write their output anew.

    python -m tests.support.console docs/questions.md

A block of ``console`` begins with a command behind a ``$``, which may go on over lines that end
with a backslash, and ends with all that it prints, standard output first.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"```console\n\$ (?P<command>(?:.*\\\n)*.*)\n(?P<output>(?:.*\n)*?)```")


@dataclass(frozen=True)
class Example:
    """A command of a page, as it was typed, and what the page says that it prints."""

    command: str
    output: str

    def run(self) -> str:
        """What it prints now."""
        words = shlex.split(self.command.replace("\\\n", " "))
        assert words[0] == "specsim", f"only specsim is run here, not {words[0]}"
        found = subprocess.run(
            [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return _lines(found.stdout) + _lines(found.stderr)


def examples(page: Path) -> Iterator[Example]:
    """The blocks of a page, in order."""
    for block in _BLOCK.finditer(page.read_text("utf-8")):
        yield Example(block["command"], block["output"])


def renew(page: Path) -> None:
    """Write what the commands print now into the page."""

    def anew(block: re.Match[str]) -> str:
        example = Example(block["command"], block["output"])
        return f"```console\n$ {example.command}\n{example.run()}```"

    page.write_text(_BLOCK.sub(anew, page.read_text("utf-8")), encoding="utf-8")


def _lines(text: str) -> str:
    stripped = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
    return stripped + "\n" if stripped else ""


if __name__ == "__main__":
    for name in sys.argv[1:]:
        renew(Path(name))
