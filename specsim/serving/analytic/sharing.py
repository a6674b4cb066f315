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

    @property
    def mean_waiting(self) -> float:
        """E of those that wait."""
        return self.all_busy * self.ratio / (1.0 - self.ratio)

    @property
    def mean_wait_s(self) -> float:
        """Seconds of waiting, over all requests (Little)."""
        return self.mean_waiting / self.rate

    @cached_property
    def seen_in_service(self) -> Floats:
        """P(n are in service, itself among them) over the time that a request is, n = 0..cap."""
        seen = self.in_service * np.arange(self.cap + 1)
        total = seen.sum()
        if total == 0.0:  # the limit of no load: it is alone
            seen[1], total = 1.0, 1.0
        found: Floats = seen / total
        return found


def fixed_point(rate: float, completions: Floats) -> float:
    """The smallest n at which as many complete as arrive, with straight lines between whole n.

    completions : c(n) at n = 1..cap; c(0) = 0
    inf where more arrive than complete at any n.
    """
    reached = np.flatnonzero(completions >= rate)
    if not reached.size:
        return float("inf")
    above = int(reached[0])
    low = completions[above - 1] if above else 0.0
    return float(above + (rate - low) / (completions[above] - low))


def closed_loop(concurrency: int, completions: Floats, other_s: float) -> float:
    """Requests per second of a closed loop, of whose ``concurrency`` requests at the rate X as many
    as X other_s are elsewhere (read, waited for).

    With other_s = 0 it is c(concurrency), at most c(cap): C requests of mu tokens a step of
    tau(C) seconds give C mu / tau(C) tokens per second.
    """
    # n in service complete at c(n), and C - n = c(n) other_s are elsewhere.
    counts = np.arange(1, completions.size + 1)
    left = concurrency - counts - completions * other_s
    if left[0] <= 0:  # fewer than one in service: it is there for a part of the time
        return float(concurrency / (1.0 / completions[0] + other_s))
    if left[-1] >= 0:
        return float(completions[-1])
    above = int(np.flatnonzero(left < 0)[0])
    share = left[above - 1] / (left[above - 1] - left[above])
    return float(completions[above - 1] + share * (completions[above] - completions[above - 1]))
