"""Horizontal cascade (Chen23): a better drafter first, cheaper ones later in the block."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.acceptance import Acceptance
from specsim.checks import integer
from specsim.laws import BlockLaw, concatenate, draft, verify
from specsim.schemes import _fields


@dataclass(frozen=True)
class HorizontalCascade:
    """Drafters one after the other, each token by token.

    EWIF = (sum_{i=0..n} prod_{j<=i} alpha_j) / (1 + sum_i c_i) (Chen23 Thm 4.1); the best
    allocation has the drafters in falling order of acceptance (see specsim.optimizers.allocation).

    drafters : model names in the order of their positions
    lengths : tokens of each drafter, >= 0; all zero is plain decoding
    acceptances : of each drafter's tokens by the target, read at the position in the block
    """

    drafters: tuple[str, ...]
    lengths: tuple[int, ...]
    acceptances: tuple[Acceptance, ...]

    def __post_init__(self) -> None:
        names = _fields.drafters("drafters", self.drafters)
        _fields.same_size("lengths", self.lengths, len(names), "one per drafter")
        _fields.same_size("acceptances", self.acceptances, len(names), "one per drafter")
        _fields.settle(
            self,
            drafters=names,
            lengths=tuple(integer("lengths", length) for length in self.lengths),
            acceptances=tuple(_fields.acceptance("acceptances", a) for a in self.acceptances),
        )

    def law(self) -> BlockLaw:
        proposals = [draft(d, n) for d, n in zip(self.drafters, self.lengths, strict=True)]
        return verify(
            concatenate(proposals), dict(zip(self.drafters, self.acceptances, strict=True))
        )
