"""Horizontal cascade (Chen23): a better drafter first, cheaper ones later in the block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from specsim.schemes.base import DraftingScheme, row_value
from specsim.schemes.drafters import HorizontalDrafter, single_drafter
from specsim.schemes.fields import INTEGERS, NAMES, described, same_size


@dataclass(frozen=True)
class HorizontalCascade(DraftingScheme):
    """Drafters one after the other, each token by token.

    EWIF = (sum_{i=0..n} prod_{j<=i} alpha_j) / (1 + sum_i c_i) (Chen23 Thm 4.1); the best
    allocation has the drafters in falling order of acceptance (see specsim.optimizers.allocation).
    The acceptance of a drafter is read at the position in the block.
    """

    example: ClassVar[str] = (
        "--drafters base,small --lengths 5,3 --alpha 0.73/0.65 "
        "--cost base=0.022 --cost small=0.0068"
    )

    drafters: tuple[str, ...] = described(
        "Model names in the order of their positions; unigram, bigram, copy and max-gram are "
        "drafters without a model.",
        NAMES,
    )
    lengths: tuple[int, ...] = described(
        "Tokens of each drafter, >= 0; all zero is plain decoding.", INTEGERS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        same_size("lengths", self.lengths, len(self.drafters), "one per drafter")

    @property
    def drafter(self) -> HorizontalDrafter:
        pairs = zip(self.drafters, self.lengths, strict=True)
        return HorizontalDrafter(tuple(single_drafter(name, tokens) for name, tokens in pairs))

    def row_fields(self) -> dict[str, Any]:
        return {**super().row_fields(), "gamma": row_value(self.lengths)}
