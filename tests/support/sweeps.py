"""Sweeps that are small, workers that die, and what lies in a folder of results."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from joblib.externals.loky import get_reusable_executor

from specsim.sweeps.chunks import AnsweredChunk, Chunk, answer_chunk

# Three settings fail, words and numbers share a column.
EVALUATE: dict[str, Any] = {
    "command": "evaluate",
    "inputs": {
        "alpha": [0.6, "0.8,0.7", 1.5],
        "c": {"first": 0.05, "last": 0.15, "step": 0.05},
        "gamma": [1, 4],
    },
}
SIMULATE: dict[str, Any] = {
    "command": "simulate speculative",
    "inputs": {
        "alpha": [0.7, 0.8],
        "gamma": {"first": 1, "last": 6},
        "c": 0.05,
        "blocks": 200_000,
        "seed": [0, 1],
    },
}

_FOLDER = "SWEEP_TEST_FOLDER"
_DEADLY = 5


def contents(folder: Path) -> dict[str, bytes]:
    """All files, by name."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}


def watched_answer(chunk: Chunk) -> AnsweredChunk:
    """Answer, and write down that this was begun."""
    with (Path(os.environ[_FOLDER]) / "begun").open("a") as log:
        log.write(f"{chunk.number}\n")
    return answer_chunk(chunk)


def deadly_answer(chunk: Chunk) -> AnsweredChunk:
    """The same, but the process that is the first to get chunk 5 dies of it."""
    died = Path(os.environ[_FOLDER]) / "died"
    if chunk.number == _DEADLY and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return watched_answer(chunk)


def is_fatal(inputs: Mapping[str, Any]) -> bool:
    """Of two settings of SIMULATE, by their inputs' columns."""
    return (inputs["input_gamma"], inputs["input_seed"]) == (5, 1)


def fatal_answer(chunk: Chunk) -> AnsweredChunk:
    """Answer, but the process that tries one of two settings dies of it, each time."""
    for place, setting in enumerate(chunk.settings):
        inputs = {f"input_{name}": value for name, value in setting.items()}
        if place not in chunk.fatal and is_fatal(inputs):
            os.kill(os.getpid(), signal.SIGKILL)
    return answer_chunk(chunk)


class Watch:
    """What ``watched_answer`` wrote down in a folder, in whatever process it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.environ[_FOLDER] = str(folder)
        # Processes that were started before know of another folder.
        get_reusable_executor().shutdown(wait=True)

    @property
    def begun(self) -> Counter[int]:
        """How often each chunk was begun and not ended by the death of its worker."""
        return Counter(map(int, (self.folder / "begun").read_text().split()))

    @property
    def died(self) -> bool:
        return (self.folder / "died").exists()

    @property
    def again(self) -> int:
        """Chunks that were computed and computed again."""
        return sum(count - 1 for count in self.begun.values())
