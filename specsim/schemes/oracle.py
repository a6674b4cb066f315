"""Speculative decoding by an oracle that knows where the first rejection will fall."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from specsim.acceptance import ConstantAcceptance
from specsim.laws import BlockLaw, ProposalLaw, Run, check_size, verify
from specsim.schemes.base import OneDraft
from specsim.schemes.fields import INTEGER, described, draft_name


@dataclass(frozen=True)
class OracleGamma(OneDraft):
    """Drafts exactly the tokens that will be accepted: what an adaptive gamma could win at most.

    Untruncated and i.i.d.: E[N] = 1 / (1 - alpha) at cost 1 + c alpha / (1 - alpha), so
    EWIF = 1 / (1 - alpha + c alpha) (Leviathan23 3.5).  This law is truncated: a block drafts at
    most gamma_max tokens, so E[N] = (1 - alpha^(gamma_max+1)) / (1 - alpha), short of the limit
    by the factor 1 - alpha^(gamma_max+1).
    """

    example: ClassVar[str] = "--alpha 0.8 --c 0.05"

    gamma_max: int = described("Most draft tokens per target call, >= 0.", INTEGER, default=64)
    draft: str = draft_name()

    def law(self, known: Any) -> BlockLaw:
        check_size(self.gamma_max + 1)
        acceptance = self.acceptance(known)
        drafted = np.arange(self.gamma_max + 1)
        stops = np.append(1 - acceptance.conditional(self.gamma_max), 1.0)
        probability = acceptance.survival(self.gamma_max) * stops
        kept = probability > 0
        proposal = ProposalLaw(
            probability=probability[kept],
            lengths=drafted[kept, None],
            producers=(self.draft,),
            runs={Run(self.draft, 1): drafted[kept].astype(np.float64)},
        )
        return verify(proposal, {self.draft: ConstantAcceptance(1.0)})
