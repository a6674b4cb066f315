"""Cascade Speculative Drafting, the full algorithm (Chen23 Algorithm 1): vertical and horizontal.

Every reviewer, the target first, is served by a horizontal cascade of all drafters below it; every
neural drafter fills its share by steps in which it is a reviewer itself, until at least so many
tokens are there (the overshoot is kept, as in the authors' code).  The last drafter copies from
the context (Max-Gram) and yields its share in one run, so no neural model decodes token by token.

SWI = tokens / sum_i c_i calls_i, with c = 1 for the target, is the stationary speedup under
``Cost(drafts=...)`` with every other field at its default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from specsim.laws import TARGET
from specsim.schemes.base import DraftingScheme
from specsim.schemes.drafters import CopyDrafter, Drafter, HorizontalDrafter, VerticalDrafter
from specsim.schemes.fields import NAMES, ROWS, described, same_size
from specsim.schemes.known import Pair


@dataclass(frozen=True)
class FullCascade(DraftingScheme):
    """Every reviewer is served by all drafters below it: Cascade Speculative Drafting.

    Lengths are a triangular matrix, row by reviewer and column by drafter.  With drafters
    d_1..d_n, row 0 is the target's: its entries are the shares of d_1..d_n.  Row i is d_i's, with
    the shares of d_{i+1}..d_n in each of its steps.  The paper's k11, k12 and k22 of two neural
    drafters and Max-Gram are lengths[0][0], lengths[0][1] and lengths[1][0]; the last entry of
    each row is Max-Gram's (10 in the paper, where it serves).

    Acceptances are in the same order: of each drafter's tokens by that row's reviewer, read at
    the position in the reviewer's block.  Lenience between drafters changes rows 1 and on, and
    through d_i's emitted tokens the rows above too.
    """

    example: ClassVar[str] = (
        "--drafters base,small,copy --lengths 5,3,10/3,10/10 "
        "--alpha 0.73/0.65/0.2/0.8/0.3/0.3 --cost base=0.02 --cost small=0.005 --c 0"
    )

    drafters: tuple[str, ...] = described(
        "Model names d_1..d_n, best first, the copying one last.", NAMES
    )
    lengths: tuple[tuple[int, ...], ...] = described(
        "n rows of n, n - 1, ..., 1 tokens, >= 0: at least so many from a neural drafter, exactly "
        "so many from the last one; a first row of zeros is plain decoding.",
        ROWS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        size = len(self.drafters)
        same_size("lengths", self.lengths, size, "one row per reviewer")
        for i, row in enumerate(self.lengths):
            same_size(f"lengths row {i}", row, size - i, "one per drafter below")

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Row by row, those of shares that are zero too."""
        verifiers = (TARGET, *self.drafters[:-1])
        return tuple(
            (drafter, verifier)
            for row, verifier in enumerate(verifiers)
            for drafter in self.drafters[row:]
        )

    @property
    def drafter(self) -> HorizontalDrafter:
        return self._serving(0)

    def _serving(self, row: int) -> HorizontalDrafter:
        """What proposes to the reviewer of a row: the target for row 0, else the drafter row - 1.

        A neural drafter without a share is left out: it never runs.
        """
        *shares, last = self.lengths[row]
        parts: list[Drafter] = [
            VerticalDrafter(name, self._serving(drafter + 1), at_least=share)
            for drafter, (name, share) in enumerate(
                zip(self.drafters[row:-1], shares, strict=True), start=row
            )
            if share
        ]
        return HorizontalDrafter((*parts, CopyDrafter(self.drafters[-1], last)))

    @property
    def label(self) -> str:
        return f"{', '.join(self.drafters)}: {self._matrix()}"

    def row_fields(self) -> dict[str, Any]:
        return {**super().row_fields(), "gamma": self._matrix()}

    def _matrix(self) -> str:
        return " / ".join(" ".join(map(str, row)) for row in self.lengths)
