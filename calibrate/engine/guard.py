"""A program that ends, with all that it started, when whoever asked for it is gone, however killed.

    python guard.py FD FOLDER COMMAND ...

FD is the read end of a pipe whose write end the asking process holds open and nobody else: the
system closes it when that process ends, by SIGKILL too.  The command is then killed with all that
it started, and FOLDER, with what they kept in it, is removed.  The command runs in the group of
this process, has its standard input and output, and its exit code becomes this one's.  Needs the
standard library alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

_TRIES, _PAUSE_S = 5, 0.2


def main(words: list[str]) -> int:
    """``FD FOLDER COMMAND ...``; the exit code of the command."""
    pipe, folder = int(words[0]), words[1]

    def watch() -> None:
        while os.read(pipe, 1):
            pass
        group = os.getpgrp()
        if not os.fork():
            # Outlives the group: what still ran would make the folder again.
            os.setsid()
            os.killpg(group, signal.SIGKILL)
            _remove(folder)
            os._exit(0)

    # Told to end together with the command, and stays until that has; a handler is not inherited.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with subprocess.Popen(words[2:]) as command:
        threading.Thread(target=watch, daemon=True).start()
        code = command.wait()
    return code if code >= 0 else 128 - code


def _remove(folder: str) -> None:
    """What is killed takes a moment to be gone."""
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
