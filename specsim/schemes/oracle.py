"""Speculative decoding by an oracle that knows where the first rejection will fall."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from specsim.acceptance import ConstantAcceptance
from specsim.checks import integer
from specsim.laws import TARGET, BlockLaw, ProposalLaw, Run, verify
from specsim.schemes.base import Scheme
from specsim.schemes.fields import INTEGER, NAME, described, model_names, settle
from specsim.schemes.known import Acceptances, Pair


@dataclass(frozen=True)
class OracleGamma(Scheme):
    """Drafts exactly the tokens that will be accepted: what an adaptive gamma could win at most.

    Untruncated and i.i.d.: E[N] = 1 / (1 - alpha) at cost 1 + c alpha / (1 - alpha), so
    EWIF = 1 / (1 - alpha + c alpha) (Leviathan23 3.5).  This law is truncated: a block drafts at
    most gamma_max tokens, so E[N] = (1 - alpha^(gamma_max+1)) / (1 - alpha), short of the limit
    by the factor 1 - alpha^(gamma_max+1).
    """

    example: ClassVar[str] = "--alpha 0.8 --c 0.05"

    gamma_max: int = described("Most draft tokens per target call, >= 0.", INTEGER, default=64)
    draft: str = described(
        "Name of the draft model, whose runs the cost prices.", NAME, default="draft"
    )

    def __post_init__(self) -> None:
        model_names("draft", (self.draft,))
        settle(self, gamma_max=integer("gamma_max", self.gamma_max))

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return ((self.draft, TARGET),)

    def law(self, known: Any) -> BlockLaw:
        acceptance = Acceptances.of(known).by_pair(self.pairs)[self.draft, TARGET]
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

    @property
    def label(self) -> str:
        return f"{self.draft}, as many as will stand up to {self.gamma_max}"

    def row_fields(self) -> dict[str, Any]:
        return {"drafters": self.draft, "gamma": f"0..{self.gamma_max}"}
