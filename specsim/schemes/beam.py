"""Speculative beam search (Leviathan23 A.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.acceptance import Acceptance
from specsim.checks import integer
from specsim.laws import TARGET, BlockLaw, Run, draft, verify
from specsim.schemes import _fields


@dataclass(frozen=True)
class BeamSearch:
    """The drafter's wider beam runs ahead for gamma steps; the target scores all of it in one run.

    A step stands while the target's w best continuations are among the drafter's u, and the
    result is plain beam search by the target.  N is in steps of the search: every beam grows by N
    tokens.  The target scores w + u gamma positions, the drafter u at each step.

    acceptance : of a step, given that those before it stood
    gamma : steps that the drafter runs ahead, >= 0; 0 is plain beam search
    beam : w, the beam width, >= 1
    draft_beam : u, the drafter's beam width, >= w
    drafter : name of the draft model, whose runs the cost prices
    """

    acceptance: Acceptance
    gamma: int
    beam: int
    draft_beam: int
    drafter: str = "draft"

    def __post_init__(self) -> None:
        _fields.acceptance("acceptance", self.acceptance)
        _fields.drafters("drafter", (self.drafter,))
        beam = integer("beam", self.beam, low=1)
        _fields.settle(
            self,
            gamma=integer("gamma", self.gamma),
            beam=beam,
            draft_beam=integer("draft_beam", self.draft_beam, low=beam),
        )

    def law(self) -> BlockLaw:
        block = verify(draft(self.drafter, self.gamma), {self.drafter: self.acceptance})
        always = np.ones_like(block.probability)
        return BlockLaw(
            block.probability,
            block.tokens,
            {
                Run(self.drafter, self.draft_beam): self.gamma * always,
                Run(TARGET, self.beam + self.draft_beam * self.gamma): always,
            },
        )

    def plain(self) -> BlockLaw:
        """Plain beam search by the target, which a speedup is measured against."""
        return BlockLaw(
            np.ones(1), np.ones(1, dtype=np.int64), {Run(TARGET, self.beam): np.ones(1)}
        )
