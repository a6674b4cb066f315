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
Where neighbours are not more alike than by chance, nothing lasts, and passes say nothing.

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
from specsim.intervals import Interval, normal_quantile, t_quantile
from specsim.profiles import Overhead, RunTime

# Before passes say anything, every run takes longer alike, give or take so much: standard deviation
# about 1 of the elasticities that calibrations told well, of all batteries (``python -m
# benchmarks.blind_drift studies/measured/blind`` prints it).
PRIOR = 0.37
# A slope of fewer passes says nothing of its own error.
_FEWEST = 4
# Of squares that may be none.
_NOTHING = 1e-300
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
class PassSlope:
    """What the passes of a calibration say of the elasticity of a kind of run.

    best, error : the slope, and its standard error
    freedom : degrees of freedom of that error
    by_chance : how likely it is that nothing lasted from one pass to the next, so that they say
        nothing
    """

    best: float
    error: float
    freedom: int
    by_chance: float

    @property
    def widened(self) -> float:
        """The error that normal intervals are as wide with as Student's, since passes are few."""
        return self.error * t_quantile(0.95, self.freedom) / normal_quantile(0.95)

    @property
    def elasticity(self) -> Elasticity:
        """Drawn to 1 as far as passes say little: either they say it, or nothing is known."""
        known = 1 / (1 + (self.widened / PRIOR) ** 2)
        off, says = known * (self.best - 1), 1 - self.by_chance
        between = (says * self.by_chance) ** 0.5 * off
        error = hypot((says * known) ** 0.5 * self.widened, self.by_chance**0.5 * PRIOR, between)
        return Elasticity(1 + says * off, error)


NOTHING_SAID = PassSlope(1.0, 0.0, 1, 1.0)


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
        slopes = pass_slopes(run_times, overhead, temperature)
        return Elasticities(*(each.elasticity for each in slopes))

    def speedup(self, plain_s: Floats, seconds: Floats, undrafted_s: float) -> Elasticity:
        """Of a speedup, against seconds of plain decoding, from one state of a machine to another.

        plain_s, seconds : in draft runs, target runs and on the host, of plain and of speculative
            decoding; shape (3,), as of ``MeasuredCost.parts``
        undrafted_s : of the target runs in ``seconds``, those on one token, where nothing was
            drafted: they are plain steps, and take longer as those do
        """
        _, run_s, host_s = plain_s
        # A token of plain decoding has the host's time too.
        token = (run_s + self.host.best * host_s) / (run_s + host_s)
        draft_s, target_s, block_host_s = seconds
        shares = np.array([draft_s, target_s - undrafted_s, block_host_s, undrafted_s])
        shares /= seconds.sum()
        kinds = self.draft, self.target, self.host, Elasticity(1.0, 0.0)
        block = sum(share * kind.best for share, kind in zip(shares, kinds, strict=True))
        # All kinds have the same plain steps, so that their errors may be one.
        error = sum(share * kind.error for share, kind in zip(shares, kinds, strict=True))
        return Elasticity(float(1 - block / token), float(error / token))


def pass_slopes(
    run_times: Sequence[RunTime], overhead: Sequence[Overhead], temperature: float
) -> tuple[PassSlope, PassSlope, PassSlope]:
    """Of the target's runs on more than one token, of draft runs, and of the host's time at one
    temperature.
    """
    plain = _plain_by_pass(run_times)
    wide = [row for row in run_times if row.model == "target" and row.tokens > 1]
    drafts = [row for row in run_times if row.model == "draft"]
    host = [row for row in overhead if row.temperature == temperature]
    return _slope(wide, plain), _slope(drafts, plain), _slope(host, plain)


def _plain_by_pass(rows: Iterable[RunTime]) -> Mapping[int, float]:
    """The mean logarithm of the plain steps of every pass, about that of their context: longer ones
    take longer by nature, and passes have them by turns.
    """
    by_context: dict[int, list[tuple[int, float, int]]] = {}
    for row in rows:
        steps = zip(row.passes, row.plain, _runs(row), strict=False)
        by_context.setdefault(row.context, []).extend(steps)
    found: dict[int, list[tuple[float, int]]] = {}
    for several in filter(None, by_context.values()):
        usual = np.average(
            [log(seconds) for _, seconds, _ in several], weights=[runs for *_, runs in several]
        )
        for number_of_pass, seconds, runs in several:
            found.setdefault(number_of_pass, []).append((log(seconds) - float(usual), runs))
    means = {}
    for number_of_pass, longer in found.items():
        values, counted = np.array(longer, dtype=float).T
        means[number_of_pass] = float(np.average(held(values, counted), weights=counted))
    return means


def _runs(row: RunTime | Overhead) -> list[int]:
    """How many runs each repeat is the mean of; host time has blocks alike in each."""
    return getattr(row, "runs", []) or [1] * len(row.seconds)


def _slope(rows: Sequence[RunTime] | Sequence[Overhead], plain: Mapping[int, float]) -> PassSlope:
    """Of rows of one kind, through the means of n passes, each row's own level taken off.

    With x the plain steps of a pass, y its runs and z the plain steps of the passes next to it, all
    as logarithms about their means, the slope b is sum(z y) / sum(z x), and with what is left,
    u = y - b x, its error squared

        (mean(u^2) sum(z^2) + 2 sum(z u z' u')) / sum(z x)^2  n / (n - 2)

    where z' and u' are those of the next pass, with which a pass has plain steps in common; their
    sum counts as none where it is below 0.  Of sum(z x) a share is chance: 1 / F, where F, of one
    and n - 2 degrees of freedom, is its square over that of its own error.  What runs do by
    themselves over many passes is not in the error.
    """
    found: dict[int, list[list[float]]] = {}
    for row in rows:
        runs = np.array(_runs(row), dtype=float)
        seconds = held(np.array(row.seconds), runs)
        usual = np.average(seconds, weights=runs)
        # Rows of hand-made files may be of passes in which no model was timed.
        if not row.passes or not plain.keys() >= set(row.passes) or usual <= 0:
            continue
        longer = np.log(np.maximum(seconds / usual, _LEAST))
        beside = np.array([plain[each] for each in row.passes])
        columns = beside - np.average(beside, weights=runs), longer, runs
        for number_of_pass, *three in zip(row.passes, *columns, strict=True):
            if _neighbours(number_of_pass, plain):
                found.setdefault(number_of_pass, []).append(three)
    if len(found) < _FEWEST:
        return NOTHING_SAID
    passes = sorted(found)
    x, y = np.array([_weighed(found[each]) for each in passes]).T
    z = np.array([sum(_neighbours(each, plain)) for each in passes])
    x, y, z = (each - each.mean() for each in (x, y, z))
    lasting = float(np.mean(z * x))
    freedom = len(passes) - 2
    alike = lasting**2 / max(float(np.mean(x**2) * np.mean(z**2)), _NOTHING)
    by_chance = min(max(1 - alike, 0.0) / max(freedom * alike, _NOTHING), 1.0)
    if lasting <= 0 or by_chance == 1:
        return NOTHING_SAID
    slope = float(np.mean(z * y)) / lasting
    left = y - slope * x
    shared = 2 * float(np.sum((z * left)[1:] * (z * left)[:-1])) / len(passes)
    error2 = float(np.mean(left**2) * np.mean(z**2)) + max(shared, 0.0)
    error2 /= lasting**2 * freedom
    return PassSlope(slope, error2**0.5, freedom, by_chance)


def _weighed(rows: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Means of the first two of three columns, by the weights in the third."""
    x, y, weights = np.array(rows).T
    return float(np.average(x, weights=weights)), float(np.average(y, weights=weights))


def _neighbours(number_of_pass: int, plain: Mapping[int, float]) -> list[float]:
    """The plain steps of the passes before and after, as far as there are, of which 0 is usual."""
    return [plain[each] for each in (number_of_pass - 1, number_of_pass + 1) if each in plain]
