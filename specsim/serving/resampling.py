"""How sure a percentile of one run is: batches of consecutive requests, drawn with replacement.

Requests that come one after another see the same queue and are no independent sample, but batches
of them nearly are.  A block bootstrap draws as many batches as there are, again and again, and
takes the percentile of all their requests each time (Kuensch 1989, blocks that do not overlap).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from specsim.checks import Floats, Ints
from specsim.intervals import normal_quantile, t_quantile

# Of a batch, in mean stays of a request, for about as long as which a queue is remembered: shorter
# ones are alike, and intervals over them too narrow (tests/specsim/serving/test_metrics.py).
STAYS_OF_BATCH = 2
_DRAWS = 1000
# Values are told apart in so many steps of equal shares, far finer than the interval is wide.
_STEPS = 4000


def batch_count(span_s: float, stay_s: float, least: int, most: int) -> int:
    """How many batches of requests that come within ``span_s``, of which one stays ``stay_s``: as
    many as are two stays long, but ``least`` of them in any case and no more than ``most``; 0 where
    not even the least are possible.
    """
    if most < least:
        return 0
    wanted = int(span_s / (STAYS_OF_BATCH * stay_s)) if stay_s > 0 else most
    return min(max(wanted, least), most)


def percentile_ends(
    values: Floats, batch: Ints, batches: int, shares: Sequence[float]
) -> list[tuple[float, float]]:
    """The 95 % interval of each percentile, given as a share in [0, 1].

    Few batches drawn again differ too little, and how much they differ is known from themselves
    alone: distances from the percentile of all values are widened as Student's interval is.

    values : (V,) >= 0
    batch : (V,) the batch that each belongs to, below ``batches``, which are at least two
    """
    if not values.size:
        return [(float("nan"), float("nan"))] * len(shares)
    wider = t_quantile(0.95, batches - 1) / normal_quantile(0.95)
    wider *= sqrt(batches / (batches - 1))
    found = []
    every = np.quantile(values, shares).tolist()
    for drawn, middle in zip(percentile_draws(values, batch, batches, shares), every, strict=True):
        low, high = (middle + wider * (np.quantile(drawn, [0.025, 0.975]) - middle)).tolist()
        found.append((max(low, 0.0), high))
    return found


def percentile_draws(
    values: Floats, batch: Ints, batches: int, shares: Sequence[float]
) -> list[Floats]:
    """Of each percentile its value in every draw, (1000,); the draws are the same for any values,
    at least one, in as many batches.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    steps = min(values.size, _STEPS)
    ends = np.ceil(np.arange(1, steps + 1) * values.size / steps).astype(np.int64)
    step = np.searchsorted(ends, np.arange(values.size), side="right")
    counts = np.bincount(batch[order] * steps + step, minlength=batches * steps)
    # (steps, batches): how many values of each batch are at most the last of each step
    reached = np.cumsum(counts.reshape(batches, steps), axis=1).T.astype(np.float64)
    drawn = np.random.default_rng(0).multinomial(
        batches, np.full(batches, 1.0 / batches), size=_DRAWS
    )
    times = drawn.astype(np.float64)
    return [ordered[ends[_first_step(reached, times, share)] - 1] for share in shares]


def _first_step(reached: Floats, times: Floats, share: float) -> Ints:
    """The first step that holds the share of a draw's values, (D,): found by halving, so that
    only a few steps of each draw are added up.

    reached : (S, B) values of each batch that are at most the last of a step
    times : (D, B) how often a draw has each batch; all sums are whole numbers, and exact
    """
    wanted = share * (times @ reached[-1])
    low, high = np.zeros(len(times), dtype=np.int64), np.full(len(times), len(reached) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        enough = np.einsum("db,db->d", reached[middle], times) >= wanted
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return low
