"""Pages with commands and what they print: run them, and write their output anew.

    python -m tests.support.console docs/questions.md

A block of ``console`` begins with a command behind a ``$``, which may go on over lines that end
with a backslash, and ends with all that it prints at a terminal of 80 columns, standard output
first.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from tests.support.terminal import Screen, run_on_terminal

ROOT = Path(__file__).parents[2]
# A command in a fence of ``sh``, behind a $ or in an indented block; it may go on over lines.
_COMMAND = re.compile(r"^(?:\$ |    )?(specsim (?:.*\\\n)*.*)$", re.MULTILINE)
_TYPED = re.compile(r"```(?:sh|console)\n(.*?)```|^((?:    .*\n)+)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"```console\n\$ (?P<command>(?:.*\\\n)*.*)\n(?P<output>(?:.*\n)*?)```")


@dataclass(frozen=True)
class Example:
    """A command of a page, as it was typed, and what the page says that it prints."""

    command: str
    output: str

    @property
    def words(self) -> tuple[str, ...]:
        """Those behind ``specsim``."""
        name, *words = shlex.split(self.command.replace("\\\n", " "))
        assert name == "specsim", f"only specsim is run here, not {name}"
        return tuple(words)

    def run(self) -> Screen:
        """What a terminal of 80 columns shows of it now, where it is typed at the root."""
        with chdir(ROOT):
            return run_on_terminal(self.words)


def printed(screen: Screen) -> str:
    """What a terminal shows, as the pages have it."""
    return "".join(map(_lines, (screen.out, screen.err)))


def examples(page: Path) -> Iterator[Example]:
    """The blocks of a page, in order."""
    for block in _BLOCK.finditer(page.read_text("utf-8")):
        yield Example(block["command"], block["output"])


def commands(page: Path) -> Iterator[list[str]]:
    """The words of all commands of a page behind ``specsim``, without what a shell does to them."""
    for block in _TYPED.finditer(page.read_text("utf-8")):
        for found in _COMMAND.finditer(block[0]):
            words = shlex.split(found[1].replace("\\\n", " "))
            yield words[1 : words.index(">") if ">" in words else None]


def renew(page: Path) -> None:
    """Write what the commands print now into the page."""

    def anew(block: re.Match[str]) -> str:
        example = Example(block["command"], block["output"])
        return f"```console\n$ {example.command}\n{printed(example.run())}```"

    page.write_text(_BLOCK.sub(anew, page.read_text("utf-8")), encoding="utf-8")


def _lines(text: str) -> str:
    stripped = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
    return stripped + "\n" if stripped else ""


if __name__ == "__main__":
    for name in sys.argv[1:]:
        renew(Path(name))
