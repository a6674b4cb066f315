"""Decisions by load: which draft length at which batch, and where speculation stops paying.

B requests share every iteration, as in an engine with continuous batching.  A block of draft
length gamma is the runs of the drafter and one target run over gamma + 1 tokens of each request,
all of them waiting for the slowest part, and each request gains its own tokens, E[N] in the mean::

    block = draft runs + target run over gamma + 1 + overhead
    speedup = (target run over 1 + overhead of a plain step) E[N] / block

which is Leviathan23 Thm 3.8 with every cost taken at the batch.

Left out: reading of prompts, requests that join or leave, and that contexts differ between
requests.  What a batch costs is a ``LoadCost``: of a deployment, or from measured run times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specsim.batching.cost import CellUnavailableError, LoadCost, NoRoomError
from specsim.batching.tokens_per_block import TokensPerBlock, TokensPerBlockLike
from specsim.checks import UnsupportedError, integer, number
from specsim.predict.error_decomposition import BlockTiming

# What speculation must gain over plain decoding to be worth it, where nothing else is said:
# predictions are hardly better than this, and drafts that gain less only keep memory and the
# machine busy.
DEFAULT_MARGIN = 0.05


@dataclass(frozen=True)
class BatchPoint:
    """One draft length at one batch and context.

    spent : E[N], and where the seconds of a block of the batch go
    """

    batch: int
    context: float
    gamma: int
    spent: BlockTiming

    @property
    def tokens_per_call(self) -> float:
        """E[N], tokens that one block yields for each request."""
        return self.spent.tokens

    @property
    def block_s(self) -> float:
        """Seconds of a block."""
        return self.spent.block_s

    @property
    def speedup(self) -> float:
        """Against plain decoding at the same batch and context."""
        return self.spent.speedup

    def pays(self, margin: float) -> bool:
        """Whether it drafts and gains ``margin`` at least over plain decoding."""
        return self.gamma > 0 and self.speedup >= 1.0 + margin

    @property
    def tokens_per_s(self) -> float:
        """Of all requests together."""
        return self.batch * self.tokens_per_call / self.block_s

    @property
    def plain_tokens_per_s(self) -> float:
        """The same without speculation."""
        return self.batch / self.spent.plain_step_s

    def row(self) -> dict[str, Any]:
        """The result row."""
        whole = int(self.context) == self.context
        return {
            "batch": self.batch,
            "context": int(self.context) if whole else self.context,
            "gamma": self.gamma,
            "speedup": self.speedup,
            "tokens_per_call": self.tokens_per_call,
            "tokens_per_s": self.tokens_per_s,
            "plain_tokens_per_s": self.plain_tokens_per_s,
        }


def batch_point(
    acceptance: TokensPerBlockLike, cost: LoadCost, gamma: int, batch: int, context: float
) -> BatchPoint:
    """What drafting ``gamma`` tokens gives a batch.

    Raises UnsupportedError for a gamma that the acceptance or the cost does not reach.
    """
    gains = _gains(acceptance, gamma, cost)
    batch, context = _checked(batch, context)
    return _point(gains, cost, gamma, batch, context, _plain_step_s(cost, batch, context))


def best_of_cell(
    acceptance: TokensPerBlockLike,
    cost: LoadCost,
    batch: int,
    context: float,
    gamma_max: int,
    margin: float = 0.0,
) -> BatchPoint:
    """The gamma in 0..gamma_max with the best speedup, of equals the smaller; 0, off, where that
    gains less than ``margin`` over plain decoding.

    All are tried: with measured costs the speedup may have several maxima.
    """
    return best_of(points_of_cell(acceptance, cost, batch, context, gamma_max), margin)


def best_of(points: Sequence[BatchPoint], margin: float) -> BatchPoint:
    """The one with the best speedup, of equals the first; the first of all, plain decoding, where
    that gains less than ``margin``.
    """
    best = max(points, key=lambda point: point.speedup)
    return best if best.pays(margin) else points[0]


def points_of_cell(
    acceptance: TokensPerBlockLike,
    cost: LoadCost,
    batch: int,
    context: float,
    gamma_max: int,
) -> list[BatchPoint]:
    """What every gamma in 0..gamma_max gives a batch, in that order, as far as there is room for so
    many drafts; 0 alone where there is none for a drafter.
    """
    gains = _gains(acceptance, gamma_max, cost)
    batch, context = _checked(batch, context)
    plain_s = _plain_step_s(cost, batch, context)
    points = [_point(gains, cost, 0, batch, context, plain_s)]
    try:
        for gamma in range(1, gamma_max + 1):
            points.append(_point(gains, cost, gamma, batch, context, plain_s))
    except NoRoomError:
        pass  # and none for more drafts
    except CellUnavailableError:
        if len(points) > 1:
            raise
    return points


def _checked(batch: int, context: float) -> tuple[int, float]:
    return integer("batch", batch, low=1), number("context", context, low=0.0)


def _plain_step_s(cost: LoadCost, batch: int, context: float) -> float:
    return cost.verify_s(0, batch, context) + cost.overhead_s(0, batch)


def _point(
    gains: TokensPerBlock, cost: LoadCost, gamma: int, batch: int, context: float, plain_s: float
) -> BatchPoint:
    spent = BlockTiming(
        tokens=float(gains.tokens[gamma]),
        draft_s=cost.draft_s(gamma, batch, context, float(gains.bonus[gamma])) if gamma else 0.0,
        verify_s=cost.verify_s(gamma, batch, context),
        overhead_s=cost.overhead_s(gamma, batch),
        plain_step_s=plain_s,
    )
    return BatchPoint(batch, context, gamma, spent)


def _gains(acceptance: TokensPerBlockLike, gamma: int, cost: LoadCost) -> TokensPerBlock:
    """What a block gains, once that reaches ``gamma`` and the cost does."""
    gamma = integer("gamma", gamma)
    gains = TokensPerBlock.of(acceptance)
    if gamma > gains.longest:
        raise UnsupportedError(
            f"acceptance is known up to gamma {gains.longest}, gamma {gamma} asked for; extend a "
            "survival curve with specsim.extrapolate, or replay a trace further"
        )
    if gamma >= cost.longest:
        raise UnsupportedError(
            f"target runs can be priced up to {cost.longest} tokens, gamma {gamma} needs one of "
            f"{gamma + 1}"
        )
    return gains
