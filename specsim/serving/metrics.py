"""What users see of a run: latencies, throughput, goodput.

The definitions are those of ``vllm bench serve`` (vllm/benchmarks/serve.py, calculate_metrics):
TTFT from arrival to the first token; TPOT from there to the last, over the tokens after the first,
of requests that have some; ITL the gaps between chunks, of which a step emits one with all its
tokens; end-to-end from arrival to the last token.  Percentiles are linear between order statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from specsim.checks import Floats, Ints, InvalidArgumentError, number
from specsim.serving.levels import LATENCIES, ServiceLevel, request_limits
from specsim.serving.resampling import STAYS_OF_BATCH, batch_count, percentile_ends

Figures = dict[str, float]

STATISTICS = ("mean", "p50", "p90", "p99")
_PER_SECOND = ("output_tokens_per_s", "requests_per_s", "goodput")

# Fewer requests than this make no batch whose percentiles say anything, and fewer batches than
# this no spread.
_BATCH_REQUESTS = 50
_MOST_BATCHES, _LEAST_BATCHES = 20, 5
# Of a run whose batches are as long as they should be, in mean stays of a request.
SHORT_SPAN_STAYS = STAYS_OF_BATCH * _LEAST_BATCHES
# A longer share of the time behind the last arrival, and throughput is that of an engine that
# empties.
LONGEST_TAIL = 0.2


@dataclass(frozen=True, eq=False)
class RequestTimes:
    """When N requests arrived, got their first and their last token; seconds of one clock.

    output_tokens : (N,) >= 1
    itl_s : (G,) gaps between chunks, of all requests
    itl_request : (G,) whose they are
    """

    arrival_s: Floats
    first_token_s: Floats
    last_token_s: Floats
    output_tokens: Ints
    itl_s: Floats = field(default_factory=lambda: np.zeros(0))
    itl_request: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def ttft_s(self) -> Floats:
        """(N,)"""
        return self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> Floats:
        """(N,)"""
        return self.last_token_s - self.arrival_s

    @property
    def tpot_s(self) -> Floats:
        """(N,); 0 for one token, which keeps every limit."""
        after_first = self.output_tokens - 1
        decoding = self.last_token_s - self.first_token_s
        found: Floats = np.where(after_first > 0, decoding / np.maximum(after_first, 1), 0.0)
        return found

    def latency(self, name: str, chosen: Ints) -> Floats:
        """One of LATENCIES, of some requests; those of one token have no TPOT."""
        if name == "itl":
            is_chosen = np.zeros(self.arrival_s.size, dtype=bool)
            is_chosen[chosen] = True
            return self.itl_s[is_chosen[self.itl_request]]
        if name == "tpot":
            chosen = chosen[self.output_tokens[chosen] > 1]
        values: Floats = getattr(self, f"{name}_s")[chosen]
        return values

    def good(self, limits: Mapping[str, float]) -> npt.NDArray[np.bool_]:
        """(N,) whether a request keeps all of its limits."""
        kept = np.ones(self.arrival_s.size, dtype=bool)
        for name, limit in limits.items():
            kept &= getattr(self, f"{name}_s") <= limit
        return kept


@dataclass(frozen=True, eq=False)
class Measured:
    """Figures of one run, and of its batches where it is long enough for some.

    figures : seconds, tokens and requests per second, shares; by name, such as ttft_p99
    batches : the same of consecutive requests, for their spread; empty: too few requests
    counted : requests behind them, without the warm-up
    percentile_ends : 95 % intervals of the percentiles, where they were asked for and there are
        batches
    """

    figures: Figures
    batches: tuple[Figures, ...]
    counted: int
    percentile_ends: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def counted_requests(times: RequestTimes, warmup: float) -> Ints:
    """Indices of those that count, in the order in which they arrive."""
    order = np.argsort(times.arrival_s, kind="stable")
    return order[int(warmup * order.size) :]


def measure(
    times: RequestTimes,
    levels: Sequence[ServiceLevel] = (),
    warmup: float = 0.0,
    resample: bool = False,
) -> Measured:
    """Latencies, throughput and, under limits of requests, goodput.

    resample : whether the intervals of percentiles are wanted
    warmup : share of the requests, the first to arrive, that are left out; throughput is then of
        what ends after the first arrival that counts
    """
    warmup = number("warmup", warmup, low=0.0, high=0.9)
    counted = counted_requests(times, warmup)
    if not counted.size:
        total = times.arrival_s.size
        raise InvalidArgumentError(f"warmup {warmup:g} leaves none of {total} requests")
    limits = request_limits(levels)
    good = times.good(limits)
    begin = times.arrival_s[counted[0]]
    is_steady = tail_share(times) <= LONGEST_TAIL
    by_end = np.argsort(times.last_token_s, kind="stable")
    ended = by_end[times.last_token_s[by_end] > begin] if warmup else by_end
    extra = tuple(each.statistic for each in levels if each.statistic)
    statistics = tuple(dict.fromkeys((*STATISTICS, *extra)))

    def figures(some: Ints, some_ended: Ints, from_s: float) -> Figures:
        found = latencies(times, some, statistics)
        seconds = float(times.last_token_s[some_ended[-1]] - from_s)
        found["output_tokens_per_s"] = _over(times.output_tokens[some_ended].sum(), seconds)
        found["requests_per_s"] = _over(some_ended.size, seconds)
        if limits:
            found["goodput"] = _over(good[some_ended].sum(), seconds)
            found["good_share"] = float(good[some].mean())
        return found

    span_s, stay_s = _span_and_stay(times, counted)
    most = min(_MOST_BATCHES, counted.size // _BATCH_REQUESTS)
    parts = batch_count(span_s, stay_s, _LEAST_BATCHES, most)
    batches: list[Figures] = []
    if parts:
        from_s = float(begin)
        for some, some_ended in zip(
            np.array_split(counted, parts), np.array_split(ended, parts), strict=True
        ):
            found = figures(some, some_ended, from_s)
            if not is_steady:
                found = {name: each for name, each in found.items() if name not in _PER_SECOND}
            batches.append(found)
            from_s = float(times.last_token_s[some_ended[-1]])
    ends: dict[str, tuple[float, float]] = {}
    if batches and resample:
        ends = _percentile_ends(times, np.array_split(counted, parts), statistics)
    return Measured(figures(counted, ended, float(begin)), tuple(batches), counted.size, ends)


def _span_and_stay(times: RequestTimes, counted: Ints) -> tuple[float, float]:
    """Seconds within which requests arrive, in that order, and that one of them stays."""
    arrivals = times.arrival_s[counted]
    return float(arrivals[-1] - arrivals[0]), float(times.e2e_s[counted].mean())


def short_span(times: RequestTimes, warmup: float = 0.0) -> tuple[float, float] | None:
    """Seconds within which counted requests arrive, and that one stays, where these are too few
    stays for batches that are nearly independent.
    """
    span_s, stay_s = _span_and_stay(times, counted_requests(times, warmup))
    return None if span_s >= SHORT_SPAN_STAYS * stay_s else (span_s, stay_s)


def tail_share(times: RequestTimes) -> float:
    """Share of the time, first arrival to last token, that is behind the last arrival."""
    begin, end = float(times.arrival_s.min()), float(times.last_token_s.max())
    return (end - float(times.arrival_s.max())) / (end - begin) if end > begin else 0.0


def _percentile_ends(
    times: RequestTimes, parts: Sequence[Ints], statistics: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Of every latency and percentile, from batches of requests."""
    asked = [each for each in statistics if each != "mean"]
    found: dict[str, tuple[float, float]] = {}
    for name in LATENCIES:
        values = [times.latency(name, each) for each in parts]
        batch = np.repeat(np.arange(len(parts)), [each.size for each in values])
        ends = percentile_ends(
            np.concatenate(values), batch, len(parts), [float(each[1:]) / 100 for each in asked]
        )
        found |= {f"{name}_{each}": end for each, end in zip(asked, ends, strict=True)}
    return found


def latencies(times: RequestTimes, chosen: Ints, statistics: Sequence[str] = STATISTICS) -> Figures:
    """Statistics of all latencies by name; nan where no request has one."""
    found: Figures = {}
    for name in LATENCIES:
        values = times.latency(name, chosen)
        for statistic in statistics:
            found[f"{name}_{statistic}"] = _statistic(values, statistic)
    return found


def _statistic(values: Floats, statistic: str) -> float:
    if not values.size:
        return float("nan")
    if statistic == "mean":
        return float(values.mean())
    return float(np.percentile(values, float(statistic[1:])))


def _over(amount: float, seconds: float) -> float:
    return float(amount) / seconds if seconds > 0 else float("nan")
