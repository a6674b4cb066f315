"""Seconds of the steps of one replica by the number of requests that decode, prompts included.

A step with n decodes and w tokens of prompts takes F(n, w).  Prompts come at the rate lambda, so a
step of tau seconds has a Poisson number k of them with the mean lambda tau, and

    tau(n) = F(n, 0) + E[read(n, prompts of k requests)]

where ``read`` is what their tokens add: F(n, w) - F(n, 0) in an engine that mixes them into steps
with decodes, F(0, w) in one that reads them in steps of their own.  What exceeds the budget of a
step is read in several.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specsim.checks import Floats, Ints

# Prompts whose sums are drawn, and sums of so many are looked at.
_SUMS = 32
_MOST_PROMPTS = 64
# Mean numbers of prompts in a step at which the mean of what they add is kept.
_MEANS = np.concatenate([[0.0], np.geomspace(1e-4, 0.5 * _MOST_PROMPTS, 60)])


@dataclass(frozen=True, eq=False)
class StepTimes:
    """F(n, w) in tables.

    decode_s : F(n, 0) at n = 1..cap, shape (cap,)
    counts : n at which the reading of prompts is known, rising from 0, shape (R,)
    tokens : w at which it is, rising from 0, shape (W,)
    read_s : what w tokens add to a step with n decodes, shape (R, W); with 0, all of the step
    budget : prompt tokens that fit into a step with n decodes, at ``counts``, >= 1, shape (R,)
    prompts : prompt tokens of some requests, of which sums are drawn
    stops_decodes : whether prompts have steps of their own
    idle_s : host's time before the first step of a request that nobody else is served with, where
        other steps hide it
    """

    decode_s: Floats
    counts: Ints
    tokens: Floats
    read_s: Floats
    budget: Floats
    prompts: Floats
    stops_decodes: bool = False
    idle_s: float = 0.0

    @property
    def cap(self) -> int:
        """The most requests that decode together."""
        return self.decode_s.size

    def reading_s(self, row: int, tokens: Floats) -> Floats:
        """What so many prompt tokens add in all, at ``counts[row]`` decodes."""
        budget = self.budget[row]
        whole = np.floor(tokens / budget)
        full = np.interp(budget, self.tokens, self.read_s[row])
        rest = np.interp(tokens - whole * budget, self.tokens, self.read_s[row])
        found: Floats = whole * full + rest
        return found

    @cached_property
    def spread(self) -> Floats:
        """What single prompts add to a step of a middling batch, over its mean, rising, (64,)."""
        size = self.prompts.size
        some = np.sort(self.prompts)[(np.arange(64) * 2 + 1) * size // 128]
        added = self.reading_s(self.counts.size // 2, some)
        mean = float(added.mean())
        return added / mean if mean > 0 else np.ones(64)

    @cached_property
    def of_prompts(self) -> Floats:
        """Mean of what k = 0..64 prompts add, by row of ``counts``, shape (R, 65)."""
        size = self.prompts.size
        order = np.random.default_rng(0).integers(size, size=(_MOST_PROMPTS, _SUMS))
        # Single prompts are all of them, evenly by length.
        alone = np.sort(self.prompts)[(np.arange(_SUMS) * 2 + 1) * size // (2 * _SUMS)]
        sums = np.cumsum(np.vstack([alone[None], self.prompts[order[1:]]]), axis=0)
        rows = [self.reading_s(row, sums).mean(axis=1) for row in range(self.counts.size)]
        return np.concatenate([np.zeros((len(rows), 1)), np.array(rows)], axis=1)

    @cached_property
    def _by_mean(self) -> Floats:
        """Mean of what a Poisson number of prompts adds, at ``_MEANS``, shape (R, 61)."""
        from scipy.special import gammaln  # loads scipy

        k = np.arange(_MOST_PROMPTS + 1)
        means = np.maximum(_MEANS, 1e-300)[:, None]
        weights = np.exp(k * np.log(means) - means - gammaln(k + 1))
        found: Floats = self.of_prompts @ (weights / weights.sum(axis=1, keepdims=True)).T
        return found

    @cached_property
    def _added_s(self) -> Floats:
        """What a Poisson number of prompts adds at n = 1..cap, by its mean, shape (cap, 61)."""
        n = np.arange(1, self.cap + 1)
        at = np.interp(n, self.counts, np.arange(self.counts.size))
        low = np.minimum(at.astype(np.int64), self.counts.size - 2)
        share = (at - low)[:, None]
        found: Floats = (1.0 - share) * self._by_mean[low] + share * self._by_mean[low + 1]
        return found

    @cached_property
    def _rates(self) -> Floats:
        """The rate at which a step has so many prompts in the mean: a = lambda tau, so lambda is
        a / (F(n, 0) + what they add), shape (cap, 61).
        """
        found: Floats = _MEANS / (self.decode_s[:, None] + self._added_s)
        return found

    def mean_s(self, rate: float) -> Floats:
        """tau(n) at n = 1..cap with prompts at ``rate`` per second, shape (cap,); inf where the
        reading of prompts leaves no time for decodes.
        """
        if rate == 0.0:
            return self.decode_s
        # The first mean that needs as high a rate; beyond the last the straight line goes on.
        beyond = self._rates >= rate
        place = np.where(beyond.any(axis=1), beyond.argmax(axis=1), _MEANS.size - 1) - 1
        rows = np.arange(self.cap)
        below = self._added_s[rows, place]
        width = _MEANS[place + 1] - _MEANS[place]
        slope = (self._added_s[rows, place + 1] - below) / width
        left = 1.0 - rate * slope
        seconds = self.decode_s + below - slope * _MEANS[place]
        found = np.full(self.cap, np.inf)
        np.divide(seconds, left, out=found, where=left > 1e-9)
        return found

    def full_s(self, mean: float) -> float:
        """tau(cap) where a step has so many prompts in the mean."""
        low = min(int(np.searchsorted(_MEANS, mean, side="right")) - 1, _MEANS.size - 2)
        share = (mean - _MEANS[low]) / (_MEANS[low + 1] - _MEANS[low])
        below, above = self._added_s[-1, low : low + 2]
        return float(self.decode_s[-1] + below + share * (above - below))
