"""Speculative decoding (Leviathan23 Algorithm 1), and with a rule that changes what is emitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import UnsupportedError, check_choice
from specsim.laws import BlockLaw, Run
from specsim.schemes.base import DraftingScheme
from specsim.schemes.drafters import SingleDrafter, single_drafter
from specsim.schemes.fields import INTEGER, SWITCH, described, draft_name

if TYPE_CHECKING:
    from specsim.rules import Rule


@dataclass(frozen=True)
class SpeculativeDecoding(DraftingScheme):
    """One drafter proposes gamma tokens, the target reads them in one run.

    P(N = n) = S_{n-1} (1 - alpha_n) for n <= gamma and P(N = gamma + 1) = S_gamma;
    E[N] = sum_{i=0..gamma} S_i, which is (1 - alpha^(gamma+1)) / (1 - alpha) under i.i.d.
    acceptance (Leviathan23 eq. 1).  Lenience (A.4) changes the acceptance and nothing else.

    The law takes acceptances as given, of whatever acceptance law; its replay reads them off the
    text under ``acceptance_law``, and its decoder drafts and accepts by that.

    Under a rule whose bonus token depends on the draft's distribution, a block accepted whole has
    one more draft run (Narasimhan24 Algorithm 4).
    """

    example: ClassVar[str] = "--alpha 0.8 --gamma 5 --c 0.05"

    gamma: int = described("Draft tokens per target call, >= 0; 0 is plain decoding.", INTEGER)
    draft: str = draft_name(
        more="; unigram, bigram, copy and max-gram are drafters without a model, eagle a head over "
        "the target's hidden states"
    )
    bonus: bool = described(
        "Whether a block accepted whole earns one more token.", SWITCH, default=True
    )
    one_run: bool = described(
        "Whether one draft run yields all gamma tokens, instead of one run per token.",
        SWITCH,
        default=False,
    )
    rule: Rule | None = described(
        "What drafts are verified against, in specsim.rules; None is lossless.", default=None
    )

    acceptance_law: AcceptanceLaw = described(
        "How drafts are made and accepted: ratio-test, greedy-drafts or exact-match.",
        default="ratio-test",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("acceptance_law", self.acceptance_law, ACCEPTANCE_LAWS)
        if self.rule is not None and self.acceptance_law != "ratio-test":
            raise UnsupportedError(
                f"{type(self.rule).__name__} changes the text by the ratio test: "
                f"{self.acceptance_law} has no meaning under it"
            )

    @property
    def drafter(self) -> SingleDrafter:
        return single_drafter(self.draft, self.gamma, self.one_run)

    def law(self, known: Any) -> BlockLaw:
        block = super().law(known)
        if self.rule is None or not self.rule.bonus_needs_draft or not self.gamma:
            return block
        again, accepted_whole = Run(self.draft, 1), block.tokens == self.gamma + 1
        runs = block.runs.get(again, 0.0) + accepted_whole.astype(np.float64)
        return BlockLaw(block.probability, block.tokens, {**block.runs, again: runs})


def _opt() -> Rule:
    from specsim.rules import Opt

    return Opt(0.1)


@dataclass(frozen=True)
class SpeculativeCascade(SpeculativeDecoding):
    """Speculative decoding under a rule that changes the law (Narasimhan24 Algorithm 4).

    alpha is how often drafts stand under the rule, 1 - E[D_TV(pi, q)].
    """

    rule: Rule = described(
        "What drafts are verified against, in specsim.rules.", default_factory=_opt
    )
