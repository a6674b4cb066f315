"""The commands as they are typed at a terminal of so many columns."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
import threading
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout

import pytest

from specsim.cli import main


def run_on_terminal(words: Sequence[str], columns: int = 80) -> tuple[int, list[str]]:
    """Exit code of ``specsim WORDS``, and the lines of both streams as they came."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    read: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(leader, read))
    reader.start()
    try:
        with (
            open(follower, "w", encoding="utf-8") as terminal,
            redirect_stdout(terminal),
            redirect_stderr(terminal),
            pytest.raises(SystemExit) as ended,
        ):
            main(list(words))
    finally:
        reader.join()
        os.close(leader)
    return int(ended.value.code or 0), b"".join(read).decode().splitlines()


def _drain(leader: int, read: list[bytes]) -> None:
    """Reads until nobody writes any more."""
    while True:
        try:
            found = os.read(leader, 65536)
        except OSError:  # Linux says so when the other end is closed
            return
        if not found:
            return
        read.append(found)
