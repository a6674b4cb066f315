"""The commands as they are typed at a terminal of so many columns."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from specsim.cli import main
from specsim.report import tables
from specsim.report.columns import Column

_CONTROL = re.compile(r"(\r|\n|\x1b\[[0-9;?]*[A-Za-z])")
_UP = re.compile(r"\x1b\[(\d*)A")
_ERASE_LINE = "\x1b[2K"
# Written behind everything else: no command writes it.
_END = b"\0"


@dataclass(frozen=True)
class Screen:
    """What a command left on two terminals of one width, one behind each stream.

    code : how it ended
    columns : of the terminals
    out, err : what came on standard output and on standard error
    tables : the columns of every table that was drawn
    """

    code: int
    columns: int
    out: str
    err: str
    tables: tuple[Sequence[Column], ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """Of both streams, standard output first."""
        return (*self.out.splitlines(), *self.err.splitlines())

    def check(self) -> None:
        """No line is over the width, and every row of every table is one line."""
        assert max(map(len, self.lines)) <= self.columns
        for table in self.tables:
            for row in zip(*(column.cells for column in table), strict=True):
                whole = re.compile(r"\s*" + r"\s+".join(map(re.escape, row)))
                assert any(map(whole.fullmatch, self.lines)), row


def run_on_terminal(words: Sequence[str], columns: int = 80) -> Screen:
    """``specsim WORDS`` at a terminal."""
    drawn: list[Sequence[Column]] = []
    draw = tables._table

    def noted(table: Sequence[Column]) -> str:
        drawn.append(table)
        return draw(table)

    with (
        _terminal(columns) as (out, read_out),
        _terminal(columns) as (err, read_err),
        open(out, "w", encoding="utf-8", closefd=False) as stdout,
        open(err, "w", encoding="utf-8", closefd=False) as stderr,
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(tables, "_table", noted)
        with pytest.raises(SystemExit) as ended:
            main(list(words))
    code = int(ended.value.code or 0)
    return Screen(code, columns, _text(read_out), _text(read_err), tuple(drawn))


def said_on_terminals(words: Sequence[str], folder: Path, columns: int = 80) -> tuple[str, str]:
    """What a process says on standard output and on standard error, each a terminal."""
    with _terminal(columns) as (out, read_out), _terminal(columns) as (err, read_err):
        subprocess.run(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=False
        )
    return _text(read_out), _text(read_err)


@contextmanager
def _terminal(columns: int) -> Iterator[tuple[int, list[bytes]]]:
    """The end of a pseudo-terminal that is written to, and what was written; behind the block all
    of it is there.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    read: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(leader, read))
    reader.start()
    try:
        yield follower, read
    finally:
        os.write(follower, _END)
        reader.join()
        os.close(follower)
        os.close(leader)


def _drain(leader: int, read: list[bytes]) -> None:
    """Reads up to the end, before the other side is closed: what Linux has not yet handed over
    then may be lost.
    """
    while not (read and read[-1].endswith(_END)):
        read.append(os.read(leader, 65536))
    read[-1] = read[-1].removesuffix(_END)


def _text(read: Sequence[bytes]) -> str:
    """What is left to be seen, without colours: a bar that is taken away again is not."""
    lines, row, column = [""], 0, 0
    for piece in _CONTROL.split(b"".join(read).decode()):
        if piece == "\n":
            row, column = row + 1, 0
            lines += [""] * (row == len(lines))
        elif piece == "\r":
            column = 0
        elif up := _UP.fullmatch(piece):
            row = max(row - int(up[1] or 1), 0)
        elif piece == _ERASE_LINE:
            lines[row] = ""
        elif not piece.startswith("\x1b"):
            lines[row] = (
                lines[row][:column].ljust(column) + piece + lines[row][column + len(piece) :]
            )
            column += len(piece)
    while len(lines) > row + 1 and not lines[-1]:
        lines.pop()
    return "\n".join(lines)
