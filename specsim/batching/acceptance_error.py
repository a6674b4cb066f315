"""How far off tokens per call may be: intervals of what was measured, and rates moved by a little.

Nothing is known of the error of rates that were typed in; of counts, of rates with the rounds
behind them and of a trace it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from specsim.acceptance import Acceptance, AlphaLike
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.checks import Floats
from specsim.intervals import Bootstrap, Interval, normal_quantile

if TYPE_CHECKING:
    from specsim.predict.replay.fixed_gamma import Replay

# What is gained by draft length at the low and at the high end of a 95 % interval.
Ends = tuple[TokensPerBlock, TokensPerBlock]

_LEVEL = 0.95


@runtime_checkable
class IntervalByLength(Protocol):
    """What knows the tokens per call of every draft length with an interval."""

    def interval(self, gamma: int) -> Interval[float]:
        """At the level of ``specsim.extrapolation.curve.INTERVAL_LEVEL``."""
        ...


def ends_of(alpha: AlphaLike, acceptance: Acceptance, best: TokensPerBlock) -> Ends | None:
    """The ends of what is known of acceptance; None where that is rates alone.

    alpha : as it was given
    acceptance : what ``acceptance_of`` made of it
    best : what it gains

    Intervals at another level than 95 % are widened as those of a normal logarithm are.
    """
    known = alpha if isinstance(alpha, IntervalByLength) else acceptance
    if not isinstance(known, IntervalByLength):
        return None
    from specsim.extrapolation.curve import INTERVAL_LEVEL

    found = [known.interval(gamma) for gamma in range(best.longest + 1)]
    wider = normal_quantile(_LEVEL) / normal_quantile(INTERVAL_LEVEL)
    lows, highs = (
        best.tokens * (np.array([getattr(each, end) for each in found]) / best.tokens) ** wider
        for end in ("low", "high")
    )
    return _ends(best, lows, highs)


def ends_of_replays(replayed: Sequence[Replay], best: TokensPerBlock) -> Ends | None:
    """By a bootstrap over the requests of the trace that was replayed at gamma = 0..K; None where
    that is one request.
    """
    requests = replayed[0].lengths.size
    if requests == 1:
        return None
    bootstrap = Bootstrap(requests)
    found = [bootstrap.ratio(each.lengths, each.calls) for each in replayed]
    lows, highs = (np.array([getattr(each, end) for each in found]) for end in ("low", "high"))
    return _ends(best, lows, highs)


def tokens_at_rates_off(tokens: Floats, by: float) -> Floats:
    """E[N] if acceptance were ``by`` higher, or lower where that is negative.

    tokens : E[N] at gamma = 0..K, shape (K + 1,)

    At each gamma the one constant rate a with as many tokens per call, (1 - a^(gamma+1)) / (1 - a)
    (Leviathan23 eq 1), is moved, inside [0, 1].
    """
    lengths = np.arange(tokens.size)
    return _tokens_of_rates(np.clip(equal_rates(tokens) + by, 0.0, 1.0), lengths)


def equal_rates(tokens: Floats) -> Floats:
    """The constant rates with these tokens per call, at gamma = 0..K; shape (K + 1,), at gamma 0,
    where any rate does, 0.
    """
    lengths = np.arange(tokens.size)
    low, high = np.zeros(tokens.size), np.ones(tokens.size)
    for _ in range(60):  # bisection, to the last digit
        middle = (low + high) / 2
        fewer = _tokens_of_rates(middle, lengths) < tokens
        low, high = np.where(fewer, middle, low), np.where(fewer, high, middle)
    rates = np.where(tokens >= lengths + 1.0, 1.0, (low + high) / 2)
    return np.where((lengths == 0) | (tokens <= 1.0), 0.0, rates)


def _tokens_of_rates(rates: Floats, lengths: np.ndarray) -> Floats:
    """(1 - a^(gamma+1)) / (1 - a), gamma + 1 at a = 1; without cancellation near one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = -np.expm1((lengths + 1.0) * np.log(rates)) / (1.0 - rates)
    return np.asarray(np.where(rates < 1.0, found, lengths + 1.0))


def _ends(best: TokensPerBlock, lows: Floats, highs: Floats) -> Ends:
    """Inside what any draft length can gain, and about the best."""
    most = np.arange(best.tokens.size) + 1.0
    low = np.clip(lows, 1.0, best.tokens)
    high = np.clip(highs, best.tokens, np.maximum(most, best.tokens))
    return replace(best, tokens=low), replace(best, tokens=high)
