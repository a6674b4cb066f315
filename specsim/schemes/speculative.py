"""Speculative decoding (Leviathan23 Algorithm 1) and its non-autoregressive form (Xia22)."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.acceptance import Acceptance
from specsim.checks import integer
from specsim.laws import BlockLaw, draft, verify
from specsim.schemes import _fields


@dataclass(frozen=True)
class SpeculativeDecoding:
    """One drafter proposes gamma tokens, the target reads them in one run.

    P(N = n) = S_{n-1} (1 - alpha_n) for n <= gamma and P(N = gamma + 1) = S_gamma;
    E[N] = sum_{i=0..gamma} S_i, which is (1 - alpha^(gamma+1)) / (1 - alpha) under i.i.d.
    acceptance (Leviathan23 eq. 1).  Lenience (A.4) changes the acceptance and nothing else.

    acceptance : of the drafter's tokens by the target
    gamma : draft tokens per target call, >= 0; 0 is plain decoding
    drafter : name of the draft model, whose runs the cost prices
    bonus : whether a block accepted whole earns one more token
    one_run : whether one draft run yields all gamma tokens, instead of one run per token
    """

    acceptance: Acceptance
    gamma: int
    drafter: str = "draft"
    bonus: bool = True
    one_run: bool = False

    def __post_init__(self) -> None:
        _fields.acceptance("acceptance", self.acceptance)
        _fields.drafters("drafter", (self.drafter,))
        _fields.settle(self, gamma=integer("gamma", self.gamma))

    def law(self) -> BlockLaw:
        proposal = draft(self.drafter, self.gamma, runs_per_token=not self.one_run)
        return verify(proposal, {self.drafter: self.acceptance}, bonus=self.bonus)


@dataclass(frozen=True)
class SpecDec:
    """SpecDec and SpecDec++ (Xia22): a non-autoregressive drafter emits the block in one run.

    E[N] = sum_{i=0..k-1} S_i without the bonus token, one term more with it.  SpecDec++ accepts
    a draft token that is near the target's best one, so it is the same law with another
    acceptance.

    acceptance : of the drafter's tokens by the target, a property of the decoding rule too
    block_size : k, tokens per draft run, >= 0; the paper's value is 25
    drafter : name of the draft model, whose runs the cost prices
    bonus : whether a block accepted whole earns one more token (the paper's text: no; code: yes)
    """

    acceptance: Acceptance
    block_size: int = 25
    drafter: str = "draft"
    bonus: bool = True

    def __post_init__(self) -> None:
        _fields.acceptance("acceptance", self.acceptance)
        _fields.drafters("drafter", (self.drafter,))
        _fields.settle(self, block_size=integer("block_size", self.block_size))

    def law(self) -> BlockLaw:
        return SpeculativeDecoding(
            self.acceptance, self.block_size, self.drafter, self.bonus, one_run=True
        ).law()
