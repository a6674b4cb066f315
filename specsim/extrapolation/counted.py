"""What counts say of a mixture over tokens: a linear equation for each rate that was counted, and
one for the tokens behind the last position that was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats
from specsim.conversions import alpha_from_acceptance_length
from specsim.counts.drafts import DraftCounts
from specsim.extrapolation.mixtures import TokenMixture, calls, powers
from specsim.intervals import normal_quantile, wilson_interval

# Rounds; fewer are none, since sums that were recovered from printed shares need not be whole.
_SOME = 0.5


@dataclass(frozen=True)
class Counted(ABC):
    """A figure of blocks of one draft length, and its equation.

    gamma : the draft length
    position : that the figure is of
    rate : the figure
    tokens : per call at this gamma; scales all equations alike
    reached : the share of the rounds that the figure is a mean over
    trials : those rounds
    """

    gamma: int
    position: int
    rate: float
    tokens: float
    reached: float
    trials: float

    @abstractmethod
    def row(self, rates: Floats, rate: float) -> Floats:
        """Of the equation with another figure, by the acceptance of each share, shape (n,)."""

    @abstractmethod
    def value(self, mixture: TokenMixture) -> float:
        """What the mixture has for the figure."""

    @property
    @abstractmethod
    def error(self) -> float:
        """Standard deviation of the equation's left side by chance."""

    @abstractmethod
    def interval(self, level: float) -> tuple[float, float]:
        """Of the figure, by chance."""


@dataclass(frozen=True)
class CountedRate(Counted):
    """E_nu[(a^j - rate a^(j-1)) r] = 0 is alpha_j = rate, at position j, of the rounds that got to
    position j - 1.
    """

    def row(self, rates: Floats, rate: float) -> Floats:
        last = rates ** (self.position - 1)
        return np.asarray((rates - rate) * last * calls(rates, self.gamma) * self.tokens)

    def value(self, mixture: TokenMixture) -> float:
        return float(mixture.conditional(self.gamma)[self.position - 1])

    @property
    def error(self) -> float:
        """Half an event is added."""
        rate = (self.rate * self.trials + 0.5) / (self.trials + 1.0)
        return self.reached * float(np.sqrt(rate * (1.0 - rate) / (self.trials + 1.0)))

    def interval(self, level: float) -> tuple[float, float]:
        found = wilson_interval(np.array(self.rate), np.array(self.trials), level)
        return float(found.low), float(found.high)


@dataclass(frozen=True)
class CountedTokens(Counted):
    """E_nu[(1 + a + ... + a^(gamma - j) - rate) a^j r] = 0 is a mean of ``rate`` tokens behind
    position j, the recovered or bonus token counted, of the rounds that got to position j.

    Of j = 0 these are the tokens per call.
    """

    def row(self, rates: Floats, rate: float) -> Floats:
        behind = powers(rates, self._left).sum(axis=0) - rate
        return np.asarray(behind * rates**self.position * calls(rates, self.gamma) * self.tokens)

    def value(self, mixture: TokenMixture) -> float:
        return float(self.curve_behind(mixture.survival(self.gamma)).sum())

    @property
    def error(self) -> float:
        return self.reached * self._deviation

    def interval(self, level: float) -> tuple[float, float]:
        half = normal_quantile(level) * self._deviation
        return max(self.rate - half, 1.0), min(self.rate + half, self._left + 1.0)

    def curve_behind(self, curve: Floats) -> Floats:
        """S_j..S_gamma over S_j, from S_0..S_gamma."""
        return np.asarray(curve[self.position :] / max(curve[self.position], 1e-12))

    @property
    def _left(self) -> int:
        """Drafts behind the position."""
        return self.gamma - self.position

    @property
    def _deviation(self) -> float:
        """Of a mean of tokens whose spread was not counted: that of i.i.d. acceptance."""
        alpha = alpha_from_acceptance_length(self.rate, self._left)
        curve = np.power(alpha, np.arange(1.0, self._left + 1.0))
        return tokens_deviation(np.asarray(curve), self.trials)


def counted_rates(count: DraftCounts) -> Iterator[Counted]:
    """What one count says: rates by position as far as any round got, and the mean of the tokens
    behind those that were counted.
    """
    assert count.gamma is not None
    tokens = min(count.tokens_per_call, count.gamma + 1.0)
    before = count.rounds
    for position, reached in enumerate(count.reached[: count.gamma], 1):
        if before < _SOME:
            return
        rate = min(reached / before, 1.0)
        yield CountedRate(count.gamma, position, rate, tokens, before / count.rounds, before)
        before = reached
    behind = counted_tokens(count)
    if behind is not None:
        yield behind


def counted_tokens(count: DraftCounts) -> CountedTokens | None:
    """Tokens behind the last position that was counted; None where there is no later one, or no
    round got so far.

    What was accepted up to there is in the rates of the positions, and must not count twice.
    """
    assert count.gamma is not None
    position = len(count.reached)
    trials = count.reached[-1] if count.reached else count.rounds
    if position >= count.gamma or trials < _SOME:
        return None
    later = max(count.accepted - sum(count.reached), 0.0) / trials
    return CountedTokens(
        count.gamma,
        position,
        min(1.0 + later, count.gamma - position + 1.0),
        min(count.tokens_per_call, count.gamma + 1.0),
        trials / count.rounds,
        trials,
    )


def tokens_deviation(curve: Floats, rounds: float) -> float:
    """Standard deviation of the mean tokens of so many independent rounds with S_1..S_K = curve.

    Var N = sum_i (2 i - 1) S_i - (sum_i S_i)^2; never quite zero, as if half a round differed.
    """
    odd = 2.0 * np.arange(1, curve.size + 1) - 1.0
    variance = max(float(odd @ curve - curve.sum() ** 2), 0.5 / rounds)
    return float(np.sqrt(variance / rounds))
