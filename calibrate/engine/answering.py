"""A process of an inference engine that answers lines of JSON (``worker``)."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from calibrate.engine.client import EngineError

_WORKER = Path(__file__).with_name("worker.py")


def worker_command(program: Path, *words: str) -> list[str]:
    """The words of a ``worker``, run by the Python beside the ``vllm`` program."""
    python = program.parent / "python"
    if not python.is_file():
        raise EngineError(
            f"engine_bin {program}: no python beside it, which calls vLLM's own functions; name "
            "the vllm of a virtual environment"
        )
    return [str(python), str(_WORKER), *words]


class AnsweringProcess:
    """A ``worker`` that is running, its standard input and output pipes.

    where : what it is called in messages
    """

    def __init__(self, process: subprocess.Popen[bytes], where: str) -> None:
        self.where = where
        self._process = process
        # An empty line is the end of the process.
        self._answers: Queue[bytes] = Queue()
        self._ready = False
        threading.Thread(target=self._read, daemon=True).start()

    def is_ready(self) -> bool:
        """Whether it has loaded what it needs."""
        if not self._ready:
            try:
                self._ready = bool(self._answers.get_nowait())
            except Empty:
                return False
        return self._ready

    def wait_until_ready(self, seconds: float) -> None:
        """Until it has; raises EngineError where it has not within so many seconds."""
        if not self._ready:
            self._ready = bool(self._line(seconds))

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        """What it answers within so many seconds, once it is ready.

        Raises EngineError where that is an error, or there is no answer.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise EngineError(f"{self.where} has ended") from None
        answer: dict[str, Any] = json.loads(self._line(seconds))
        if "error" in answer:
            raise EngineError(f"{self.where}: {answer['error'][:300]}")
        return answer

    def _line(self, seconds: float) -> bytes:
        try:
            line = self._answers.get(timeout=seconds)
        except Empty:
            raise EngineError(f"{self.where}: no answer after {seconds:g} s") from None
        if not line:
            raise EngineError(f"{self.where} has ended")
        return line

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")
