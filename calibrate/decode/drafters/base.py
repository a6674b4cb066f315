"""What a drafter is: it pushes tokens onto the text, and can say what each was drawn from.

A new drafter is one class with ``propose``.  Drafters are made of drafters: one after the other
(``horizontal``), or one reviewed by another (``vertical``).
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from calibrate.decode.drawing import Drawing, Rows
from calibrate.decode.engine import Counted, Runs
from calibrate.decode.text import Text


class Drafter(ABC):
    """Proposes tokens.

    sources : everything that runs in it and is counted, each once
    """

    sources: tuple[Counted, ...]

    def begin(self, text: Text) -> None:
        """Take up a request, after its prompt was read by all sources."""
        self.text = text

    @abstractmethod
    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        """Push at most ``room`` tokens onto the text, fewer where the drafter has no more.

        Returns what each was drawn from, or None where that is not wanted or nothing was pushed.
        Given the text before it, every token must come from its row, whatever was accepted or
        rejected inside the drafter: that is what makes verification lossless.
        """


class Lookup(Drafter):
    """A drafter without a model, whose runs are counted all the same, under its ``name``."""

    name: str
    context = sys.maxsize
    reads_states = False

    def __init__(self) -> None:
        self.runs = Runs()
        self.sources = (self,)

    def prefill(self, prompt: Sequence[int], written: Sequence[int] = ()) -> None:
        self.runs = Runs()

    @contextmanager
    def run(self, width: int) -> Iterator[None]:
        """Count one run over, or of, so many tokens."""
        start = time.perf_counter()
        yield
        self.runs.add(width, time.perf_counter() - start)


def sources(drafters: Sequence[Drafter]) -> tuple[Counted, ...]:
    """The sources of several drafters, each once."""
    return tuple({id(each): each for drafter in drafters for each in drafter.sources}.values())
