"""Acceptance that differs from place to place of the text, as a mixture over its tokens.

Let the share nu(a) of all tokens lie in stretches of text that are accepted at rate a.  Blocks of
gamma drafts that start there yield 1 + a + ... + a^gamma tokens, so a token there costs
r(a) = 1 / (1 + a + ... + a^gamma) target calls, and with nu the same at every draft length::

    1 / tokens per call = E_nu[r]           S_j = E_nu[a^j r] / E_nu[r],    j = 0..gamma

Blocks start in pi ~ nu r, the more in hard text the longer they are.  1 / r is what the papers'
formula says of rate a (Leviathan23 eq 1), and r is convex: at the same mean rate over TOKENS, as
the mean of a trace is, a mixture yields FEWER tokens per call than the formula says; at the same
mean over CALLS, S_1, it yields MORE.

This is the gap law (``gaps.py``) where G is a mixture of powers a^n.  Texts whose stretches are
shorter than a block, and drafters whose rates fall with depth, are no such mixtures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from specsim.acceptance import conditional_rates
from specsim.checks import Floats, InvalidArgumentError, numbers, probabilities


@cache
def rate_grid() -> Floats:
    """Rates in [0, 1], rising, dense at both ends; shape (n,)."""
    middle = (1.0 - np.cos(np.pi * np.linspace(0.0, 1.0, 201))) / 2.0
    near = np.geomspace(1e-6, 0.1, 60)
    return np.unique(np.concatenate([middle, near[near < 0.05], 1.0 - near]))


@dataclass(frozen=True, eq=False)
class TokenMixture:
    """Rates and the share of tokens at each; an acceptance that answers for every draft length.

    rates : in [0, 1], shape (n,)
    shares : of the tokens, >= 0, shape (n,); scaled to sum to 1
    """

    rates: Floats
    shares: Floats

    def __post_init__(self) -> None:
        rates = np.atleast_1d(probabilities("rates", self.rates))
        shares = np.atleast_1d(numbers("shares", self.shares, low=0.0))
        if rates.shape != shares.shape or rates.ndim > 1 or not shares.sum() > 0:
            raise InvalidArgumentError(
                "shares must be one for each rate, with a sum > 0, got "
                f"{shares.size} that sum to {shares.sum():g} for {rates.size} rates"
            )
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "shares", shares / shares.sum())

    def tokens_per_call(self, longest: int) -> Floats:
        """At gamma = 0..longest, the recovered or bonus token counted, shape (longest + 1,)."""
        yields = np.cumsum(powers(self.rates, longest), axis=0)
        return np.asarray(1.0 / (self.shares / yields).sum(axis=1))

    def survival(self, length: int) -> Floats:
        """S_0..S_length of blocks that draft ``length`` tokens, shape (length + 1,)."""
        rows = powers(self.rates, length)
        starts = self.shares / rows.sum(axis=0)
        # E[a^j] with a weight that sums to one; the clip takes roundings off.
        return np.minimum.accumulate(np.minimum(rows @ starts / starts.sum(), 1.0))

    def conditional(self, length: int) -> Floats:
        """alpha_1..alpha_length of such blocks; 0 behind a position that is never reached."""
        return conditional_rates(self.survival(length))


def calls(rates: Floats, gamma: int) -> Floats:
    """r(a): target calls of a token, at rate a and draft length gamma, shape (n,)."""
    return np.asarray(1.0 / powers(rates, gamma).sum(axis=0))


def powers(rates: npt.ArrayLike, gamma: int) -> Floats:
    """a^0..a^gamma of each rate, shape (gamma + 1, n)."""
    return np.asarray(np.power(np.asarray(rates)[None, :], np.arange(gamma + 1.0)[:, None]))
