"""Latencies of the same requests, predicted and measured: figures, single requests, distributions.

How sure a measured figure is: requests that come one after another share a queue and are no
independent sample, so they are cut into blocks of consecutive arrivals.  The interval of a mean is
Student's over the blocks, a ratio of their sums to their counts; that of a percentile comes from
blocks drawn with replacement (specsim.serving.resampling).  The error of a prediction is known
better than either figure, because both are of the same requests: its interval comes from the same
blocks of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan, sqrt

import numpy as np

from specsim.checks import Floats, Ints
from specsim.intervals import Interval, joint_half_width, t_quantile
from specsim.serving.levels import LATENCIES
from specsim.serving.metrics import STATISTICS, RequestTimes
from specsim.serving.resampling import percentile_draws
from specsim.serving.spread import widened

# Latencies that a log may tell; queue is from arrival to first scheduled.
COMPARED = (*LATENCIES, "queue")
_LEVEL = 0.95
_MOST_BLOCKS, _LEAST_BLOCKS = 20, 8
# Fewer requests than this in a block, and its mean says nothing.
_BLOCK_REQUESTS = 5
# Times of a log are written in microseconds, some of a large clock.
_ROUNDING_S = 1e-6
_PERCENTILES = tuple(each for each in STATISTICS if each != "mean")
_SHARES = tuple(float(each[1:]) / 100 for each in _PERCENTILES)


@dataclass(frozen=True, eq=False)
class LatencySample:
    """Values of one latency in seconds and the request of each, (V,); of itl a request has many."""

    seconds: Floats
    request: Ints

    def of(self, counted: Ints) -> LatencySample:
        """Of some of the requests."""
        kept = np.isin(self.request, counted)
        return LatencySample(self.seconds[kept], self.request[kept])

    def statistic(self, name: str) -> float:
        """The mean, or a percentile such as p99; nan of nothing."""
        if not self.seconds.size:
            return nan
        if name == "mean":
            return float(self.seconds.mean())
        return float(np.percentile(self.seconds, float(name[1:])))


def samples_of(times: RequestTimes, scheduled_s: Floats | None) -> dict[str, LatencySample]:
    """Every latency by name; those that are nowhere known (nan) are not there."""
    everyone = np.arange(times.arrival_s.size)
    found = {}
    for name in LATENCIES:
        whose = everyone
        if name == "itl":
            whose = times.itl_request
        elif name == "tpot":
            whose = everyone[times.output_tokens > 1]
        found[name] = LatencySample(times.latency(name, everyone), whose)
    if scheduled_s is not None:
        found["queue"] = LatencySample(scheduled_s - times.arrival_s, everyone)
    return {
        name: each
        for name, each in found.items()
        if each.seconds.size and not np.isnan(each.seconds).any()
    }


@dataclass(frozen=True)
class RequestErrors:
    """One latency request by request, predicted in the mean over the replications.

    median_s, median_share : median absolute error, in seconds and relative to the measured value
    correlation : Pearson's; nan where all requests are alike
    worst : index of the request that is furthest off in seconds
    """

    median_s: float
    median_share: float
    correlation: float
    worst: int
    worst_predicted_s: float
    worst_measured_s: float


@dataclass(frozen=True, eq=False)
class LatencyComparison:
    """One latency, in seconds.

    predicted, measured : by statistic (mean, p50, p90, p99), with 95 % intervals; nan ends where
        there are too few requests
    errors : predicted over measured, less one, likewise
    distance : Kolmogorov and Smirnov's, the largest difference of the two distributions
    requests : None of itl, whose gaps have no partners
    predicted_sample, measured_sample : what was compared, one replication after another
    """

    name: str
    predicted: Mapping[str, Interval[float]]
    measured: Mapping[str, Interval[float]]
    errors: Mapping[str, Interval[float]]
    distance: float
    requests: RequestErrors | None
    predicted_sample: LatencySample
    measured_sample: LatencySample

    def explained(self, statistic: str) -> bool:
        """Whether the two are no further apart than the intervals of both explain: half the width
        of each, in the root of the sum of squares.  False where an interval is not known.
        """
        predicted, measured = self.predicted[statistic], self.measured[statistic]
        if isnan(measured.low):
            return False
        explained = joint_half_width(predicted, measured) + _ROUNDING_S
        return abs(predicted.best - measured.best) <= explained


def relative_error(predicted: float, measured: float) -> float:
    """Predicted over measured, less one; 0 where both are nothing."""
    if measured == 0:
        return 0.0 if predicted == 0 else inf
    return predicted / measured - 1


def compare(
    name: str,
    predicted: Sequence[LatencySample],
    measured: LatencySample,
    block: Ints,
    blocks: int,
    ends: Sequence[LatencySample] = (),
) -> LatencyComparison:
    """One latency of the same N requests.

    predicted : of every replication, at least one
    block : (N,) of ``time_blocks``
    ends : of the first replication where its steps are as fast, and as slow, as what is known of
        them allows; predicted intervals hold that, too
    """
    runs, others = ([_statistics(sample) for sample in each] for each in (predicted, ends))
    expected = {each: of_replications(np.array([run[each] for run in runs])) for each in STATISTICS}
    pooled = LatencySample(
        np.concatenate([each.seconds for each in predicted]),
        np.concatenate([each.request for each in predicted]),
    )
    return LatencyComparison(
        name=name,
        predicted=widened(expected, runs[0], others) if others else expected,
        measured=_measured(measured, block, blocks),
        errors=_errors(pooled, measured, block, blocks),
        distance=distance(pooled.seconds, measured.seconds),
        requests=None if name == "itl" else _request_errors(predicted, measured),
        predicted_sample=pooled,
        measured_sample=measured,
    )


def _statistics(sample: LatencySample) -> dict[str, float]:
    return {each: sample.statistic(each) for each in STATISTICS}


def distance(one: Floats, other: Floats) -> float:
    """The largest difference of two distribution functions, of samples of seconds of any size; what
    is less than a log's rounding apart is alike.
    """
    one, other = (np.sort(np.rint(each / _ROUNDING_S)) for each in (one, other))
    every = np.concatenate([one, other])
    below = np.searchsorted(one, every, "right") / one.size
    return float(np.abs(below - np.searchsorted(other, every, "right") / other.size).max())


def time_blocks(arrival_s: Floats, stay_s: float) -> tuple[Ints, int]:
    """The block of every request, (N,), and how many there are; 0 of too few requests.

    Blocks of equal numbers of consecutive arrivals, as long as a request stays in the mean
    (``stay_s``) where that leaves at least 8 of them, and at most 20.  They are shorter than the
    batches of a single run (``specsim.serving.metrics``), and intervals narrower: a check passes
    less.
    """
    most = min(_MOST_BLOCKS, arrival_s.size // _BLOCK_REQUESTS)
    if most < _LEAST_BLOCKS:
        return np.zeros(arrival_s.size, np.int64), 0
    span = float(arrival_s[-1] - arrival_s[0])
    wanted = int(span / stay_s) if stay_s > 0 else most
    blocks = min(max(wanted, _LEAST_BLOCKS), most)
    return np.arange(arrival_s.size) * blocks // arrival_s.size, blocks


def of_replications(values: Floats) -> Interval[float]:
    """Their mean with Student's interval; of one the value itself."""
    best = float(values.mean())
    if values.size == 1:
        return Interval(best, best, best)
    half = t_quantile(_LEVEL, values.size - 1) * float(values.std(ddof=1)) / sqrt(values.size)
    return Interval(max(best - half, 0.0), best, best + half)


def mean_interval(values: Floats, block: Ints, blocks: int) -> Interval[float]:
    """The mean of values (V,) >= 0 with Student's 95 % interval over the blocks, (V,), they are in:
    a sum over a count, both of which differ from block to block.
    """
    best = float(values.mean())
    sums = np.bincount(block, values, minlength=blocks)
    rest = sums - best * np.bincount(block, minlength=blocks)
    spread = sqrt(blocks / (blocks - 1) * float(np.square(rest).sum()))
    half = t_quantile(_LEVEL, blocks - 1) * spread / values.size
    return Interval(max(best - half, 0.0), best, best + half)


def _measured(sample: LatencySample, block: Ints, blocks: int) -> dict[str, Interval[float]]:
    found = {each: Interval(nan, sample.statistic(each), nan) for each in STATISTICS}
    if not blocks:
        return found
    whose = block[sample.request]
    found["mean"] = mean_interval(sample.seconds, whose, blocks)
    draws = percentile_draws(sample.seconds, whose, blocks, _SHARES)
    for each, drawn in zip(_PERCENTILES, draws, strict=True):
        best = found[each].best
        low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
        found[each] = Interval(min(low, best), best, max(high, best))
    return found


def _errors(
    predicted: LatencySample, measured: LatencySample, block: Ints, blocks: int
) -> dict[str, Interval[float]]:
    """Relative errors, with intervals over the blocks of both."""
    found = {}
    for each in STATISTICS:
        best = relative_error(predicted.statistic(each), measured.statistic(each))
        found[each] = Interval(nan, best, nan)
    if not blocks:
        return found
    mine, theirs = block[predicted.request], block[measured.request]
    best = found["mean"].best
    if measured.seconds.sum() > 0:
        means = [
            np.bincount(whose, sample.seconds, minlength=blocks) / sample.seconds.size
            for whose, sample in ((mine, predicted), (theirs, measured))
        ]
        rest = means[0] - (1 + best) * means[1]
        spread = sqrt(blocks / (blocks - 1) * float(np.square(rest).sum()))
        half = t_quantile(_LEVEL, blocks - 1) * spread / float(means[1].sum())
        found["mean"] = Interval(best - half, best, best + half)
    both = (
        percentile_draws(sample.seconds, whose, blocks, _SHARES)
        for whose, sample in ((mine, predicted), (theirs, measured))
    )
    for each, above, below in zip(_PERCENTILES, *both, strict=True):
        best = found[each].best
        if not (below > 0).all():
            continue
        low, high = np.quantile(above / below - 1, [0.025, 0.975]).tolist()
        found[each] = Interval(min(low, best), best, max(high, best))
    return found


def _request_errors(predicted: Sequence[LatencySample], measured: LatencySample) -> RequestErrors:
    # Every replication has the same requests in the same order.
    mean = np.mean([each.seconds for each in predicted], axis=0)
    seen = measured.seconds
    off = np.abs(mean - seen)
    share = np.divide(off, seen, out=np.where(off > 0, inf, 0.0), where=seen > 0)
    correlation = nan
    if np.ptp(mean) > _ROUNDING_S and np.ptp(seen) > _ROUNDING_S:
        correlation = float(np.corrcoef(mean, seen)[0, 1])
    at = int(off.argmax())
    return RequestErrors(
        median_s=float(np.median(off)),
        median_share=float(np.median(share)),
        correlation=correlation,
        worst=int(measured.request[at]),
        worst_predicted_s=float(mean[at]),
        worst_measured_s=float(seen[at]),
    )
