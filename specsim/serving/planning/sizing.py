"""How many replicas a workload needs, and how much each can do within its levels (analytic)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np

from specsim.checks import Floats
from specsim.engines.ranges import fewest_ranges
from specsim.engines.schedule import Schedule
from specsim.serving.analytic.replica import Replica
from specsim.serving.levels import ServiceLevel

# The highest rate is known to such a share of itself.
_PRECISION = 4e-3


def slack(figures: Mapping[str, float], levels: Sequence[ServiceLevel]) -> float:
    """The largest figure over its limit, of the levels that are of a statistic: at most 1 where all
    are met; 0 where there are none.  A latency that no request has meets its level.
    """
    shares = [figures[each.name] / each.limit_s for each in levels if each.statistic]
    return max((share for share in shares if share == share), default=0.0)


def sustained(replica: Replica, levels: Sequence[ServiceLevel]) -> float:
    """The highest rate of one replica, requests per second, at which the levels are met; 0 where
    they are not met even by a request alone.
    """

    def meets(rate: float) -> bool:
        return slack(replica.at(rate, levels).figures, levels) <= 1.0

    high = replica.capacity * (1.0 - 1e-6)
    if not np.isfinite(high):
        high = 1e9
    if meets(high):
        return high
    low = 1e-6 * high
    if not meets(low):
        return 0.0
    # By factors while it is far, then by halves.
    while high - low > _PRECISION * high:
        middle = (low * high) ** 0.5 if high > 4 * low else (low + high) / 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def replicas_needed(rate: float, each: float) -> int:
    """Replicas of which each takes ``each`` requests per second."""
    return max(1, ceil(rate / each - 1e-9))


def best_schedule(replicas: Mapping[int, Replica], margin: float) -> Schedule:
    """The draft length that emits most tokens per second at every number of requests in a step, by
    as few ranges as lose none of them more than a fifth of the margin.

    replicas : by fixed draft length, of one drafter; 0 with the drafter loaded and idle
    margin : what drafts must gain over none
    """
    gammas = sorted(replicas)
    cap = min(replicas[gamma].times.cap for gamma in gammas)
    speeds = np.array([_tokens_per_s(replicas[gamma], gamma)[:cap] for gamma in gammas])
    gains = (speeds / speeds[0]).T
    chosen = fewest_ranges(gains.tolist(), margin, 0.2 * margin)
    found: Schedule = []
    for at, index in enumerate(chosen, start=1):
        gamma = gammas[index]
        if found and found[-1][2] == gamma:
            found[-1] = (found[-1][0], at, gamma)
        else:
            found.append((at, at, gamma))
    return found


def _tokens_per_s(replica: Replica, gamma: int) -> Floats:
    """Of one request among n = 1..cap, with no prompts to read, shape (cap,)."""
    found: Floats = replica.laws(gamma).tokens_per_call / replica.times.decode_s
    return found
