"""What users see of a replica at a rate: latencies and their percentiles, by a sample of requests.

The sample is not random: points of a low-discrepancy sequence stand for the lengths of a request,
the rounds that it takes, the state that it meets and what comes while it is served, so that the
same question has the same answer and percentiles of neighbours differ smoothly.

TPOT: a request takes J(m) rounds among n others, n by the law that a request in service sees, and
while it stays, the prompts of a Poisson number of others are read, long and short ones.  Over a
long stay n moves about its mean; with the time 1 / nu in which it forgets where it was and x = nu
times the stay, the variance of its mean over the stay is 2 (x - 1 + exp(-x)) / x^2 of that of n.

TTFT: the rest of the step that is running, waiting for a place among the ``cap``, waiting for
prompts that are read before, the step that reads its own, and what passes outside of the engine.
Where nothing is running the host's time before that step is hidden behind nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from specsim.checks import Floats, Ints
from specsim.serving.analytic.sharing import Shared
from specsim.serving.levels import ServiceLevel, request_limits
from specsim.serving.metrics import STATISTICS, Figures

if TYPE_CHECKING:
    from specsim.serving.analytic.replica import Replica

_POINTS = 2048
# Poisson numbers of so small a mean are counted up.
_FEW = 12
# Shares of load, of requests and of time from which on the limits of the theory matter.
_LOADED, _OFTEN, _READING = 0.9, 0.05, 0.3
# Seconds of steps that would never end, so that what is met next to never has a number.
_NEVER_S = 1e9


@dataclass(frozen=True, eq=False)
class Estimate:
    """What users see, and how far to trust it.

    figures : by the names of a simulated run's (``ttft_p99``, ``output_tokens_per_s``), seconds
    load : the rate over the capacity
    batch : mean number of requests that decode
    batch_p99 : its 99th percentile
    step_s : mean seconds of a step that a request that decodes is in; nan where none does
    doubts : why it may not be used here, one line each; empty where it may
    """

    figures: Figures
    load: float
    batch: float
    batch_p99: float
    step_s: float
    doubts: tuple[str, ...]


def estimate_of(replica: Replica, rate: float, levels: Sequence[ServiceLevel]) -> Estimate:
    """At a rate below the capacity."""
    shared = replica.shared(rate)
    seconds = np.minimum(replica.step_s(rate), _NEVER_S)
    points = _points(_POINTS, 8)
    offered = replica.offered
    # Lengths of the sample, evenly by output.
    at = (np.arange(_POINTS) * offered.output_tokens.size) // _POINTS
    prompts, later = offered.prompt_tokens[at], offered.output_tokens[at] - 1
    tpot = _tpot_s(replica, shared, rate, seconds, later, points[:, :4])
    ttft = _ttft_s(replica, shared, rate, seconds, prompts, points[:, 4:])
    e2e = ttft + later * tpot
    decodes = bool(later.any())
    gaps = _gaps_s(replica, shared, rate, seconds, points) if decodes else np.empty(0)
    samples = {"ttft": ttft, "tpot": tpot[later > 0], "itl": gaps, "e2e": e2e}
    extra = tuple(each.statistic for each in levels if each.statistic)
    figures: Figures = {}
    for name, values in samples.items():
        figures |= _statistics(name, values, dict.fromkeys((*STATISTICS, *extra)))
    figures["output_tokens_per_s"] = rate * offered.mean_output
    figures["requests_per_s"] = rate
    if limits := request_limits(levels):
        kept = np.ones(_POINTS, dtype=bool)
        for name, limit in limits.items():
            kept &= {"ttft": ttft, "tpot": tpot, "e2e": e2e}[name] <= limit
        figures["good_share"] = float(kept.mean())
        figures["goodput"] = rate * figures["good_share"]
    total = np.cumsum(shared.in_service)
    return Estimate(
        figures=figures,
        load=rate / replica.capacity,
        batch=shared.mean,
        batch_p99=float(np.searchsorted(total, 0.99)),
        step_s=_mean_step_s(shared, seconds) if decodes else float("nan"),
        doubts=tuple(_doubts(replica, shared, rate)),
    )


@cache
def _points(count: int, dimensions: int) -> Floats:
    """Evenly spread points in the open unit cube (Roberts' sequence), shape (count, dimensions)."""
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    steps = (1.0 / root) ** np.arange(1, dimensions + 1)
    # In an order that has nothing to do with that of the lengths.
    order = np.random.default_rng(0).permutation(count) + 1.0
    found: Floats = np.clip((0.5 + order[:, None] * steps) % 1.0, 1e-9, 1.0 - 1e-9)
    return found


def _drawn(law: Floats, level: Floats) -> Ints:
    """The quantile of a law over 0, 1, ..."""
    return np.minimum(np.searchsorted(np.cumsum(law), level), law.size - 1)


def _mean_step_s(shared: Shared, seconds: Floats) -> float:
    """Seconds of a round that a request in service is in: 1 / E[1 / tau(n)]."""
    return 1.0 / float((shared.seen_in_service[1:] / seconds).sum())


def _tpot_s(
    replica: Replica, shared: Shared, rate: float, seconds: Floats, later: Ints, points: Floats
) -> Floats:
    """Seconds per token after the first, of every request of the sample; 0 where there is none."""
    if not later.any():  # all are done with their prompts, at once
        return np.zeros(later.size)
    counts = np.arange(1, shared.cap + 1)
    seen = shared.seen_in_service
    mean = float(seen @ np.arange(seen.size))
    n = _drawn(seen, points[:, 1]).astype(np.float64)
    gammas = replica.gammas[np.maximum(n.astype(np.int64), 1)]
    rounds = np.zeros(later.size)
    for gamma in np.unique(gammas).tolist():
        here = (gammas == gamma) & (later > 0)
        rounds[here] = replica.laws(gamma).quantile(later[here], points[here, 0])
    step = _mean_step_s(shared, seconds)
    x = np.maximum(_relaxation(replica, shared, rate) * rounds * step, 1e-9)
    share = np.where(x < 1e-4, 1.0 - x / 3.0, 2.0 * (x + np.expm1(-x)) / x**2)
    n = np.clip(mean + np.sqrt(share) * (n - mean), 1.0, shared.cap)
    alone = np.interp(n, counts, replica.times.decode_s)
    whole = np.interp(n, counts, seconds)
    came = rate * rounds * whole
    found = rounds * alone
    some = came > 0
    arrivals = np.zeros(later.size)
    arrivals[some] = _poisson(came[some], points[some, 2])
    each = (rounds * (whole - alone))[some] / came[some]
    found[some] += each * _sums(arrivals[some], replica.times.spread, points[some, 3])
    tokens = np.maximum(later, 1)
    has_some = later > 0
    tpot = np.where(has_some, found / tokens, 0.0)
    if has_some.any():
        tpot *= replica.mean_tpot_s(rate) / float(tpot[has_some].mean())
    return tpot


def _poisson(mean: Floats, level: Floats) -> Floats:
    """Quantiles of Poisson numbers; of means above 12 by the first two terms of Cornish and Fisher,
    within one of the exact ones but at their furthest ends.
    """
    from scipy.special import ndtri  # loads scipy

    z = ndtri(level)
    found: Floats = np.rint(np.maximum(mean + z * np.sqrt(mean) + (z**2 - 1.0) / 6.0, 0.0))
    few = mean <= _FEW
    term = np.exp(-mean[few])
    reached, counts = term.copy(), np.zeros(term.size)
    for k in range(1, 5 * _FEW):
        counts += reached < level[few]
        term = term * mean[few] / k
        reached = reached + term
    found[few] = counts
    return found


def _sums(counts: Floats, spread: Floats, level: Floats) -> Floats:
    """Quantiles of sums of so many independent numbers of mean 1, by the gamma law of their mean
    and variance.

    spread : the numbers that each may be, evenly
    """
    from scipy.special import gammaincinv  # loads scipy

    variance = float(spread.var())
    if variance < 1e-9:
        return counts
    found = np.zeros(counts.size)
    some = counts > 0
    found[some] = variance * gammaincinv(counts[some] / variance, level[some])
    return found


def _relaxation(replica: Replica, shared: Shared, rate: float) -> float:
    """nu, per second: how fast the number in service returns to its mean, the slope of c(n) where
    it mostly is.
    """
    law = shared.in_service
    counts = np.arange(law.size)
    deviation = max(float(np.sqrt(law @ (counts - shared.mean) ** 2)), 0.5)
    ends = np.clip([shared.mean - deviation, shared.mean + deviation], 0.0, shared.cap)
    speeds = np.interp(ends, counts, np.concatenate([[0.0], shared.completions]))
    return max(float((speeds[1] - speeds[0]) / max(ends[1] - ends[0], 1e-9)), 0.0)


def _ttft_s(
    replica: Replica, shared: Shared, rate: float, seconds: Floats, prompts: Ints, points: Floats
) -> Floats:
    """Seconds to the first token, of every request of the sample."""
    times = replica.times
    n = _drawn(shared.in_service, points[:, 0])
    busy = n > 0
    step = np.concatenate([[0.0], seconds])[n]
    alone = np.concatenate([[0.0], times.decode_s])[n]
    came = rate * step
    # The step that it comes into: long ones are met more often.  Prompts make a step longer by a
    # factor, with the chance of a step that reads some.
    some = -np.expm1(-came)
    longer = np.where(some > 0, (step - alone) / np.maximum(some, 1e-300), 0.0)
    met = np.where(step > 0, some * (alone + longer) / np.maximum(step, 1e-300), 0.0)
    running = np.where(points[:, 1] < met, alone + longer, alone)
    wait = np.where(busy, points[:, 2] * running, 0.0)
    if replica.late:
        wait += np.where(busy, step, 0.0)
    # Others that came into the same step are read with it.
    others = rate * running * points[:, 2]
    rows = np.interp(n, times.counts, np.arange(times.counts.size))
    near = np.rint(rows).astype(np.int64)
    own = np.empty(prompts.size)
    for row in np.unique(near).tolist():
        here = near == row
        with_others = prompts[here] + others[here] * replica.offered.mean_prompt
        own[here] = times.reading_s(row, with_others.astype(np.float64))
        # A prompt longer than the room in a step is read in several, with the decodes' own time.
        further = np.ceil(with_others / times.budget[row]) - 1.0
        if not times.stops_decodes:
            own[here] += np.maximum(further, 0.0) * alone[here]
    own[~busy] += times.idle_s
    first = own + (0.0 if times.stops_decodes else alone)
    wait += _behind_prompts_s(replica, rate, shared.mean, points[:, 3])
    # For a place among those in service.
    leaving = shared.completions[-1] - rate
    bursts = (1.0 + replica.offered.interval_cv**2) / 2
    if shared.all_busy > 0 and np.isfinite(leaving):
        waits = points[:, 0] > 1.0 - shared.all_busy
        level = (1.0 - points[waits, 0]) / shared.all_busy
        wait[waits] += -bursts * np.log(np.clip(level, 1e-12, 1.0)) / leaving
    # Nobody decodes in a step of prompts, and a place is one's own.
    beside = 0.0 if times.stops_decodes else np.minimum(n, times.cap - 1)
    # All that come while one step runs have their first tokens in the next.
    together = np.where(busy, np.minimum(rate * running, times.cap - 1), 0.0)
    found: Floats = wait + first + replica.frontend_s
    found += replica.frontend_decode_s * beside + replica.frontend_prompt_s * together
    return found


def _behind_prompts_s(replica: Replica, rate: float, batch: float, level: Floats) -> Floats:
    """Seconds of waiting until the prompts that came before are read, where a step has no room for
    all of them: that of a queue whose service is a prompt's share of full steps (Pollaczek and
    Khinchine), exponential where there is any.
    """
    times = replica.times
    row = int(np.argmin(np.abs(times.counts - batch)))
    budget = times.budget[row]
    counts = np.arange(1, times.cap + 1)
    decode = 0.0 if times.stops_decodes else float(np.interp(batch, counts, times.decode_s))
    full = decode + float(times.reading_s(row, np.array([budget]))[0])
    service = times.prompts / budget * full
    busy = min(rate * float(service.mean()), 0.999)
    bursts = (1.0 + replica.offered.interval_cv**2) / 2
    mean = bursts * rate * float((service**2).mean()) / (2 * (1.0 - busy))
    if busy <= 0.0:
        return np.zeros(level.size)
    some = level > 1.0 - busy
    found = np.zeros(level.size)
    found[some] = -np.log((1.0 - level[some]) / busy) * mean / busy
    return found


def _gaps_s(
    replica: Replica, shared: Shared, rate: float, seconds: Floats, points: Floats
) -> Floats:
    """Seconds between chunks of tokens: of the steps that a request in service is in."""
    # By the number of rounds, not by time: states whose steps are short are seen more often.
    seen = shared.seen_in_service[1:] / seconds
    n = _drawn(seen / seen.sum(), points[:, 0])
    alone, whole = replica.times.decode_s[n], seconds[n]
    some = -np.expm1(-rate * whole)
    longer = np.where(some > 0, (whole - alone) / np.maximum(some, 1e-300), 0.0)
    spread = replica.times.spread
    size = spread[(points[:, 2] * spread.size).astype(np.int64)]
    return np.where(points[:, 1] < some, alone + longer * size, alone)


def _statistics(name: str, values: Floats, statistics: Iterable[str]) -> Figures:
    """As ``specsim.serving.metrics`` names them, all percentiles at once."""
    ranks = [each for each in statistics if each != "mean"]
    if not values.size:
        return dict.fromkeys([f"{name}_{each}" for each in ("mean", *ranks)], float("nan"))
    at = np.percentile(values, [float(each[1:]) for each in ranks]).tolist()
    found = {f"{name}_{each}": value for each, value in zip(ranks, at, strict=True)}
    return {f"{name}_mean": float(values.mean()), **found}


def _doubts(replica: Replica, shared: Shared, rate: float) -> list[str]:
    """Why the estimate may not be used."""
    found = []
    if (load := rate / replica.capacity) > _LOADED:
        found.append(
            f"at {100 * load:.0f}% of the capacity: beyond {100 * _LOADED:.0f}% waiting depends on "
            "more than means"
        )
    if shared.all_busy > _OFTEN:
        limit = {"cache": "the KV cache is full", "budget": "the token budget is used up"}
        what = limit.get(replica.binds, "all sequences are in use")
        again = ", so that some are preempted" if replica.binds == "cache" else ""
        found.append(f"{what} {100 * shared.all_busy:.0f}% of the time, and requests wait{again}")
    seconds = replica.step_s(rate)
    reading = 1.0 - float((shared.seen_in_service[1:] * replica.times.decode_s / seconds).sum())
    if reading > _READING:
        found.append(
            f"prompts take {100 * reading:.0f}% of the time: steps that read them come one after "
            "another, and requests meet more of them than in the mean"
        )
    if abs(replica.offered.interval_cv - 1.0) > 0.25:
        found.append(
            f"arrivals have a coefficient of variation of {replica.offered.interval_cv:.3g}, and "
            "the law of the batch is that of Poisson arrivals, 1"
        )
    if replica.offered.shared > 0:
        found.append(
            f"prompts share {100 * replica.offered.shared:.0f}% of their tokens, and every prompt "
            "is taken to be read whole"
        )
    if replica.cuts_prompts:
        found.append(
            "long_prefill_token_threshold cuts prompts, and each is taken to be read as far as its "
            "step has room"
        )
    return found
