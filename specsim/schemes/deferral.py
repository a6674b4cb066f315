"""Sequential cascades (Narasimhan24): the small model writes, and defers now and then.

The cost laws given how often the small model defers; which rule decides, and what it does to
quality, is in specsim.rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.acceptance import ConstantAcceptance
from specsim.checks import integer, probability
from specsim.laws import TARGET, BlockLaw, Run, verify
from specsim.schemes import _fields
from specsim.schemes.bild import draft_until_fallback

CAP = 10  # Narasimhan24 E.1


@dataclass(frozen=True)
class TokenCascade:
    """Token-level cascade (Narasimhan24 Algorithm 2) by a rule that looks at q only.

    A block is up to and including a target run: the small model writes J tokens, the target reads
    the J + 1 that it has not seen and writes the next one; nothing is ever taken back.  The step
    at which the small model defers is a small run without a token.  With d = deferral, u = 1 - d:
    E[N] = 1 + u (1 - u^cap) / d.

    deferral : probability that the small model defers at a token, in [0, 1]
    cap : most tokens that the small model writes before the target is called anyway, >= 0
    drafter : name of the small model, whose runs the cost prices
    """

    deferral: float
    cap: int = CAP
    drafter: str = "small"

    def __post_init__(self) -> None:
        _fields.drafters("drafter", (self.drafter,))
        _fields.settle(
            self, deferral=probability("deferral", self.deferral), cap=integer("cap", self.cap)
        )

    def law(self) -> BlockLaw:
        proposal = draft_until_fallback(self.drafter, self.deferral, self.cap)
        return verify(proposal, {self.drafter: ConstantAcceptance(1.0)})


@dataclass(frozen=True)
class SequenceCascade:
    """Sequence-level cascade (Narasimhan24 eq. 1): the whole response is deferred or kept.

    A block is one response: the small model writes it, and with probability d the target writes
    it again by plain decoding.  Speed = 1 / (c + d).  A block holds length or no target runs, and
    is charged one overhead, not one for each of its steps.

    deferral : d, probability that a response is deferred, in [0, 1]
    length : tokens of a response, the same from either model, >= 1
    drafter : name of the small model, whose runs the cost prices
    """

    deferral: float
    length: int = 1
    drafter: str = "small"

    def __post_init__(self) -> None:
        _fields.drafters("drafter", (self.drafter,))
        _fields.settle(
            self,
            deferral=probability("deferral", self.deferral),
            length=integer("length", self.length, low=1),
        )

    def law(self) -> BlockLaw:
        tokens = np.array([self.length, self.length])
        return BlockLaw(
            probability=np.array([1 - self.deferral, self.deferral]),
            tokens=tokens,
            runs={
                Run(self.drafter, 1): tokens.astype(np.float64),
                Run(TARGET, 1): np.array([0.0, self.length]),
            },
        )
