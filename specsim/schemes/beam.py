"""Speculative beam search (Leviathan23 A.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from specsim.checks import integer
from specsim.laws import TARGET, BlockLaw, Run, draft, verify
from specsim.schemes.base import OneDraft, plain_decoding
from specsim.schemes.fields import INTEGER, described, draft_name


@dataclass(frozen=True)
class BeamSearch(OneDraft):
    """The drafter's wider beam runs ahead for gamma steps; the target scores all of it in one run.

    A step stands while the target's w best continuations are among the drafter's u, and the
    result is plain beam search by the target.  N is in steps of the search: every beam grows by N
    tokens.  The target scores w + u gamma positions, the drafter u at each step.  alpha is the
    acceptance of a step, given that those before it stood.
    """

    example: ClassVar[str] = "--alpha 0.7 --gamma 4 --beams 4 --draft-beam 8 --c 0.05"

    gamma: int = described(
        "Steps that the drafter runs ahead, >= 0; 0 is plain beam search.", INTEGER
    )
    beams: int = described("w, the beam width, >= 1.", INTEGER)
    draft_beam: int = described("u, the drafter's beam width, >= w.", INTEGER)
    draft: str = draft_name()

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("beams", self.beams, low=1)
        integer("draft_beam", self.draft_beam, low=self.beams)

    def law(self, known: Any) -> BlockLaw:
        block = verify(draft(self.draft, self.gamma), {self.draft: self.acceptance(known)})
        always = np.ones_like(block.probability)
        return BlockLaw(
            block.probability,
            block.tokens,
            {
                Run(self.draft, self.draft_beam): self.gamma * always,
                Run(TARGET, self.beams + self.draft_beam * self.gamma): always,
            },
        )

    def baseline(self) -> BlockLaw:
        """Plain beam search by the target."""
        return plain_decoding(self.beams)

    @property
    def label(self) -> str:
        return f"{self.beams} beams, {self.draft} {self.gamma} steps of {self.draft_beam}"

    def row_fields(self) -> dict[str, Any]:
        return {**super().row_fields(), "beams": self.beams, "draft_beam": self.draft_beam}
