"""Horizontal cascade (Chen23): a better drafter first, cheaper ones later in the block."""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.decode.drafters.base import Drafter, sources
from calibrate.decode.drawing import Drawing, Rows, join
from calibrate.decode.text import Text


class Horizontal(Drafter):
    """Drafters one after the other.

    parts : drafters in the order of their positions, each with the most tokens that it may push,
        or None where it has a length of its own
    """

    def __init__(self, parts: Sequence[tuple[Drafter, int | None]]) -> None:
        self.parts = tuple(parts)
        self.sources = sources([drafter for drafter, _ in self.parts])

    def begin(self, text: Text) -> None:
        super().begin(text)
        for drafter, _ in self.parts:
            drafter.begin(text)

    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        end = len(self.text) + room
        rows = []
        for drafter, tokens in self.parts:
            left = end - len(self.text)
            rows.append(drafter.propose(left if tokens is None else min(tokens, left), drawing))
        return join(rows)
