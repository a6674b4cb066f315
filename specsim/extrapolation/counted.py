"""What counts say of a mixture over tokens: one linear equation for each rate that was counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats
from specsim.conversions import alpha_from_acceptance_length
from specsim.counts.drafts import DraftCounts
from specsim.extrapolation.mixtures import TokenMixture, calls
from specsim.intervals import normal_quantile, wilson_interval


@dataclass(frozen=True)
class CountedRate:
    """One counted rate: E_nu[(a^j - rate a^(j-1)) r] = 0 is alpha_j = rate in blocks of gamma.

    position : j, or 0 where only totals were counted: then E_nu[rate r] = 1, tokens per call
    tokens : per call at this gamma; scales all equations alike
    reached : S_(j-1)
    trials : rounds that got to position j - 1, or all of them
    """

    gamma: int
    position: int
    rate: float
    tokens: float
    reached: float
    trials: float

    def row(self, rates: Floats, rate: float) -> Floats:
        """Of the equation with another rate, by the acceptance of each share, shape (n,)."""
        price = calls(rates, self.gamma)
        if not self.position:
            return np.asarray(1.0 - rate * price)
        last = rates ** (self.position - 1)
        return np.asarray((rates - rate) * last * price * self.tokens)

    def value(self, mixture: TokenMixture) -> float:
        """What the mixture has for this rate."""
        if not self.position:
            return float(mixture.tokens_per_call(self.gamma)[-1])
        return float(mixture.conditional(self.gamma)[self.position - 1])

    @property
    def error(self) -> float:
        """Standard deviation of the equation's left side by chance; half an event is added."""
        if not self.position:
            return self._deviation / self.rate
        rate = (self.rate * self.trials + 0.5) / (self.trials + 1.0)
        return self.reached * float(np.sqrt(rate * (1.0 - rate) / (self.trials + 1.0)))

    def interval(self, level: float) -> tuple[float, float]:
        if not self.position:
            half = normal_quantile(level) * self._deviation
            return max(self.rate - half, 1.0), min(self.rate + half, self.gamma + 1.0)
        found = wilson_interval(np.array(self.rate), np.array(self.trials), level)
        return float(found.low), float(found.high)

    @property
    def _deviation(self) -> float:
        """Of a mean of tokens per call whose spread was not counted: that of i.i.d. acceptance."""
        curve = np.power(
            alpha_from_acceptance_length(self.tokens, self.gamma), np.arange(1.0, self.gamma + 1.0)
        )
        return tokens_deviation(np.asarray(curve), self.trials)


def counted_rates(count: DraftCounts) -> Iterator[CountedRate]:
    """What one count says: rates by position as far as any round got, else the mean of tokens."""
    assert count.gamma is not None
    tokens = min(count.tokens_per_call, count.gamma + 1.0)
    before = count.rounds
    for position, reached in enumerate(count.reached[: count.gamma], 1):
        if before < 0.5:
            return
        rate = min(reached / before, 1.0)
        yield CountedRate(count.gamma, position, rate, tokens, before / count.rounds, before)
        before = reached
    if len(count.reached) < count.gamma:
        yield CountedRate(count.gamma, 0, tokens, tokens, 1.0, count.rounds)


def tokens_deviation(curve: Floats, rounds: float) -> float:
    """Standard deviation of the mean tokens of so many independent rounds with S_1..S_K = curve.

    Var N = sum_i (2 i - 1) S_i - (sum_i S_i)^2; never quite zero, as if half a round differed.
    """
    odd = 2.0 * np.arange(1, curve.size + 1) - 1.0
    variance = max(float(odd @ curve - curve.sum() ** 2), 0.5 / rounds)
    return float(np.sqrt(variance / rounds))
