"""What ``specsim.validate_serving`` returns: an engine under load beside its simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from specsim.api.result import Result, Row
from specsim.checks import InvalidArgumentError, did_you_mean, number, significant
from specsim.intervals import Interval
from specsim.serving.comparison import COMPARED, LatencyComparison, relative_error
from specsim.serving.metrics import STATISTICS

if TYPE_CHECKING:
    from specsim.serving.service import SetUp

THROUGHPUT = ("output_tokens_per_s", "requests_per_s")
_FIGURES = (*(f"{name}_{each}" for name in COMPARED for each in STATISTICS), *THROUGHPUT)


@dataclass(frozen=True)
class Throughput:
    """Of the whole run, first arrival to last token; one run tells no interval of its own."""

    name: str
    predicted: Interval[float]
    measured: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return relative_error(self.predicted.best, self.measured)


@dataclass(frozen=True, kw_only=True)
class ServingVerdict(Result):
    """The simulator beside an engine's own log of the same requests.

    setup : what was simulated
    log_format : of the log
    requests, counted : in the log, and behind the figures, without the warm-up
    replications : of the simulation
    blocks, block_s : blocks of consecutive requests behind the measured intervals, and how long one
        is in the mean; 0: too few requests for intervals
    latencies : those that the log tells
    throughput : tokens and requests per second, where the log tells when the last token came
    speed : how much faster steps may be, as a factor with its 95 % interval, which predicted
        intervals hold; None where nobody knows
    tolerance : largest relative error by name; empty: the verdict is by intervals
    names : what the log calls each request

    Rows are one figure each, in milliseconds, with 95 % intervals.
    """

    schema: ClassVar[str] = "specsim.serving_verdict"

    setup: SetUp
    log_format: str
    requests: int
    counted: int
    replications: int
    blocks: int
    block_s: float
    latencies: tuple[LatencyComparison, ...]
    throughput: tuple[Throughput, ...]
    speed: Interval[float] | None = None
    tolerance: Mapping[str, float] = field(default_factory=dict)
    basis: str
    names: tuple[str, ...] = field(repr=False)

    @property
    def title(self) -> str:
        drafts = self.setup.drafts
        words = "no drafts" if not drafts.schedule else f"gamma {drafts.words}"
        return f"{self.requests:,} requests ({self.log_format}), {words}, {self.basis}"

    @property
    def passed(self) -> bool:
        """Whether no figure is further off than is allowed."""
        return not self.failures

    @property
    def failures(self) -> list[str]:
        """The figures that are, a sentence each."""
        failures = []
        for each in self.latencies:
            for statistic in STATISTICS:
                words = self._failure(each, statistic)
                if words:
                    failures.append(f"{each.name} {statistic} {words}")
        for total in self.throughput:
            allowed = self.tolerance.get(total.name)
            if allowed is not None and abs(total.error) > allowed:
                failures.append(f"{total.name} is off by {total.error:+.1%}, over {allowed:.1%}")
        return failures

    def _failure(self, each: LatencyComparison, statistic: str) -> str:
        error = each.errors[statistic].best
        if self.tolerance:
            allowed = self.tolerance.get(
                f"{each.name}_{statistic}", self.tolerance.get(statistic, math.inf)
            )
            return f"is off by {error:+.1%}, over {allowed:.1%}" if abs(error) > allowed else ""
        if each.explained(statistic):
            return ""
        return f"is off by {error:+.1%}, more than the intervals explain"

    def rows(self) -> list[Row]:
        rows: list[Row] = []
        for each in self.latencies:
            for statistic in STATISTICS:
                row: Row = {"latency": each.name, "statistic": statistic}
                for side in ("predicted", "measured"):
                    value = getattr(each, side)[statistic]
                    row |= {
                        f"{side}_ms{end}": 1e3 * getattr(value, name)
                        for end, name in (("", "best"), ("_low", "low"), ("_high", "high"))
                    }
                row |= each.errors[statistic].columns("relative_error")
                row["explained"] = each.explained(statistic) if self.blocks else None
                rows.append(row)
        return rows

    def table(self) -> list[Row]:
        """The ends of a prediction that is certain are left out."""
        hidden: tuple[str, ...] = ()
        if self.replications == 1 and self.setup.certain and self.speed is None:
            hidden += ("predicted_ms_low", "predicted_ms_high")
        if not self.blocks:
            hidden += ("measured_ms_low", "measured_ms_high")
            hidden += ("relative_error_low", "relative_error_high")
        return [
            {name: value for name, value in row.items() if name not in hidden}
            for row in self.rows()
        ]

    @property
    def essential(self) -> tuple[str, ...]:
        return (
            *("latency", "statistic", "predicted_ms", "measured_ms", "relative_error"),
            *("relative_error_low", "relative_error_high", "measured_ms_low", "measured_ms_high"),
        )

    def summary(self) -> Row:
        found: Row = {
            "title": self.title,
            "passed": self.passed,
            "failures": self.failures,
            "requests": self.requests,
            "counted": self.counted,
            "replications": self.replications,
            "blocks": self.blocks,
            "block_s": self.block_s,
            "tolerance": dict(self.tolerance),
            "throughput": {
                each.name: {
                    "predicted": [each.predicted.low, each.predicted.best, each.predicted.high],
                    "measured": each.measured,
                    "relative_error": each.error,
                }
                for each in self.throughput
            },
            "distance": {each.name: each.distance for each in self.latencies},
            "by_request": {},
        }
        for each in self.latencies:
            if each.requests is not None:
                errors = each.requests
                found["by_request"][each.name] = {
                    **vars(errors),
                    "worst": self.names[errors.worst],
                }
        if self.speed is not None:
            found["speed"] = self.speed
        return found

    def sentences(self) -> list[str]:
        lines = [self._of_requests(each) for each in self.latencies]
        lines += [
            f"{each.name}: predicted {significant(each.predicted.best)}, measured "
            f"{significant(each.measured)} ({each.error:+.1%})"
            for each in self.throughput
        ]
        lines.append(self._interval_words)
        lines += [f"failed: {each}" for each in self.failures]
        if self.passed:
            by = "the tolerance allows" if self.tolerance else "the intervals explain"
            lines.append(f"passed: no figure is further off than {by}")
        return lines

    def _of_requests(self, each: LatencyComparison) -> str:
        apart = f"Kolmogorov-Smirnov distance {each.distance:.3f}"
        errors = each.requests
        if errors is None:
            return f"{each.name}: {apart}"
        correlation = "" if math.isnan(errors.correlation) else f"r = {errors.correlation:.3f}, "
        off = significant(1e3 * errors.median_s, 3)
        predicted, measured = (
            significant(1e3 * seconds)
            for seconds in (errors.worst_predicted_s, errors.worst_measured_s)
        )
        return (
            f"{each.name} request by request: median error {off} ms "
            f"({errors.median_share:.1%}), {correlation}worst {self.names[errors.worst]} with "
            f"{predicted} ms, measured {measured}; {apart}"
        )

    @property
    def _interval_words(self) -> str:
        if not self.blocks:
            return f"intervals: none of {self.counted} requests, which are too few"
        means = [each.measured["mean"] for each in self.latencies]
        share = max((each.high - each.low) / 2 / each.best if each.best else 0.0 for each in means)
        predicted = f"predicted over {self.replications} replications"
        if self.replications == 1:
            predicted = "predicted once"
            if self.setup.certain:
                predicted = "predictions are certain" if self.speed is None else predicted
            else:
                predicted += ", without what chance leaves to acceptance and steps (--replications)"
        if self.speed is not None:
            low, high = (significant(each, 3) for each in (self.speed.low, self.speed.high))
            predicted += f", and with steps at {low} and {high} times their speed"
        return (
            f"intervals: 95 %, {predicted}; measured over {self.blocks} blocks of consecutive "
            f"requests ({self.block_s:.3g} s), errors over the same blocks of both; with other "
            f"requests a measured mean may differ by up to {share:.0%}"
        )


def tolerances_of(given: str | Mapping[str, float] | None, told: Sequence[str]) -> dict[str, float]:
    """Largest relative errors by name, from words such as ``mean=0.05,ttft_p99=0.15``.

    given : names are a statistic, of all latencies; a latency's (``ttft_p99``); or of throughput
    told : latencies, and names of throughput, that the log tells of the requests that count
    """
    if given is None:
        return {}
    if isinstance(given, str):
        pairs = [part.partition("=") for part in given.split(",")]
        if not all(equals for _, equals, _ in pairs):
            raise InvalidArgumentError(
                f"tolerance must be NAME=SHARE,... such as mean=0.05,p99=0.15, got {given!r}"
            )
        given = {name.strip(): number("tolerance", share) for name, _, share in pairs}
    if not given:
        raise InvalidArgumentError("tolerance names nothing; leave it out to judge by intervals")
    known = (*STATISTICS, *_FIGURES)
    for name, share in given.items():
        if name not in known:
            raise InvalidArgumentError(
                f"tolerance must name mean, p50, p90, p99, one of a latency such as ttft_p99, or "
                f"{' or '.join(THROUGHPUT)}, got {name!r}{did_you_mean(name, known)}"
            )
        if name not in STATISTICS and not name.startswith(tuple(told)):
            raise InvalidArgumentError(
                f"tolerance names {name}, which the log does not tell of the requests that count"
            )
        number(f"tolerance of {name}", share, low=0.0)
    return dict(given)
