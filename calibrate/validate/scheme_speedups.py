"""Speedups of decoding schemes, predicted and measured, each with the interval that it leaves open.

Predicted: what runs take, and the host beside them, is drawn from the requests that were timed (a
request with all settings is a pass), and above temperature 0 the requests whose texts were recorded
are drawn again.  At temperature 0 their texts are known.  Those that were timed are of the same
prompts: what prompts differ by is in both intervals, and together they are wider than they must be.

Measured: by the jackknife over requests (Quenouille 1956), of logarithms, and of measured over
expected where the texts are known, since how requests differ then is no error.  A handful of
requests says little of its own spread, so none counts as less than that of all settings.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from calibrate.validate.interleave import PLAIN, Interleaved
from calibrate.validate.predict import Predicted
from calibrate.validate.scheme_costs import SettingCost
from specsim.checks import Floats
from specsim.hardware.repeats import PassDraws
from specsim.intervals import Bootstrap, Interval, around, t_quantile

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class SchemeSpeedup:
    """Plain over this time a token.

    plain, fast : what each request that it is of is expected to take, in runs of plain decoding,
        shape (R,) each
    """

    speedup: Interval[float]
    plain: Floats
    fast: Floats


def predicted_speedups(
    predicted: Mapping[Name, Predicted],
    known: Collection[Name],
    costs: Mapping[Hashable, SettingCost],
) -> dict[Name, SchemeSpeedup]:
    """By setting.

    known : settings whose requests write the very texts that the prediction is of
    costs : of these settings and of plain decoding
    """
    draws = PassDraws(tuple(costs[PLAIN].host.passes.tolist()))
    found = {}
    for name, each in predicted.items():
        best = _spent(each, costs[PLAIN], costs[name])
        drawn = _spent(each, costs[PLAIN], costs[name], draws)
        plain, fast = (spent.sum(axis=0) for spent in drawn)
        speedups = plain / fast
        if name not in known:
            bootstrap = Bootstrap(each.tokens.size)
            count = np.array(
                [np.bincount(some, minlength=bootstrap.units) for some in bootstrap.drawn]
            )
            plain, fast = ((count.T * spent).sum(axis=0) for spent in drawn)
            speedups = speedups * (plain / fast / speedups) ** bootstrap.wider
        speedup = around(float(best[0].sum() / best[1].sum()), speedups)
        found[name] = SchemeSpeedup(speedup, *best)
    return found


def _spent(
    predicted: Predicted, plain: SettingCost, cost: SettingCost, draws: PassDraws | None = None
) -> tuple[Floats, Floats]:
    """Runs of plain decoding that each request is worth, decoded plainly and with the scheme; (R,)
    each, or (R, D) of draws.
    """
    plainly = np.multiply.outer(predicted.tokens, 1 + plain.host_share(draws))
    return plainly, cost.spent([each.runs for each in predicted.expected], draws)


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
        without -= log([expected.plain], [expected.fast])
    size = without.size
    return float(total), float(np.sqrt((size - 1) * without.var()))
