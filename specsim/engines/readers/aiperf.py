"""AIPerf's result of a run, profile_export_aiperf.json.

Read from ai-dynamo/aiperf 0.13.0 (metrics/types/spec_decode_metrics.py,
common/models/export_models.py, schema_version 1.4; pull requests #1167 and #1191).  Each metric
is an object of statistics with its unit; those of drafts are there only if the server reports
them in its responses (vLLM's ``--per-request-spec-decode-metrics``), so their absence does not
say that nothing was drafted.

``pooled_spec_decode_acceptance_histogram`` {accepted: rounds} is the sum over requests, and adds
up to ``total_spec_decode_steps``.  ``spec_decode_acceptance_length`` is a mean over requests and
is not used; ``spec_decode_token_weighted_acceptance_length`` is that of all rounds.  Of times,
``inter_chunk_latency`` is the gap between streamed chunks, which is a step, while
``inter_token_latency`` is per token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.counts.steps import StepTime
from specsim.engines.readers.documents import Object, documents, is_json
from specsim.engines.readers.figures import (
    LONGEST,
    Printed,
    agree,
    count,
    counts_of_histogram,
    with_draft_length,
)
from specsim.engines.readers.notes import BATCH_IS_A_MAXIMUM, PROMPTS_UNKNOWN
from specsim.engines.readers.reading import Reading

_HISTOGRAM = "pooled_spec_decode_acceptance_histogram"
_ROUNDS, _DRAFTED = "total_spec_decode_steps", "total_draft_tokens"
_ACCEPTED = "total_accepted_draft_tokens"
_LENGTH = "spec_decode_token_weighted_acceptance_length"
_MS = {"ms": 1e-3, "sec": 1.0, "s": 1.0, "us": 1e-6, "ns": 1e-9}

_NO_DRAFTS = (
    "the result has no drafts: the server did not report them, or did not draft, so the draft "
    "length of its step times is not known"
)
_FROM_LATENCY = (
    "the batch of the step times is request throughput times latency (Little's law), time on the "
    "prompt included"
)


def recognises(text: str) -> bool:
    """Whether a text is such a result."""
    return is_json(text) and (f'"{_HISTOGRAM}"' in text or '"aiperf_version"' in text)


def read(text: str) -> list[Reading]:
    """One reading for each result that has drafts or times of streamed chunks."""
    readings = [
        _reading(each)
        for each in documents(text)
        if isinstance(each, dict) and (_HISTOGRAM in each or "aiperf_version" in each)
    ]
    return [each for each in readings if each.counts is not None or each.steps]


def _reading(result: Object) -> Reading:
    counts = _counts(result)
    notes = [_NO_DRAFTS] if counts is None else [PROMPTS_UNKNOWN]
    if result.get("is_complete") is False:
        notes.append("the run ended before it was complete")
    steps = list(_steps(result, None if counts is None else counts.gamma, notes))
    return Reading(
        engine="aiperf",
        source="profile_export_aiperf.json",
        span="run",
        counts=counts,
        steps=tuple(steps),
        notes=tuple(notes),
    )


def _counts(result: Object) -> DraftCounts | None:
    """Counts of the histogram, checked against the totals that the file has beside it."""
    if result.get(_HISTOGRAM) is None:
        if result.get(_ROUNDS) is None:
            return None
        raise UnsupportedError(f"the result has {_ROUNDS} but no {_HISTOGRAM}; give it whole")
    words = result[_HISTOGRAM]
    if not isinstance(words, dict) or not words:
        raise InvalidArgumentError(f"{_HISTOGRAM} must be an object of rounds by accepted tokens")
    bins = {
        count(f"a key of {_HISTOGRAM}", j): count(f"{_HISTOGRAM}[{j}]", words[j]) for j in words
    }
    if max(bins) > LONGEST or len(bins) < len(words):
        raise InvalidArgumentError(f"the keys of {_HISTOGRAM} must differ and be <= {LONGEST}")
    histogram = [bins.get(j, 0) for j in range(max(bins) + 1)]
    rounds = sum(histogram)
    accepted = sum(j * each for j, each in bins.items())
    for name, found in ((_ROUNDS, rounds), (_ACCEPTED, accepted)):
        total = _metric(result, name)
        if total is not None and count(name, total) != found:
            raise InvalidArgumentError(
                f"{name} is {count(name, total)}, but the histogram gives {found}; the result was "
                "cut or changed"
            )
    if not rounds:
        raise UnsupportedError(f"{_HISTOGRAM} has no rounds")
    length = _metric(result, _LENGTH)
    if length is not None:
        agree(_LENGTH, Printed.of(_LENGTH, length), 1 + accepted / rounds, "the histogram")
    total = _metric(result, _DRAFTED)
    drafted = None if total is None else count(_DRAFTED, total)
    counts = counts_of_histogram(histogram, None, drafted)
    if drafted is None:
        return counts
    gamma = -(-drafted // rounds)
    if gamma > LONGEST or gamma < len(histogram) - 1:
        return counts
    return with_draft_length(counts_of_histogram(histogram, gamma, drafted), gamma)


def _metric(result: Object, name: str, statistic: str = "avg") -> Any:
    """A statistic of a metric; None where the metric is absent."""
    metric = result.get(name)
    if metric is None:
        return None
    if not isinstance(metric, dict) or metric.get(statistic) is None:
        raise InvalidArgumentError(f"{name} must be an object with {statistic!r}")
    return metric[statistic]


def _seconds(result: Object, name: str, statistic: str) -> float | None:
    word = _metric(result, name, statistic)
    if word is None:
        return None
    unit = str(result[name].get("unit"))
    if unit not in _MS:
        raise UnsupportedError(f"the unit {unit[:20]!r} of {name} is not known")
    return Printed.of(name, word).value * _MS[unit]


def _steps(result: Object, gamma: int | None, notes: list[str]) -> Iterator[StepTime]:
    """The median gap between chunks, at the concurrency of the run."""
    seconds = _seconds(result, "inter_chunk_latency", "p50")
    batch = _concurrency(result)
    if not batch:
        latency = _seconds(result, "request_latency", "avg")
        throughput = _metric(result, "request_throughput")
        if latency and throughput is not None:
            batch = latency * Printed.of("request_throughput", throughput).value
    if not seconds or not batch:
        return
    notes.append(BATCH_IS_A_MAXIMUM if _concurrency(result) else _FROM_LATENCY)
    yield StepTime(gamma, max(batch, 1.0), seconds)


def _concurrency(result: Object) -> float | None:
    """The concurrency of the last phase of the configuration, where that was what was set."""
    config = result.get("input_config")
    phases = config.get("phases") if isinstance(config, dict) else None
    if not isinstance(phases, list) or not phases or not isinstance(phases[-1], dict):
        return None
    last = phases[-1]
    if last.get("type") != "concurrency" or last.get("concurrency") is None:
        return None
    return float(count("concurrency", last["concurrency"])) or None
