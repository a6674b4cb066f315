"""When requests arrive: renewal processes, rates that change over time, and a closed loop.

An open process draws its intervals at one request a second and stretches them to its rate, so that
with the same random stream another rate sees the same pattern (common random numbers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, integer, number, numbers

# Beyond this many requests per second and below one in as many seconds nobody serves.
_FASTEST = 1e9


@runtime_checkable
class Arrivals(Protocol):
    """An open process: requests come whether or not earlier ones are done."""

    def times(self, count: int, random: np.random.Generator) -> Floats:
        """(count,) seconds of the arrivals, rising."""
        ...


def check_rate(name: str, rate: float) -> float:
    """Requests per second, above 0."""
    if number(name, rate, high=_FASTEST) <= 0:
        raise InvalidArgumentError(f"{name} must be > 0 requests per second, got {rate:g}")
    return number(name, rate, low=1.0 / _FASTEST)


@dataclass(frozen=True)
class PoissonArrivals:
    """Independent exponential intervals.

    rate : requests per second
    """

    rate: float

    def __post_init__(self) -> None:
        check_rate("rate", self.rate)

    def times(self, count: int, random: np.random.Generator) -> Floats:
        return np.cumsum(random.standard_exponential(count)) / self.rate


@dataclass(frozen=True)
class GammaArrivals:
    """Independent intervals of a gamma law, as ``vllm bench serve --burstiness`` draws them.

    Their shape is ``burstiness`` and their mean 1 / rate, so their coefficient of variation is
    burstiness**-0.5: 1 is a Poisson process, below it requests come in bursts, above it they are
    more even.

    rate : requests per second
    burstiness : > 0
    """

    rate: float
    burstiness: float

    def __post_init__(self) -> None:
        check_rate("rate", self.rate)
        number("burstiness", self.burstiness, low=1e-3, high=1e6)

    def times(self, count: int, random: np.random.Generator) -> Floats:
        unit = random.standard_gamma(self.burstiness, count) / self.burstiness
        return np.cumsum(unit) / self.rate


@dataclass(frozen=True)
class ConstantArrivals:
    """Equal intervals; the first request comes after one of them.

    rate : requests per second
    """

    rate: float

    def __post_init__(self) -> None:
        check_rate("rate", self.rate)

    def times(self, count: int, random: np.random.Generator) -> Floats:
        return np.arange(1.0, count + 1.0) / self.rate


@dataclass(frozen=True)
class ScheduledArrivals:
    """A Poisson process whose rate is constant from each of some times to the next.

    Arrivals are those of rate 1, read off at the times where the integral of the rate reaches them.

    starts_s : (P,) seconds, rising from 0
    rates : (P,) requests per second from there on, >= 0; the last is above 0 and holds for ever
    """

    starts_s: tuple[float, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        starts = numbers("starts_s", self.starts_s, low=0.0)
        rates = numbers("rates", self.rates, low=0.0, high=_FASTEST)
        if starts.ndim != 1 or starts.shape != rates.shape:
            raise InvalidArgumentError(
                f"rates must be as many as starts_s, {starts.size}, got {rates.size}"
            )
        if starts[0] != 0 or (np.diff(starts) <= 0).any():
            raise InvalidArgumentError(
                f"starts_s must rise from 0, got {', '.join(f'{each:g}' for each in starts)}"
            )
        check_rate("the last of rates", float(rates[-1]))

    def times(self, count: int, random: np.random.Generator) -> Floats:
        starts, rates = np.asarray(self.starts_s), np.asarray(self.rates)
        reached = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(starts))])
        unit = np.cumsum(random.standard_exponential(count))
        # The last piece that begins before an arrival has a rate above 0, or none would come in it.
        piece = np.searchsorted(reached, unit, side="left") - 1
        times: Floats = starts[piece] + (unit - reached[piece]) / rates[piece]
        return times


@dataclass(frozen=True)
class ClosedLoop:
    """A fixed number of requests at any time: one that is done is followed by the next at once.

    The serving itself decides when that is (``vllm bench serve --max-concurrency``).

    concurrency : requests at any time, >= 1
    """

    concurrency: int

    def __post_init__(self) -> None:
        integer("concurrency", self.concurrency, low=1)
