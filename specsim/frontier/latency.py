"""From a rejection rate and a price to relative latency.

The i.i.d. approximation: a draft token is accepted with probability 1 - mean rejection wherever
it stands, so E[N] = (1 - alpha^(gamma+1))/(1 - alpha) (Leviathan23 eq. 1).  Rejections that come
in clusters yield more tokens per call than that; a replay of text drawn with the rule is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from specsim.checks import (
    Floats,
    Ints,
    InvalidArgumentError,
    UnsupportedError,
    integer,
    numbers,
    probabilities,
)
from specsim.cost import Cost, MeasuredVerify
from specsim.formulas import tokens_per_call
from specsim.intervals import DRAWS

if TYPE_CHECKING:
    from specsim.optimizers.workload import Workload
    from specsim.predict.measured import MeasuredCost

DRAFT = "draft"
# Draft lengths that are priced, each on its own.
_LONGEST = 10**5


@dataclass(frozen=True)
class BlockPrices:
    """Cost of a block that drafts gamma tokens, in steps of plain decoding.

    blocks : gamma = 0, 1, ..., shape (G + 1,); blocks[0] = 1 is plain decoding
    gamma : the only draft length that is allowed; None: the best of 1..G
    drawn : as far as a measurement leaves them open, shape (G + 1, DRAWS); None where nothing was
        measured
    """

    blocks: Floats
    gamma: int | None = None
    drawn: Floats | None = None

    def __post_init__(self) -> None:
        blocks = np.atleast_1d(numbers("block prices", self.blocks, low=0.0))
        if (blocks <= 0).any() or blocks[0] != 1:
            raise InvalidArgumentError(
                f"block prices must be > 0, and 1 at gamma = 0, got {blocks.tolist()}"
            )
        object.__setattr__(self, "blocks", blocks)
        if self.drawn is not None and self.drawn.shape != (blocks.size, DRAWS):
            raise InvalidArgumentError(
                f"drawn must be of shape {(blocks.size, DRAWS)}, got {self.drawn.shape}"
            )
        needed = 1 if self.gamma is None else integer("gamma", self.gamma, low=1)
        if needed >= blocks.size:
            raise UnsupportedError(
                f"blocks are priced up to gamma = {blocks.size - 1}, {needed} asked for"
            )

    @staticmethod
    def of_cost(cost: Cost, gamma: int | None = None, gamma_max: int = 64) -> BlockPrices:
        """gamma c + v(gamma + 1) + o over a step of plain decoding; c is the cost of "draft".

        Up to ``gamma_max``, or as far as verification was measured, or just to ``gamma``.
        """
        if gamma is None:
            longest = integer("gamma_max", gamma_max, high=_LONGEST)
        else:
            longest = integer("gamma", gamma, high=_LONGEST)
        if gamma is None and isinstance(cost.verify, MeasuredVerify):
            longest = min(longest, cost.verify.longest - 1)
        blocks = cost.blocks(longest, DRAFT)
        return BlockPrices(blocks / blocks[0], gamma)

    @staticmethod
    def of_workload(workload: Workload, gamma: int | None = None) -> BlockPrices:
        """The measured run times of a profile, at the mean context of its trace; their draws are
        of repeats, and of what the machine does later.
        """
        from specsim.predict.measured import drift_draws

        lengths = range(workload.profile.gamma_max + 1)

        def blocks(cost: MeasuredCost) -> Floats:
            seconds = np.array([cost.block(length, workload.context) for length in lengths])
            return np.asarray(seconds / seconds[0])

        repeats = blocks(workload.cost.drawn or workload.cost).reshape(len(lengths), -1)
        off = drift_draws(workload.profile.drift, DRAWS)
        drawn = np.vstack([np.ones(DRAWS), repeats[1:] * off])
        return BlockPrices(blocks(workload.cost), gamma, drawn)

    def speedup(self, rejection: npt.ArrayLike) -> tuple[Floats, Ints]:
        """Speedup over plain decoding at each rejection rate, and the gamma that gives it.

        Of equally fast gammas the smaller; never 0, where the target alone decodes and no rule
        has a say, so the speedup may be below one.  Relative latency is 1 / speedup.
        """
        alpha = 1.0 - probabilities("rejection", rejection)
        best, gammas = np.zeros_like(alpha), np.zeros(np.shape(alpha), dtype=np.int64)
        for gamma in self._gammas:
            speed = tokens_per_call(alpha, gamma) / self.blocks[gamma]
            better = speed > best
            best, gammas = np.where(better, speed, best), np.where(better, gamma, gammas)
        return best, gammas

    def drawn_speedup(self, rejection: Floats, gamma: int) -> Floats:
        """What is left open of a speedup at this draft length, shape (D,).

        rejection : rates as far as a measurement leaves them open, shape (D,)
        """
        blocks = self.blocks if self.drawn is None else self.drawn
        alpha = 1.0 - probabilities("rejection", rejection)
        return np.asarray(tokens_per_call(alpha, gamma) / blocks[gamma])

    def allowed_rejection(self, speedup: float) -> float | None:
        """The highest rejection rate with at least this speedup; None if even 0 is too slow."""
        alphas = [self._acceptance_for(speedup * self.blocks[g], g) for g in self._gammas]
        reached = [alpha for alpha in alphas if alpha is not None]
        return 1.0 - min(reached) if reached else None

    @property
    def _gammas(self) -> range:
        return (
            range(1, self.blocks.size) if self.gamma is None else range(self.gamma, self.gamma + 1)
        )

    @staticmethod
    def _acceptance_for(tokens: float, gamma: int) -> float | None:
        """The least alpha with E[N] >= tokens; None if gamma + 1 is less than that."""
        from scipy.optimize import brentq

        if tokens > gamma + 1:
            return None
        if tokens <= 1:
            return 0.0
        if tokens == gamma + 1:
            return 1.0
        return float(brentq(lambda alpha: tokens_per_call(alpha, gamma) - tokens, 0.0, 1.0))
