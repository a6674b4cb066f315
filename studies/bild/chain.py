"""BiLD on scored text: which blocks a pair of thresholds makes, as if the text were its output.

Along real text the small model goes on while it is sure, the large one reads what it wrote, and
the next block starts behind the first token that it replaced or the one that it appended.  Real
text is not what BiLD would have written, so this is an approximation of its decoding; its quality
is exact on that text, every token judged behind the true ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from specsim.checks import Floats
from specsim.frontier import LabelledPositions
from specsim.predict.measured import MeasuredCost
from specsim.schemes.bild import BigLittle
from specsim.schemes.known import DraftedAccepted

SMALL = "small"


@dataclass(frozen=True)
class Thresholds:
    """As ``calibrate.decode.bild.Policy``: when the small model gives way, and is overruled."""

    fallback: float
    rollback: float
    window: int

    @property
    def kind(self) -> str:
        if self.fallback == 0:
            return "no fallback"
        return "no rollback" if self.rollback == np.inf else "both"


@dataclass(frozen=True)
class Chain:
    """What a pair of thresholds does on a text.

    table : blocks by drafted tokens j and standing ones m <= j, shape (W + 1, W + 1)
    by_large : whether the large model wrote the token of a position, shape (T,); positions of a
        request behind its last whole block are the small model's, where it would stand
    """

    thresholds: Thresholds
    table: npt.NDArray[np.int64]
    by_large: npt.NDArray[np.bool_]

    @property
    def scheme(self) -> BigLittle:
        return BigLittle(len(self.table) - 1, SMALL)

    @property
    def counted(self) -> DraftedAccepted:
        """The table as the law of the scheme takes it."""
        rows = (tuple(row[: j + 1].tolist()) for j, row in enumerate(self.table))
        return DraftedAccepted(tuple(rows))

    @property
    def blocks(self) -> int:
        return int(self.table.sum())

    @property
    def tokens(self) -> int:
        """Of whole blocks."""
        return int((self.table.sum(axis=0) * np.arange(1, len(self.table) + 1)).sum())

    def speedup(self, cost: MeasuredCost, context: float) -> float:
        """Against plain decoding, from measured run times at one context.

        A block that drafts j < W tokens has a run more than that, whose token is dropped.
        """
        window = len(self.table) - 1
        drafted = self.table.sum(axis=1)
        seconds = sum(
            count * (cost.block(j, context) + (j < window) * cost.draft_run(j + 1, context))
            for j, count in enumerate(drafted.tolist())
        )
        return float(self.tokens * cost.block(0, context) / seconds)


def chains(positions: LabelledPositions, settings: Sequence[Thresholds]) -> list[Chain]:
    """Every pair of thresholds on greedy text of both models."""
    sure = positions.columns["unscaled_draft_max"]
    distance = positions.columns["unscaled_bild_greedy"]
    # A token that is the large model's own is never replaced (errata Kim23 4).
    same = positions.tv == 0
    return [_chain(positions, each, sure, distance, same) for each in settings]


def _chain(
    positions: LabelledPositions,
    thresholds: Thresholds,
    sure: Floats,
    distance: Floats,
    same: npt.NDArray[np.bool_],
) -> Chain:
    window = thresholds.window
    unsure = sure < thresholds.fallback
    stands = (distance <= thresholds.rollback) | same
    table = np.zeros((window + 1, window + 1), dtype=np.int64)
    by_large = ~stands
    starts = positions.starts.tolist()
    # The first position at or behind each one where the small model gives way, or is overruled.
    gives_way, overruled = _next(unsure), _next(~stands)
    for start, end in pairwise(starts):
        at = start
        while at + window < end:
            drafted = min(gives_way[at] - at, window)
            standing = min(overruled[at] - at, drafted)
            table[drafted, standing] += 1
            at += standing + 1
            by_large[at - 1] = True
    return Chain(thresholds, table, by_large)


def _next(flags: npt.NDArray[np.bool_]) -> list[int]:
    """The first index at or behind each position with a flag; the size where there is none."""
    size = len(flags)
    marks = np.where(flags, np.arange(size), size)
    following: list[int] = np.minimum.accumulate(marks[::-1])[::-1].tolist()
    return following
