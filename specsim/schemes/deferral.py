"""Sequential cascades (Narasimhan24): the small model writes, and defers now and then.

The laws are of the cost, given how often the small model defers; which rule decides, and what it
does to quality, is in specsim.rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from specsim.acceptance import ConstantAcceptance
from specsim.checks import InvalidArgumentError, integer
from specsim.laws import TARGET, BlockLaw, Run, verify
from specsim.schemes.base import OneDraft, rule_label
from specsim.schemes.bild import draft_until_fallback
from specsim.schemes.fields import INTEGER, described, draft_name
from specsim.schemes.known import Deferral, Known

if TYPE_CHECKING:
    from specsim.rules import DraftDeferralRule

CAP = 10  # Narasimhan24 E.1
# Of the log probabilities of a response's tokens.
Confidence = Literal["sum", "mean"]


def _chow() -> DraftDeferralRule:
    from specsim.rules import Chow

    return Chow(0.6, decide_on="unscaled")


@dataclass(frozen=True)
class TokenCascade(OneDraft):
    """Token-level cascade (Narasimhan24 Algorithm 2) by a rule that looks at q only.

    A block is up to and including a target run: the small model writes J tokens, the target reads
    the J + 1 that it has not seen and writes the next one; nothing is ever taken back.  The step
    at which the small model defers is a small run without a token.  With d = deferral, u = 1 - d:
    E[N] = 1 + u (1 - u^cap) / d.
    """

    example: ClassVar[str] = "--deferral 0.3 --c 0.1"
    knows: ClassVar[tuple[type[Known], ...]] = (Deferral,)

    cap: int = described(
        "Most tokens that the small model writes before the target is called anyway, >= 0.",
        INTEGER,
        default=CAP,
    )
    draft: str = draft_name("small")
    rule: DraftDeferralRule = described(
        "When the small model defers, in specsim.rules.", default_factory=_chow
    )

    def law(self, known: Any) -> BlockLaw:
        proposal = draft_until_fallback(self.draft, Deferral.of(known).deferral, self.cap)
        return verify(proposal, {self.draft: ConstantAcceptance(1.0)})

    @property
    def label(self) -> str:
        return f"{self.draft} up to {self.cap}, {rule_label(self.rule)}"

    def row_fields(self) -> dict[str, Any]:
        return {**super().row_fields(), "gamma": self.cap}


@dataclass(frozen=True)
class SequenceCascade(OneDraft):
    """Sequence-level cascade (Narasimhan24 eq. 1): the whole response is deferred or kept.

    A block is one response: the small model writes it, and with probability d = deferral the
    target writes it again by plain decoding.  Speed = 1 / (c + d).  A block holds length or no
    target runs, and is charged one overhead, not one for each of its steps.
    """

    example: ClassVar[str] = "--deferral 0.3 --length 64 --c 0.1"
    knows: ClassVar[tuple[type[Known], ...]] = (Deferral,)

    length: int = described(
        "Tokens of a response, the same from either model, >= 1.", INTEGER, default=1
    )
    draft: str = draft_name("small")
    confidence: Confidence = described(
        "Confidence in a response: the sum of its tokens' log q (eq. 1), or the mean, which does "
        "not punish length.",
        default="mean",
    )
    threshold: float = described(
        "A response is kept where the confidence is at least this, in nats.", default=-1.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("length", self.length, low=1)
        if self.confidence not in get_args(Confidence):
            raise InvalidArgumentError(
                f"confidence must be one of {', '.join(get_args(Confidence))}, "
                f"got {self.confidence!r}"
            )

    def law(self, known: Any) -> BlockLaw:
        deferral = Deferral.of(known).deferral
        tokens = np.array([self.length, self.length])
        return BlockLaw(
            probability=np.array([1 - deferral, deferral]),
            tokens=tokens,
            runs={
                Run(self.draft, 1): tokens.astype(np.float64),
                Run(TARGET, 1): np.array([0.0, self.length]),
            },
        )

    @property
    def label(self) -> str:
        return f"{self.draft}, {self.confidence} log q >= {self.threshold:g}"

    def row_fields(self) -> dict[str, Any]:
        rule = f"{self.confidence} log q"
        return {**super().row_fields(), "rule": rule, "threshold": self.threshold}
