"""The load at which speculation stops paying, and what binds there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specsim.serving.analytic.replica import Replica

# Rates that are looked at before bisection, as shares of the capacity.
_SHARES = np.linspace(0.02, 0.999, 24)


@dataclass(frozen=True)
class Crossing:
    """Where one way of drafting stops, or begins, to be faster than another on the same cards.

    rate : requests per second of one replica; 0: it is faster at no rate
    batch : requests that decode there, in the mean
    """

    rate: float
    batch: float


def crossing(drafting: Replica, plain: Replica, factor: float = 1.0) -> Crossing | None:
    """Where the mean TPOT of ``drafting`` grows beyond ``factor`` times that of ``plain`` for good,
    or its capacity ends before that of ``plain``; None where neither happens below both capacities.
    """
    gains, rates = _gains(drafting, plain, factor)
    gained = [rate for rate in rates if gains(rate)]
    if not gained:
        return Crossing(0.0, 0.0)
    if gained[-1] < rates[-1]:
        rate = _bisect(gains, gained[-1], rates[rates.index(gained[-1]) + 1])
        return Crossing(rate, drafting.shared(rate).mean)
    if drafting.capacity < plain.capacity:
        return Crossing(drafting.capacity, float(drafting.times.cap))
    return None


def gains_from(drafting: Replica, plain: Replica, factor: float = 1.0) -> Crossing | None:
    """Where the mean TPOT of ``drafting`` first falls below ``factor`` times that of ``plain``;
    None: it is at any low rate.  Experts do that, of which a round of few requests loads several
    times as many as their plain step, and that of many requests loads no more.
    """
    gains, rates = _gains(drafting, plain, factor)
    first = next((at for at, rate in enumerate(rates) if gains(rate)), None)
    if first == 0:
        return None
    if first is None:
        return Crossing(0.0, 0.0)
    rate = _bisect(lambda rate: not gains(rate), rates[first - 1], rates[first])
    return Crossing(rate, drafting.shared(rate).mean)


def _gains(
    drafting: Replica, plain: Replica, factor: float
) -> tuple[Callable[[float], bool], list[float]]:
    """Whether drafts gain at a rate, and the rates that are looked at first."""

    def gains(rate: float) -> bool:
        return drafting.mean_tpot_s(rate) < factor * plain.mean_tpot_s(rate)

    return gains, (_SHARES * min(drafting.capacity, plain.capacity)).tolist()


def binds_at(
    drafting: Replica, plain: Replica, found: Crossing, graph_tokens: int | None
) -> str | None:
    """What keeps drafts from paying there, where it is a limit of the engine: "cache", "sequences"
    or "budget", at which requests wait that plain decoding would serve; "graph", where the largest
    CUDA graph holds a plain step and not one with drafts; None where it is what a round costs.
    """
    rate = min(found.rate, drafting.capacity * 0.999)
    if rate > 0:
        busy = drafting.shared(rate).all_busy
        if busy > 0.05 and plain.shared(min(rate, plain.capacity * 0.999)).all_busy < busy / 2:
            return drafting.binds
    count = max(round(found.batch), 1)
    gamma = int(drafting.gammas[min(count, drafting.gammas.size - 1)])
    if graph_tokens is not None and count <= graph_tokens < count * (1 + gamma):
        return "graph"
    return None


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where it ends, between two rates of which it holds at the first."""
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
