"""The Big Little Decoder (Kim23): the small model drafts while it is confident.

The small model drafts until its confidence falls below the fallback threshold, at most ``window``
tokens; the step at which it falls below is a small run whose token is dropped.  The large model
(here: the target) reads what was drafted and takes over at the first token that is too far from
its own opinion, or else appends its own next token.  With J drafted tokens it reads J + 1
positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from specsim.acceptance import ConstantAcceptance
from specsim.checks import Floats, InvalidArgumentError, number, probability
from specsim.laws import TARGET, BlockLaw, ProposalLaw, Run, check_size, verify
from specsim.schemes.base import OneDraft
from specsim.schemes.fields import INTEGER, SWITCH, described, draft_name, settle
from specsim.schemes.known import DraftedAccepted, FallbackRollback, Known

WINDOW = 10  # the paper's longest draft


class Fractions(NamedTuple):
    """How often the small model gives way, per emitted token (Kim23 Table 4 defines neither).

    fallback : target calls per emitted token: every hand-over, a full window's included
    rollback : blocks in which a drafted token was replaced, per emitted token
    """

    fallback: float
    rollback: float


def draft_until_fallback(drafter: str, fallback: float, window: int) -> ProposalLaw:
    """P(J = j) = u^j f for j < W and P(J = W) = u^W, with f = fallback and u = 1 - f."""
    check_size(window + 1)
    drafted = np.arange(window + 1)
    mass = np.power(1 - fallback, drafted)
    mass[:-1] *= fallback
    kept = mass > 0
    return ProposalLaw(
        probability=mass[kept],
        lengths=drafted[kept, None],
        producers=(drafter,),
        runs={Run(drafter, 1): _small_runs(drafted, window)[kept]},
    )


def _small_runs(drafted: npt.NDArray[np.int64], window: int) -> Floats:
    """Small runs that draft so many tokens: the fallback step's dropped token costs one too."""
    return np.minimum(drafted + 1, window).astype(np.float64)


@dataclass(frozen=True)
class BigLittle(OneDraft):
    """The Big Little Decoder: a small model drafts while it is confident (Kim23).

    The law takes chances of fallback and rollback, or a table of what was counted.  With f =
    fallback and r = rollback independent of one another and of the position, u = 1 - f,
    s = 1 - r and W = window:
    E[N] = (1 - E[s^(J+1)]) / r = sum_{i=0..W} (s u)^i, since the first i drafted tokens are there
    and stand with probability (s u)^i; and (1 - u^W) / f small runs per block.

    The thresholds are the decoder's; how often they are met is what the law must know.
    """

    example: ClassVar[str] = "--fallback 0.2 --rollback 0.05 --c 0.1"
    knows: ClassVar[tuple[type[Known], ...]] = (FallbackRollback, DraftedAccepted)

    window: int = described(
        "Most drafted tokens per block, >= 0; 0 is plain decoding.", INTEGER, default=WINDOW
    )
    draft: str = draft_name("small")
    rescore: bool = described(
        "Whether a rollback costs a second target run, on one token, that emits nothing new (the "
        "authors' code re-scores the replaced position; their Algorithm 1 does not).",
        SWITCH,
        default=False,
    )
    fallback_threshold: float = described(
        "The small model goes on while its top probability is at least this, in [0, 1]; 0 never "
        "falls back before the window is full.",
        default=0.4,
    )
    rollback_threshold: float = described(
        "A drafted token stands if -log p of it by the target is at most this, in nats, >= 0; "
        "infinity never rolls back.",
        default=2.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        fallback = probability("fallback_threshold", self.fallback_threshold)
        settle(self, fallback_threshold=fallback)
        if self.rollback_threshold != math.inf:
            threshold = number("rollback_threshold", self.rollback_threshold, low=0.0)
            settle(self, rollback_threshold=threshold)

    def law(self, known: FallbackRollback | DraftedAccepted) -> BlockLaw:
        block = self._block(known)
        if not self.rescore:
            return block
        again = Run(TARGET, 1)
        runs = {**block.runs, again: block.runs.get(again, 0.0) + _rolled_back(block)}
        return BlockLaw(block.probability, block.tokens, runs)

    @classmethod
    def implied_by(cls, known: Any) -> Mapping[str, Any]:
        """A table has one row for each length of a draft, so it tells the window."""
        return {"window": known.window} if isinstance(known, DraftedAccepted) else {}

    def fractions(self, known: FallbackRollback | DraftedAccepted) -> Fractions:
        """How often the small model gives way and is overruled, per emitted token."""
        block = self._block(known)
        rollbacks = float(block.probability @ _rolled_back(block))
        return Fractions(1 / block.tokens_per_call, rollbacks / block.tokens_per_call)

    def _block(self, known: FallbackRollback | DraftedAccepted) -> BlockLaw:
        """Without rescoring."""
        if isinstance(known, DraftedAccepted):
            return self._counted(known)
        proposal = draft_until_fallback(self.draft, known.fallback, self.window)
        return verify(proposal, {self.draft: ConstantAcceptance(1 - known.rollback)})

    def _counted(self, known: DraftedAccepted) -> BlockLaw:
        if known.window != self.window:
            raise InvalidArgumentError(
                f"table must have window + 1 = {self.window + 1} rows, got {known.window + 1}: "
                f"was it counted with the window {known.window}?"
            )
        weight = np.concatenate([np.array(row) for row in known.table])
        drafted, accepted = np.tril_indices(self.window + 1)
        kept = weight > 0
        weight, drafted, accepted = weight[kept], drafted[kept], accepted[kept]
        runs = {Run(self.draft, 1): _small_runs(drafted, self.window)}
        for length in np.unique(drafted).tolist():
            runs[Run(TARGET, length + 1)] = (drafted == length).astype(np.float64)
        return BlockLaw(weight / weight.sum(), accepted + 1, runs)

    @property
    def label(self) -> str:
        rollback = (
            "no rollback"
            if self.rollback_threshold == math.inf
            else f"rollback {self.rollback_threshold:g}"
        )
        rescored = ", rescored" if self.rescore else ""
        return (
            f"{self.draft} up to {self.window}, fallback {self.fallback_threshold:g}, "
            f"{rollback}{rescored}"
        )

    def row_fields(self) -> dict[str, Any]:
        return {
            **super().row_fields(),
            "gamma": self.window,
            "fallback_threshold": self.fallback_threshold,
            # JSON has no infinity.
            "rollback_threshold": None
            if self.rollback_threshold == math.inf
            else self.rollback_threshold,
        }


def _rolled_back(block: BlockLaw) -> Floats:
    """1 in the outcomes where not all drafted tokens stood, shape (O,)."""
    read = np.zeros_like(block.probability)
    for run, count in block.runs.items():
        if run.model == TARGET:
            read += run.positions * count
    return (block.tokens < read).astype(np.float64)
