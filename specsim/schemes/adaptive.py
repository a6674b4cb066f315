"""Speculative decoding with an adaptive gamma (specsim.schemes.policies has the policies).

State runs across blocks, so there is no single law of one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from specsim.acceptance import of_every_length
from specsim.checks import UnsupportedError, integer
from specsim.laws import BlockLaw, ProposalLaw, Run, verify
from specsim.schemes.base import OneDraft
from specsim.schemes.fields import INTEGER, NUMBER, described, draft_name, settle
from specsim.schemes.policies import AdaptiveDraft, EstimateAlpha, GrowShrink, stationary_gamma

# Draft lengths of a chain whose stationary law is worked out.
_MOST_STATES = 2048


class _Adaptive(OneDraft):
    """Base: one draft model, and a policy that sets gamma."""

    def law(self, known: Any) -> BlockLaw:
        raise UnsupportedError(
            f"{type(self).__name__} carries state across blocks and has no law of one block: "
            "use its policy() with replay or Monte Carlo"
        )

    def source(self, known: Any) -> AdaptiveDraft:
        return AdaptiveDraft(self.policy(), of_every_length(self.acceptance(known)), self.draft)


@dataclass(frozen=True)
class AdaptiveHeuristic(_Adaptive):
    """Speculative decoding under the +2/-1 heuristic of transformers."""

    example: ClassVar[str] = "--alpha 0.8 --c 0.05"

    gamma_start: int | None = described(
        "gamma of a request's first block, in 1..gamma_max. [default: 20, or gamma_max if less]",
        INTEGER,
        default=None,
    )
    gamma_max: int = described("Cap on gamma.", INTEGER, default=64)
    draft: str = draft_name()

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, gamma_start=self.policy().gamma_start)  # which checks how they go together

    def policy(self) -> GrowShrink:
        first = self.gamma_start
        if first is None:
            first = min(GrowShrink.gamma_start, max(self.gamma_max, 1))
        return GrowShrink(first, self.gamma_max)

    def stationary_law(self, known: Any) -> BlockLaw:
        """The law of a block picked at random from a long run, when blocks accept independently.

        Exact for long-run ratios.  Neighbouring blocks are dependent, so nothing about a finite
        generation follows from it.
        """
        # A chain over gamma is solved, which takes the cube of their number.
        integer("gamma_max", self.gamma_max, high=_MOST_STATES)
        acceptance = of_every_length(self.acceptance(known))
        weight = stationary_gamma(self.policy(), acceptance.survival(self.gamma_max))
        gammas = np.flatnonzero(weight)
        proposal = ProposalLaw(
            probability=weight[gammas],
            lengths=gammas[:, None],
            producers=(self.draft,),
            runs={Run(self.draft, 1): gammas.astype(np.float64)},
        )
        return verify(proposal, {self.draft: acceptance})


@dataclass(frozen=True)
class AdaptiveEstimate(_Adaptive):
    """Speculative decoding at the best gamma for alpha as estimated on the way."""

    example: ClassVar[str] = "--alpha 0.8 --c 0.05"

    c: float = described("Cost of a draft run in target runs, also to the policy.", NUMBER)
    prior: float = described("alpha before anything was seen.", NUMBER, default=0.7)
    weight: float = described(
        "How many tested tokens the prior is worth, > 0.", NUMBER, default=4.0
    )
    gamma_max: int = described("Cap on gamma, >= 1.", INTEGER, default=64)
    draft: str = draft_name()

    def __post_init__(self) -> None:
        super().__post_init__()
        policy = self.policy()
        settle(self, c=policy.c, prior=policy.prior, weight=policy.weight)

    def policy(self) -> EstimateAlpha:
        return EstimateAlpha(self.c, self.prior, self.weight, self.gamma_max)
