"""The load at which speculation stops paying, and what binds there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from specsim.serving.analytic.replica import Replica

# Rates that are looked at before bisection, as shares of the capacity.
_SHARES = np.linspace(0.02, 0.999, 24)


@dataclass(frozen=True)
class Crossing:
    """Where one way of drafting stops being faster than another, both on the same cards.

    rate : requests per second of one replica from which on it is no faster; 0: at no rate
    batch : requests that decode there, in the mean
    """

    rate: float
    batch: float


def crossing(drafting: Replica, plain: Replica, factor: float = 1.0) -> Crossing | None:
    """Where the mean TPOT of ``drafting`` grows beyond ``factor`` times that of ``plain``, or its
    capacity ends before that of ``plain``; None where neither happens below both capacities.
    """
    ends = drafting.capacity, plain.capacity
    least = min(ends)

    def gains(rate: float) -> bool:
        return drafting.mean_tpot_s(rate) < factor * plain.mean_tpot_s(rate)

    rates = _SHARES * least
    if not gains(rates[0]):
        return Crossing(0.0, 0.0)
    for before, after in pairwise(rates.tolist()):
        if not gains(after):
            rate = _bisect(gains, before, after)
            return Crossing(rate, drafting.shared(rate).mean)
    if ends[0] < ends[1]:
        return Crossing(ends[0], float(drafting.times.cap))
    return None


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
