"""Replay of a head over the target's hidden states (EAGLE, Li24).

The description is ``specsim.schemes.drafters.EagleDrafter``, the decoder
``calibrate.decode.drafters.eagle``.

What a head proposes depends on where its block began: up to there it read the target's features,
behind it its own.  So one number a token is not enough, and the text is recorded at every depth of
a block from every start.  Given that the drafts before it were accepted they are the text's, so the
head's distribution at a depth follows from start and text, and the argument of
``specsim.predict.replay.blocks`` holds with a_{s,j} in place of a_t.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats
from specsim.predict.replay.drafters import NOTHING, DrafterReplay, Proposal
from specsim.predict.replay.run_counts import RunCounts


@dataclass(frozen=True, eq=False)
class HeadReplay(DrafterReplay):
    """A head that drafts token by token, one run each.

    accepted : shape (T, K): a_{s,j}, the chance that token j of the block at s is accepted given
        all before it; 0 behind the text
    lengths : shape (T,): the most tokens that it proposes there, K or none
    """

    name: str
    accepted: Floats
    lengths: np.ndarray

    @property
    def reach(self) -> int:
        return int(self.accepted.shape[1])

    def _propose(self, start: int, room: int) -> Proposal:
        length = min(room, int(self.lengths[start])) if start < len(self.accepted) else room
        if not length:
            return NOTHING
        rejected, alive = {}, 1.0
        for place in range(length):
            rate = float(self.accepted[start, place]) if start < len(self.accepted) else 0.0
            if rate < 1.0:
                rejected[place] = alive * (1 - rate)
            alive *= rate
            if not alive:
                break
        complete = {length: alive} if alive else {}
        return Proposal(rejected, complete, float(length), self._tally(length))

    def expected_off_text(self, room: int) -> tuple[RunCounts, float]:
        room = min(room, self.reach)
        return self._tally(room), float(room)

    def _tally(self, room: int) -> RunCounts:
        tally = RunCounts()
        if room:
            tally.add(self.name, float(room))
        return tally


def rates_by_depth(accepted: Floats, lengths: np.ndarray) -> Iterator[tuple[float, float]]:
    """How often token j = 1, 2, ... of a block was accepted, and how often all before it were.

    Expected counts over all starts that propose and have j tokens of the text before them.
    """
    survived = np.cumprod(accepted, axis=1)
    for depth in range(accepted.shape[1]):
        starts = np.flatnonzero(lengths[: max(len(accepted) - depth, 0)] > depth)
        before = survived[starts, depth - 1].sum() if depth else float(len(starts))
        yield float(survived[starts, depth].sum()), float(before)
