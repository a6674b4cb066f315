"""Vertical cascade (Chen23): a drafter that decodes speculatively, with a cheaper drafter.

The drafters are named from the target inwards: d_1 proposes to the target, d_2 to d_1, and so on;
only the last one drafts token by token.  A reviewer's step is a block like the target's: its run
reads the k proposed tokens and one more, so it is counted as Run(d_1, k + 1).

Assumed by the law, as in the paper: whether a reviewer accepts a token does not depend on how the
token came to be, accepted or recovered by the reviewer below.  The tokens have the right
distribution either way, but real ones do depend, and through the proposal's length E[N] then moves
by a few percent.

How many steps make a proposal is told in two ways, which differ: a fixed number (the paper's
formula) or until at least so many tokens are there, the overshoot kept (the authors' code).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specsim.checks import InvalidArgumentError
from specsim.schemes.base import DraftingScheme
from specsim.schemes.drafters import Drafter, VerticalDrafter, single_drafter
from specsim.schemes.fields import (
    INTEGER,
    INTEGERS,
    NAMES,
    SWITCH,
    described,
    same_size,
)


@dataclass(frozen=True)
class VerticalCascade(DraftingScheme):
    """Drafters each of which reviews the next one.

    Two drafters, n steps of k tokens: EWIF = (1 - alpha phi(alpha)^n) /
    ((1 - alpha) (1 + n c1 + n k c2)) with phi(x) = 1 + (x - 1) (1 - (alpha' x)^(k+1)) /
    (1 - alpha' x), alpha' the acceptance of d_2 by d_1 (Chen23).
    """

    example: ClassVar[str] = (
        "--drafters base,small --alpha 0.73/0.8 --steps 2 --gamma 3 "
        "--cost base=0.022 --cost small=0.0068"
    )

    drafters: tuple[str, ...] = described(
        "Model names d_1..d_m, from the target inwards; the last may be unigram, bigram, copy or "
        "max-gram, which have no model.",
        NAMES,
    )
    gamma: int = described(
        "Tokens that d_m drafts for each step of the one before it, >= 0.", INTEGER
    )
    steps: tuple[int, ...] | None = described(
        "n_1..n_{m-1}: steps of d_i in each of its proposals, >= 0; 0 proposes nothing.",
        INTEGERS,
        default=None,
    )
    at_least: tuple[int, ...] | None = described(
        "K_1..K_{m-1}, instead of steps: tokens in each proposal of d_i, >= 0; 0 proposes nothing, "
        "what overshoots is proposed too.",
        INTEGERS,
        default=None,
    )
    one_run: bool = described(
        "Whether d_m drafts its tokens in one run, not one per token.", SWITCH, default=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.steps is None) == (self.at_least is None):
            raise InvalidArgumentError("give one of steps and at_least")
        for name, counts in (("steps", self.steps), ("at_least", self.at_least)):
            if counts is not None:
                same_size(name, counts, len(self.drafters) - 1, "one per drafter but the last")

    @property
    def drafter(self) -> Drafter:
        *reviewers, last = self.drafters
        inner: Drafter = single_drafter(last, self.gamma, self.one_run)
        gamma: int | None = self.gamma
        for level in reversed(range(len(reviewers))):
            steps = self.steps[level] if self.steps is not None else None
            at_least = self.at_least[level] if self.at_least is not None else None
            inner = VerticalDrafter(reviewers[level], inner, gamma, steps, at_least)
            gamma = None
        return inner
