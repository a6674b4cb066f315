"""Speedups of decoding schemes, predicted and measured, each with the interval that it leaves open.

Predicted: run times are drawn from the requests beside which they were sampled (a request with all
its samples is a pass), the host's share from the short decodings, and above temperature 0 the
requests whose texts were recorded are drawn again.  At temperature 0 their texts are known.

Measured: by the jackknife over requests (Quenouille 1956), of logarithms, and of measured over
expected where the texts are known, since how requests differ then is no error.  A handful of
requests says little of its own spread, so none counts as less than that of all settings.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from calibrate.measure.model_set_timing import ModelSetTimes
from calibrate.validate.interleave import PLAIN, Interleaved
from calibrate.validate.predict import Predicted
from specsim.checks import Floats
from specsim.hardware.repeats import PassDraws, Repeats
from specsim.intervals import Bootstrap, Interval, around, t_quantile
from specsim.laws import TARGET
from specsim.predict.measured import RunTimes
from specsim.predict.replay.run_counts import RunKind

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class SchemeSpeedup:
    """Plain over this time a token.

    plain_s, fast_s : the expected seconds of each request that it is of, shape (R,) each
    """

    speedup: Interval[float]
    plain_s: Floats
    fast_s: Floats


def predicted_speedups(
    predicted: Mapping[Name, Predicted],
    known: Collection[Name],
    times: ModelSetTimes,
    context: float,
    plain_share: Sequence[float],
) -> dict[Name, SchemeSpeedup]:
    """By setting.

    known : settings whose requests write the very texts that the prediction is of
    context : mean tokens in the cache
    plain_share : host seconds over those of the runs, of each short plain decoding
    """
    found = {}
    for name, each in predicted.items():
        shares = [_share(some, seed) for seed, some in enumerate((plain_share, each.host_share))]
        best = _seconds(each, times.best, context, *(share for share, _ in shares))
        drawn = _seconds(each, times.drawn, context, *(share for _, share in shares))
        plain_s, fast_s = (seconds.sum(axis=0) for seconds in drawn)
        speedups = plain_s / fast_s
        if name not in known:
            bootstrap = Bootstrap(each.tokens.size)
            count = np.array(
                [np.bincount(some, minlength=bootstrap.units) for some in bootstrap.drawn]
            )
            plain_s, fast_s = ((count.T * seconds).sum(axis=0) for seconds in drawn)
            speedups = speedups * (plain_s / fast_s / speedups) ** bootstrap.wider
        speedup = around(float(best[0].sum() / best[1].sum()), speedups)
        found[name] = SchemeSpeedup(speedup, *best)
    return found


def _seconds(
    predicted: Predicted,
    tables: Mapping[RunKind, RunTimes],
    context: float,
    plain_share: float | Floats,
    share: float | Floats,
) -> tuple[Floats, Floats]:
    """Of each request, decoded plainly and with the scheme; (R,) each, or (R, D) of draws."""
    level, slope = tables[RunKind(TARGET, after_other_model=False)].line(1)
    plainly = np.multiply.outer(predicted.tokens, (level + context * slope) * (1 + plain_share))
    return plainly, predicted.run_seconds(tables, context) * (1 + share)


def measured_speedups(
    turns: Interleaved,
    predicted: Mapping[Name, SchemeSpeedup],
    known: Collection[Name],
) -> dict[Name, Interval[float]]:
    """The same as it was decoded, with 95 % intervals, of two requests at least."""
    found = {
        name: _log_speedup(turns, name, each if name in known else None)
        for name, each in predicted.items()
    }
    usual = np.sqrt(np.mean([error**2 for _, error in found.values()]))
    quantile = t_quantile(0.95, len(turns.decoded[PLAIN]) - 1)
    intervals = {}
    for name, (log, error) in found.items():
        reach = quantile * max(error, usual)
        intervals[name] = Interval(*np.exp([log - reach, log, log + reach]).tolist())
    return intervals


def _log_speedup(
    turns: Interleaved, name: Hashable, expected: SchemeSpeedup | None
) -> tuple[float, float]:
    """The logarithm of the measured speedup, and its standard error."""
    over = [turns.seconds(PLAIN), turns.lengths(name)]
    under = [turns.lengths(PLAIN), turns.seconds(name)]

    def log(above: Sequence[Floats], below: Sequence[Floats]) -> Floats:
        """Of the totals with each request left out in turn, shape (R,)."""
        logs = [sum(np.log(each.sum() - each) for each in some) for some in (above, below)]
        return np.asarray(logs[0] - logs[1])

    total = sum(np.log(each.sum()) for each in over) - sum(np.log(each.sum()) for each in under)
    without = log(over, under)
    if expected is not None:
        without -= log([expected.plain_s], [expected.fast_s])
    size = without.size
    return float(total), float(np.sqrt((size - 1) * without.var()))


def _share(repeats: Sequence[float], seed: int) -> tuple[float, Floats]:
    """The mean, and what the repeats leave open of it, shape (D,)."""
    numbers = range(len(repeats))
    found = Repeats.of(repeats, numbers)
    off = found.drawn(PassDraws(tuple(numbers), seed + 1))
    return found.mean, np.maximum(found.mean + off, 0.0)
