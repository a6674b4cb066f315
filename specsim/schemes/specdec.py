"""SpecDec and SpecDec++ (Xia22): a non-autoregressive drafter emits the block in one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from specsim.schemes.base import DraftingScheme
from specsim.schemes.drafters import MaskDrafter
from specsim.schemes.fields import INTEGER, SWITCH, described, draft_name

if TYPE_CHECKING:
    from specsim.rules import GreedyMatch, TopBeta


@dataclass(frozen=True)
class SpecDec(DraftingScheme):
    """One run of the drafter fills in k masks, the target reads them in one run.

    E[N] = sum_{i=0..k-1} S_i without the bonus token, one term more with it.  SpecDec++ accepts
    a draft token that is near the target's best one, so it is the same law with another
    acceptance, which is a property of the rule too.
    """

    example: ClassVar[str] = "--alpha 0.9 --block-size 25 --c 0.3"

    block_size: int = described("k, tokens per draft run, >= 0; Xia22: 25.", INTEGER, default=25)
    draft: str = draft_name()
    bonus: bool = described(
        "Whether a block accepted whole earns one more token (Xia22's text: no; code: yes).",
        SWITCH,
        default=True,
    )
    rule: GreedyMatch | TopBeta | None = described(
        "Which draft tokens stand, in specsim.rules; None is the target's best one.", default=None
    )

    @property
    def drafter(self) -> MaskDrafter:
        return MaskDrafter(self.draft, self.block_size)

    def row_fields(self) -> dict[str, Any]:
        return {**super().row_fields(), "gamma": self.block_size}
