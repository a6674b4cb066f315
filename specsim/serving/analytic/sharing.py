"""State-dependent processor sharing: how many requests are served together.

All requests in service share a server whose total speed depends on their number n.  With Poisson
arrivals of rate lambda and n requests completing at the rate c(n) = phi(n) / E[S],

    pi(n) ~ prod_{k <= n} lambda / c(k)

whatever the law of the work S (Cohen 1979), and a request with the work x stays x E[n] / (lambda
E[S]) in the mean.  At most ``cap`` are in service; others wait in order of arrival.  Beyond the cap
the law of S does matter and pi is that of exponential work, a birth-death chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, UnsupportedError, significant


@dataclass(frozen=True, eq=False)
class Shared:
    """The stationary law of an open system.

    rate : arrivals per second
    completions : c(n) at n = 1..cap, requests per second, shape (cap,)

    Raises UnsupportedError where no stationary law exists.
    """

    rate: float
    completions: Floats

    def __post_init__(self) -> None:
        if self.completions.ndim != 1 or not (self.completions > 0).all():
            raise InvalidArgumentError("completions must be one axis of rates > 0")
        if self.rate >= self.completions[-1]:
            raise UnsupportedError(
                f"rate {significant(self.rate)} requests per second is beyond the capacity, "
                f"{significant(float(self.completions[-1]))}: the queue grows for ever"
            )

    @property
    def cap(self) -> int:
        """The most requests in service."""
        return self.completions.size

    @cached_property
    def ratio(self) -> float:
        """P(one more waits) over P(so many wait)."""
        return float(self.rate / self.completions[-1])

    @cached_property
    def in_service(self) -> Floats:
        """P(n requests are in service), n = 0..cap, shape (cap + 1,); the last holds those states
        in which others wait, too.
        """
        with np.errstate(divide="ignore"):
            logs = np.concatenate([[0.0], np.cumsum(np.log(self.rate / self.completions))])
        weights = np.exp(logs - logs.max())
        weights[-1] /= 1.0 - self.ratio
        found: Floats = weights / weights.sum()
        return found

    @property
    def all_busy(self) -> float:
        """P(the cap is reached): by Poisson arrivals the share of requests that must wait."""
        return float(self.in_service[-1])

    @property
    def mean(self) -> float:
        """E[n] in service."""
        return float(self.in_service @ np.arange(self.cap + 1))

    @cached_property
    def seen_in_service(self) -> Floats:
        """P(n are in service, itself among them) over the time that a request is, n = 0..cap."""
        seen = self.in_service * np.arange(self.cap + 1)
        total = seen.sum()
        if total == 0.0:  # the limit of no load: it is alone
            seen[1], total = 1.0, 1.0
        found: Floats = seen / total
        return found
