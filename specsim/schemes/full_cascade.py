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

from specsim.acceptance import Acceptance
from specsim.checks import integer
from specsim.laws import TARGET, BlockLaw, ProposalLaw, concatenate, draft, propose_at_least, verify
from specsim.schemes import _fields


@dataclass(frozen=True)
class FullCascade:
    """The triangular matrix of lengths, row by reviewer and column by drafter.

    With drafters d_1..d_n, row 0 is the target's: its entries are the shares of d_1..d_n.  Row i
    is d_i's, with the shares of d_{i+1}..d_n in each of its steps.  The paper's k11, k12 and k22
    of two neural drafters and Max-Gram are lengths[0][0], lengths[0][1] and lengths[1][0]; the
    last entry of each row is Max-Gram's (10 in the paper, where it serves).

    drafters : model names d_1..d_n, best first, the copying one last
    lengths : n rows of n, n - 1, ..., 1 tokens, >= 0: at least so many from a neural drafter,
        exactly so many from the last one; a first row of zeros is plain decoding
    acceptances : in the same shape: of that drafter's tokens by that row's reviewer, read at the
        position in the reviewer's block.  Lenience between drafters changes rows 1 and on, and
        through d_i's emitted tokens the rows above too.
    """

    drafters: tuple[str, ...]
    lengths: tuple[tuple[int, ...], ...]
    acceptances: tuple[tuple[Acceptance, ...], ...]

    def __post_init__(self) -> None:
        names = _fields.drafters("drafters", self.drafters)
        for name, table in (("lengths", self.lengths), ("acceptances", self.acceptances)):
            _fields.same_size(name, table, len(names), "one row per reviewer")
            for i, row in enumerate(table):
                _fields.same_size(f"{name} row {i}", row, len(names) - i, "one per drafter below")
        _fields.settle(
            self,
            drafters=names,
            lengths=tuple(tuple(integer("lengths", n) for n in row) for row in self.lengths),
            acceptances=tuple(
                tuple(_fields.acceptance("acceptances", a) for a in row) for row in self.acceptances
            ),
        )

    def law(self) -> BlockLaw:
        return self._block(0)

    def _block(self, row: int) -> BlockLaw:
        """One step of the reviewer of ``row``: the target for row 0, else the drafter row - 1."""
        below = self.drafters[row:]
        shares = [
            self._share(row + i, length) for i, length in enumerate(self.lengths[row]) if length
        ]
        return verify(
            concatenate(shares or [draft(self.drafters[-1], 0)]),
            dict(zip(below, self.acceptances[row], strict=True)),
            verifier=self.drafters[row - 1] if row else TARGET,
        )

    def _share(self, drafter: int, length: int) -> ProposalLaw:
        name = self.drafters[drafter]
        if drafter == len(self.drafters) - 1:
            return draft(name, length, runs_per_token=False)
        return propose_at_least(self._block(drafter + 1), name, length)
