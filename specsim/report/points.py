"""Points of pictures that take working out, whoever draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specsim.serving.metrics import counted_requests

if TYPE_CHECKING:
    from specsim.api.plan_result import Answer, CapacityPlan
    from specsim.api.serving_result import Serving
    from specsim.checks import Floats

# Rates of a curve, as shares of the capacity of a replica.
_SHARES = np.linspace(0.05, 0.95, 16)


def frontier(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The points that no other is to the right of and above, from left to right."""
    order = np.lexsort((-y, -x))
    x, y = x[order], y[order]
    best = np.maximum.accumulate(y)
    kept = np.append(True, best[1:] > best[:-1])
    return x[kept][::-1], y[kept][::-1]


def speeds(found: CapacityPlan, speculates: bool) -> tuple[Floats, Floats] | None:
    """Tokens per second of a user, and of a card, of all set-ups of one kind at rising rates; None
    where there are none.
    """
    users, cards = [], []
    # Every set-up once, whatever numbers of replicas were simulated.
    for answer in {id(each.planned): each for each in found.answers}.values():
        if answer.planned.speculates == speculates:
            replica = answer.planned.replica
            rates = _SHARES * replica.capacity
            users.append(np.array([1.0 / replica.mean_tpot_s(rate) for rate in rates.tolist()]))
            cards.append(rates * replica.offered.mean_output / answer.planned.cards)
    return (np.concatenate(users), np.concatenate(cards)) if users else None


def latency_by_rate(found: CapacityPlan, answer: Answer, name: str) -> tuple[Floats, Floats]:
    """Rates of all replicas, and the latency of that name there in seconds (analytic)."""
    replica = answer.planned.replica
    rates = _SHARES * replica.capacity
    values = [replica.at(rate, found.levels).figures[name] for rate in rates.tolist()]
    return max(answer.replicas, 1) * rates, np.array(values)


def sampled(found: Serving, columns: tuple[str, ...], count: int) -> tuple[Floats, list[Floats]]:
    """Columns of the steps over time, summed over the replicas; 0 where a replica has no work."""
    logs = [each.steps for each in found.served.runs if each.steps is not None]
    begin = min(float(each.start_s[0]) for each in logs)
    end = max(float(each.end_s[-1]) for each in logs)
    times = np.linspace(begin, end, count)
    sums = [np.zeros(times.size) for _ in columns]
    for each in logs:
        at = np.searchsorted(each.start_s, times, side="right") - 1
        busy = (at >= 0) & (times <= each.end_s[at])
        for total, name in zip(sums, columns, strict=True):
            total += np.where(busy, getattr(each, name)[at], 0)
    return times, sums


def step_parts(found: Serving) -> list[tuple[str, int, dict[str, float]]]:
    """Mean seconds of a step by the requests in it: which they are, how many steps, and what each
    part takes; of the host's work what the device waited for, so that parts add up to the step.
    """
    logs = [each.steps for each in found.served.runs if each.steps is not None]
    parts = [name for name in logs[0].parts if name != "host"]
    seconds = {name: np.concatenate([each.parts[name] for each in logs]) for name in parts}
    if "host" in logs[0].parts:
        waited = np.concatenate([each.seconds for each in logs]) - sum(seconds.values())
        seconds["host"] = np.maximum(waited, 0.0)  # below by rounding alone
    requests = np.concatenate([each.sequences for each in logs])
    # 1, 2-3, 4-7, ...
    range_of = np.frexp(np.maximum(requests, 1))[1] - 1
    means = []
    for number in np.unique(range_of).tolist():
        of_these = range_of == number
        first, last = 2**number, min(2 ** (number + 1) - 1, int(requests.max()))
        title = str(first) if first == last else f"{first}\u2013{last}"
        share = {name: float(values[of_these].mean()) for name, values in seconds.items()}
        means.append((title, int(of_these.sum()), share))
    return means


def cache_blocks(found: Serving) -> int:
    """Blocks of the caches of all replicas that worked."""
    blocks = found.setup.engine.settings(found.setup.drafts).blocks
    return blocks * len(found.served.runs)


def preempted_at(found: Serving) -> list[float]:
    """When requests were preempted, in seconds."""
    logs = [each.steps for each in found.served.runs if each.steps is not None]
    return [at for each in logs for at in each.start_s[each.preempted > 0].tolist()]


def latency_values(found: Serving, name: str) -> Floats:
    """Of all requests that count, rising; those that have none are left out."""
    times = found.served.times
    values = np.sort(times.latency(name, counted_requests(times, found.warmup)))
    known: Floats = values[values > 0]
    return known


def thinned(values: Floats, count: int) -> Floats:
    """So many of sorted values at most, the first and the last among them."""
    if values.size <= count:
        return values
    return values[np.linspace(0, values.size - 1, count).astype(np.int64)]
