"""Which experts a run touches, and what the busiest card has to do where they are dealt out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import erf, sqrt

import numpy as np

from specsim.checks import Floats, integer, number


@dataclass(frozen=True)
class Experts:
    """How tokens choose ``per_token`` of ``number`` routed experts, in every layer that has any."""

    number: int
    per_token: int

    def touched(self, tokens: Floats) -> Floats:
        """Expected number of experts that runs touch: E (1 - (1 - k / E)^m), m = B n tokens.

        Exact if every token picks its k of E experts uniformly and independently of the others, as
        k / E is then each token's chance of touching a given one.  Real routing is uneven and
        neighbouring tokens choose alike; both touch fewer (1 - (1 - x)^m is concave in x), so this
        counts too much traffic rather than too little.
        """
        return np.asarray(self.number * (1.0 - (1.0 - self.per_token / self.number) ** tokens))

    def beyond_one(self, tokens: Floats) -> Floats:
        """The same without those of one token, which each run has."""
        found: Floats = np.maximum(self.touched(tokens) - self.per_token, 0.0)
        return found


def expected_experts(experts: int, experts_per_token: int, tokens: float) -> float:
    """Expected number of experts that a run of so many tokens touches (``Experts.touched``)."""
    experts = integer("experts", experts, low=1)
    chosen = integer("experts per token", experts_per_token, high=experts)
    return float(Experts(experts, chosen).touched(np.array(number("tokens", tokens, low=0.0))))


def most_touched(experts: int, touched: float, cards: int) -> float:
    """Expected number of touched experts on the busiest of the cards that they are dealt out to.

    With t of E experts touched, uniformly, a card that has E / p of them has t / p touched ones in
    the mean, with the variance of the hypergeometric law, t / p (1 - 1 / p) (E - t) / (E - 1); the
    largest of p cards as if they were normal (``_largest``), 5 % off for one token and 3 % for more
    in the tests.  At most E / p.
    """
    mean = touched / cards
    if cards == 1 or experts == 1:
        return mean
    variance = mean * (1.0 - 1.0 / cards) * max(experts - touched, 0.0) / (experts - 1)
    return min(mean + _largest(cards) * sqrt(variance), experts / cards)


def load_over_mean(experts: int, experts_per_token: int, choosing: float, cards: int) -> float:
    """Expected products of the busiest card over the mean of all, in [1, p].

    Each of ``choosing`` independent choices is k of E experts without replacement, of which a card
    has k / p in the mean, with the variance of the hypergeometric law.
    """
    if cards == 1 or experts == 1:
        return 1.0
    k = experts_per_token
    variance = k / cards * (1.0 - 1.0 / cards) * (experts - k) / (experts - 1) / choosing
    return min(1.0 + _largest(cards) * sqrt(variance) / (k / cards), float(cards))


@cache
def _largest(cards: int) -> float:
    """Expected largest of p standard normal numbers whose sum is zero.

    That of independent ones, the integral of x p phi(x) Phi(x)^(p - 1), times sqrt(p / (p - 1)).
    """
    x = np.linspace(-8.0, 8.0, 4001)
    density = np.exp(-x * x / 2.0) / sqrt(2.0 * np.pi)
    below = np.array([0.5 * (1.0 + erf(each / sqrt(2.0))) for each in x])
    values = x * cards * density * below ** (cards - 1)
    return float(np.trapezoid(values, x)) * sqrt(cards / (cards - 1))
