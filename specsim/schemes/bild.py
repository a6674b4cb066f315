"""The Big Little Decoder (Kim23): the small model drafts while it is confident.

The small model drafts until its confidence falls below the fallback threshold, at most ``window``
tokens; the step at which it falls below is a small run whose token is dropped.  The large model
(here: the target) reads what was drafted and takes over at the first token that is too far from
its own opinion, or else appends its own next token.  With J drafted tokens it reads J + 1
positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specsim.acceptance import ConstantAcceptance
from specsim.checks import Floats, InvalidArgumentError, integer, numbers, probability
from specsim.laws import TARGET, BlockLaw, ProposalLaw, Run, verify
from specsim.schemes import _fields

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
class BigLittle:
    """BiLD with fallback and rollback independent of one another and of the position.

    With f = fallback, r = rollback, u = 1 - f, s = 1 - r, W = window:
    E[N] = (1 - E[s^(J+1)]) / r = sum_{i=0..W} (s u)^i, since the first i drafted tokens are there
    and stand with probability (s u)^i; and (1 - u^W) / f small runs per block.

    fallback : probability that the small model gives way at a step, in [0, 1]
    rollback : probability that a drafted token is replaced, given that those before stand
    window : most drafted tokens per block, >= 0; 0 is plain decoding
    drafter : name of the small model, whose runs the cost prices
    rescore : whether a rollback costs a second target run, on one token, that emits nothing new
        (the authors' code re-scores the replaced position; their Algorithm 1 does not)
    """

    fallback: float
    rollback: float
    window: int = WINDOW
    drafter: str = "small"
    rescore: bool = False

    def __post_init__(self) -> None:
        _fields.drafters("drafter", (self.drafter,))
        _fields.settle(
            self,
            fallback=probability("fallback", self.fallback),
            rollback=probability("rollback", self.rollback),
            window=integer("window", self.window),
        )

    def law(self) -> BlockLaw:
        return _with_rescoring(self._block()) if self.rescore else self._block()

    def fractions(self) -> Fractions:
        return _fractions(self._block())

    def _block(self) -> BlockLaw:
        proposal = draft_until_fallback(self.drafter, self.fallback, self.window)
        return verify(proposal, {self.drafter: ConstantAcceptance(1 - self.rollback)})


@dataclass(frozen=True)
class BigLittleJoint:
    """BiLD as it was measured: how often j tokens were drafted and the first m of them stood.

    Low confidence predicts rejection, so fallback and rollback depend on one another; this table
    holds any dependence.  Counts serve as well as probabilities.

    table : row j = 0..W for j drafted tokens, with entries m = 0..j: its weight, >= 0; the
        window W is the number of rows less one
    drafter : name of the small model, whose runs the cost prices
    rescore : whether a rollback costs a second target run (see BigLittle)
    """

    table: tuple[tuple[float, ...], ...]
    drafter: str = "small"
    rescore: bool = False

    def __post_init__(self) -> None:
        _fields.drafters("drafter", (self.drafter,))
        rows = tuple(
            tuple(np.atleast_1d(numbers("table", row, low=0.0)).tolist()) for row in self.table
        )
        for drafted, row in enumerate(rows):
            _fields.same_size(f"table row {drafted}", row, drafted + 1, "one for each m = 0..j")
        if not sum(map(sum, rows)) > 0:
            raise InvalidArgumentError("table must have a weight > 0, all are zero")
        _fields.settle(self, table=rows)

    def law(self) -> BlockLaw:
        return _with_rescoring(self._block()) if self.rescore else self._block()

    def fractions(self) -> Fractions:
        return _fractions(self._block())

    def _block(self) -> BlockLaw:
        window = len(self.table) - 1
        weight = np.concatenate([np.array(row) for row in self.table])
        drafted, accepted = np.tril_indices(window + 1)
        kept = weight > 0
        weight, drafted, accepted = weight[kept], drafted[kept], accepted[kept]
        runs = {Run(self.drafter, 1): _small_runs(drafted, window)}
        for length in np.unique(drafted).tolist():
            runs[Run(TARGET, length + 1)] = (drafted == length).astype(np.float64)
        return BlockLaw(weight / weight.sum(), accepted + 1, runs)


def _rolled_back(block: BlockLaw) -> Floats:
    """1 in the outcomes where not all drafted tokens stood, shape (O,)."""
    read = np.zeros_like(block.probability)
    for run, count in block.runs.items():
        if run.model == TARGET:
            read += run.positions * count
    return (block.tokens < read).astype(np.float64)


def _with_rescoring(block: BlockLaw) -> BlockLaw:
    again = Run(TARGET, 1)
    runs = {**block.runs, again: block.runs.get(again, 0.0) + _rolled_back(block)}
    return BlockLaw(block.probability, block.tokens, runs)


def _fractions(block: BlockLaw) -> Fractions:
    rollbacks = float(block.probability @ _rolled_back(block))
    return Fractions(1 / block.tokens_per_call, rollbacks / block.tokens_per_call)
