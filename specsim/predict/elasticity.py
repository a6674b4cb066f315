"""What a speedup becomes where plain decoding takes longer, or shorter, than in the calibration.

A machine that is shared has states that last for minutes or hours.  In another state a plain step
takes longer, and other runs do too, but not by the same share: a target that reads one token waits
for memory, one that reads nine computes as well, a small draft stays in the caches.  The
*elasticity* of a kind of run is by how many per cent it takes longer where a plain step takes 1 %
longer: d log seconds / d log plain seconds.  Passes of a calibration differ in how long plain steps
take, and so show it.

    >>> moved = Elasticity(0.3, 0.1).moved(Interval(1.4, 1.5, 1.6), 1.2)
    >>> f"{moved.best:.3f}, {moved.low:.3f} to {moved.high:.3f}"
    '1.584, 1.466 to 1.706'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, number
from specsim.hardware.repeats import held
from specsim.intervals import Interval, normal_quantile
from specsim.profiles import Overhead, RunTime

# Before passes say anything, every run takes longer alike, give or take so much.
_PRIOR = 0.5
# Standard deviation of the logarithm of a pass's plain steps that does not last: what interrupts a
# machine for seconds is no state of it.  Of 0, 2, 3, 5 and 8 %, tried once and by no command kept,
# 3 and 5 % left calibrations of one draft nearest to each other at one plain step; how near is what
# ``python -m benchmarks.blind_drift`` prints.
_PASSING = 0.04
# Standard deviation of how far the elasticity of a speedup that passes tell is off the one from a
# calibration to a check, minutes to hours later, what passes leave open included: a machine that is
# throttled slows everything down, and one whose memory others use does not.  ``python -m
# benchmarks.blind_drift studies/measured/blind`` prints it of four batteries.
BETWEEN_STATES = 0.18
# A slope of fewer passes says nothing of its own error.
_FEWEST = 4
# Host seconds may be nothing, which has no logarithm.
_LEAST = 1e-3


@dataclass(frozen=True)
class Elasticity:
    """d log / d log plain seconds, with its standard error."""

    best: float
    error: float

    def moved(self, figure: Interval[float], plain: float) -> Interval[float]:
        """A speedup, > 0 with its 95 % interval, where plain decoding takes ``plain`` > 0 times as
        long.
        """
        if number("plain", plain) <= 0:
            raise InvalidArgumentError(f"plain must be > 0, got {plain:g}")
        far = log(plain)
        best = figure.best * exp(self.best * far)
        reach = normal_quantile(0.95) * self.error * abs(far)
        below, above = log(figure.best / figure.low), log(figure.high / figure.best)
        return Interval(best * exp(-hypot(below, reach)), best, best * exp(hypot(above, reach)))


UNKNOWN = Elasticity(1.0, _PRIOR)


@dataclass(frozen=True)
class Elasticities:
    """Of the target's runs on more than one token, of draft runs, and of the host's time."""

    target: Elasticity
    draft: Elasticity
    host: Elasticity

    @staticmethod
    def of(
        run_times: Sequence[RunTime], overhead: Sequence[Overhead], temperature: float
    ) -> Elasticities:
        """From the passes of a profile; the host's of one temperature."""
        plain = _plain_by_pass(run_times)
        return Elasticities(
            _slope((row for row in run_times if row.model == "target" and row.tokens > 1), plain),
            _slope((row for row in run_times if row.model == "draft"), plain),
            _slope((row for row in overhead if row.temperature == temperature), plain),
        )

    def speedup(self, plain_s: Floats, seconds: Floats) -> Elasticity:
        """Of a speedup, against seconds of plain decoding, from one state of a machine to another.

        plain_s, seconds : in draft runs, target runs and on the host, of plain and of speculative
            decoding; shape (3,), as of ``MeasuredCost.parts``
        """
        _, run_s, host_s = plain_s
        # A token of plain decoding has the host's time too.
        token = (run_s + self.host.best * host_s) / (run_s + host_s)
        shares = seconds / seconds.sum()
        kinds = self.draft, self.target, self.host
        block = sum(share * kind.best for share, kind in zip(shares, kinds, strict=True))
        error = hypot(*(share * kind.error for share, kind in zip(shares, kinds, strict=True)))
        return Elasticity(float(1 - block / token), max(float(error / token), BETWEEN_STATES))


def _plain_by_pass(rows: Iterable[RunTime]) -> Mapping[int, float]:
    """The logarithm of the mean plain step of every pass."""
    found: dict[int, list[float]] = {}
    for row in rows:
        for number_of_pass, seconds in zip(row.passes, row.plain, strict=False):
            found.setdefault(number_of_pass, []).append(seconds)
    return {each: log(held(np.array(seconds)).mean()) for each, seconds in found.items()}


def _slope(rows: Iterable[RunTime | Overhead], plain: Mapping[int, float]) -> Elasticity:
    """Of rows of one kind, by least squares through the means of passes, each row's own level
    taken off, and drawn to 1 as far as passes say little.
    """
    found: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        seconds = held(np.array(row.seconds))
        # Rows of hand-made files may be of passes in which no model was timed.
        if not row.passes or not plain.keys() >= set(row.passes) or seconds.mean() <= 0:
            continue
        longer = np.log(np.maximum(seconds / seconds.mean(), _LEAST))
        beside = np.array([plain[each] for each in row.passes])
        pairs = zip(beside - beside.mean(), longer, strict=True)
        for number_of_pass, pair in zip(row.passes, pairs, strict=True):
            found.setdefault(number_of_pass, []).append(pair)
    if len(found) < _FEWEST:
        return UNKNOWN
    weights = np.array([len(each) for each in found.values()], dtype=float)
    x, y = np.array([np.mean(each, axis=0) for each in found.values()]).T
    x, y = x - np.average(x, weights=weights), y - np.average(y, weights=weights)
    spread = float(np.average(x**2, weights=weights))
    if not spread:
        return UNKNOWN
    slope = float(np.average(x * y, weights=weights)) / spread
    left = float(np.average((y - slope * x) ** 2, weights=weights))
    error2 = left / spread / (len(found) - 2)
    known = _PRIOR**2 / (_PRIOR**2 + error2) * spread / (spread + _PASSING**2)
    return Elasticity(1 + known * (slope - 1), hypot(known * error2**0.5, (1 - known) * _PRIOR))
