"""What a speedup becomes where plain decoding takes longer, or shorter, than in the calibration.

A machine that is shared has states that last for minutes or hours.  In another state a plain step
takes longer, and other runs do too, but not by the same share: a target that reads one token waits
for memory, one that reads nine computes as well, a small draft stays in the caches.  The
*elasticity* of a kind of run is by how many per cent it takes longer where a plain step takes 1 %
longer: d log seconds / d log plain seconds.

Passes of a calibration differ in how long plain steps take, and so show it.  Some of what they
differ by lasts for seconds only: it lengthens the plain steps of a pass and not the runs between
them, and a slope by least squares would be too small.  What lasts is in the passes next to it too,
whose own moments have nothing to do with this one's: they are the *instrument* of the slope.
Where neighbours are not alike, nothing lasts, and passes say nothing.

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

# Before passes say anything, every run takes longer alike, give or take so much: standard deviation
# about 1 of the elasticities that calibrations told well, of all batteries (``python -m
# benchmarks.blind_drift studies/measured/blind`` prints it).
PRIOR = 0.35
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


@dataclass(frozen=True)
class Elasticities:
    """Of the target's runs on more than one token, of draft runs, and of the host's time."""

    target: Elasticity
    draft: Elasticity
    host: Elasticity

    @staticmethod
    def of(
        run_times: Sequence[RunTime],
        overhead: Sequence[Overhead],
        temperature: float,
        prior: float = PRIOR,
    ) -> Elasticities:
        """From the passes of a profile; the host's of one temperature.

        prior : how far they may be off 1 before passes say anything; inf takes passes at their word
        """
        plain = _plain_by_pass(run_times)
        wide = [row for row in run_times if row.model == "target" and row.tokens > 1]
        drafts = [row for row in run_times if row.model == "draft"]
        host = [row for row in overhead if row.temperature == temperature]
        return Elasticities(
            _slope(wide, plain, prior), _slope(drafts, plain, prior), _slope(host, plain, prior)
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
        return Elasticity(float(1 - block / token), float(error / token))


def _plain_by_pass(rows: Iterable[RunTime]) -> Mapping[int, float]:
    """The logarithm of the mean plain step of every pass."""
    found: dict[int, list[float]] = {}
    for row in rows:
        for number_of_pass, seconds in zip(row.passes, row.plain, strict=False):
            found.setdefault(number_of_pass, []).append(seconds)
    return {each: log(held(np.array(seconds)).mean()) for each, seconds in found.items()}


def _slope(
    rows: Sequence[RunTime] | Sequence[Overhead], plain: Mapping[int, float], prior: float
) -> Elasticity:
    """Of rows of one kind, through the means of passes, each row's own level taken off, and drawn
    to 1 as far as passes say little.

    With x the plain steps of a pass, y its runs and z the plain steps of the passes next to it, all
    as logarithms about their means: sum(z y) / sum(z x), and its error by the usual formula of
    instrumental variables, left^2 sum(z^2) / sum(z x)^2.
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
            if _neighbours(number_of_pass, plain):
                found.setdefault(number_of_pass, []).append(pair)
    if len(found) < _FEWEST:
        return Elasticity(1.0, prior)
    weights = np.array([len(each) for each in found.values()], dtype=float)
    x, y = np.array([np.mean(each, axis=0) for each in found.values()]).T
    usual = float(np.mean(list(plain.values())))
    z = np.array([sum(one - usual for one in _neighbours(each, plain)) for each in found])
    x, y, z = (each - np.average(each, weights=weights) for each in (x, y, z))
    lasting = float(np.average(z * x, weights=weights))
    if lasting <= 0:
        return Elasticity(1.0, prior)
    slope = float(np.average(z * y, weights=weights)) / lasting
    left2 = float(np.average((y - slope * x) ** 2, weights=weights))
    error2 = left2 * float(np.average(z**2, weights=weights)) / lasting**2 / (len(found) - 2)
    known = 1 / (1 + error2 / prior**2)
    return Elasticity(1 + known * (slope - 1), (known * error2) ** 0.5)


def _neighbours(number_of_pass: int, plain: Mapping[int, float]) -> list[float]:
    """The plain steps of the passes before and after, as far as there are."""
    return [plain[each] for each in (number_of_pass - 1, number_of_pass + 1) if each in plain]
