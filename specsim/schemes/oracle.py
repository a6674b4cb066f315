"""Speculative decoding by an oracle that knows where the first rejection will fall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.acceptance import Acceptance, ConstantAcceptance
from specsim.checks import integer
from specsim.laws import BlockLaw, ProposalLaw, Run, verify
from specsim.schemes import _fields


@dataclass(frozen=True)
class OracleGamma:
    """Drafts exactly the tokens that will be accepted: what an adaptive gamma could win at most.

    Untruncated and i.i.d.: E[N] = 1 / (1 - alpha) at cost 1 + c alpha / (1 - alpha), so
    EWIF = 1 / (1 - alpha + c alpha) (Leviathan23 3.5).  This law is truncated: a block drafts at
    most gamma_max tokens, so E[N] = (1 - alpha^(gamma_max+1)) / (1 - alpha), short of the limit
    by the factor 1 - alpha^(gamma_max+1).

    acceptance : of the drafter's tokens by the target
    gamma_max : most draft tokens per target call, >= 0
    drafter : name of the draft model, whose runs the cost prices
    """

    acceptance: Acceptance
    gamma_max: int = 64
    drafter: str = "draft"

    def __post_init__(self) -> None:
        _fields.acceptance("acceptance", self.acceptance)
        _fields.drafters("drafter", (self.drafter,))
        _fields.settle(self, gamma_max=integer("gamma_max", self.gamma_max))

    def law(self) -> BlockLaw:
        drafted = np.arange(self.gamma_max + 1)
        stops = np.append(1 - self.acceptance.conditional(self.gamma_max), 1.0)
        probability = self.acceptance.survival(self.gamma_max) * stops
        kept = probability > 0
        proposal = ProposalLaw(
            probability=probability[kept],
            lengths=drafted[kept, None],
            producers=(self.drafter,),
            runs={Run(self.drafter, 1): drafted[kept].astype(np.float64)},
        )
        return verify(proposal, {self.drafter: ConstantAcceptance(1.0)})
