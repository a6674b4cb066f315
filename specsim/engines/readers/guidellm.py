"""GuideLLM's report, benchmarks.json.

Read from vllm-project/guidellm 0.8.1 (schemas/base/request_stats.py, schemas/base/info.py,
benchmark/schemas/report.py).  A report has a list ``benchmarks``; a benchmark has its requests by
how they ended, and a request has ``response_metrics``, which are vLLM's own metrics of that
request passed through as received.  Its times of the first and last token and the number of
chunks between them give the step time; ``inter_token_latency_ms`` is per token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.steps import StepTime
from specsim.engines.readers import vllm_requests
from specsim.engines.readers.documents import Object, documents, is_json
from specsim.engines.readers.figures import Printed, count
from specsim.engines.readers.notes import BATCH_IS_A_MAXIMUM, PROMPTS_UNKNOWN
from specsim.engines.readers.reading import Reading

_ACCEPTED = "num_accepted_draft_tokens"

_NO_DRAFTS = (
    "no request has speculative_decoding among its response_metrics (vLLM's "
    "--per-request-spec-decode-metrics), so the draft length of the step times is not known"
)
_MEAN_BATCH = (
    "the batch of the step times is the mean number of requests under way, time on the prompt "
    "included"
)


def recognises(text: str) -> bool:
    """Whether a text is such a report."""
    return is_json(text) and '"benchmarks"' in text and '"generative_benchmark' in text


def read(text: str) -> list[Reading]:
    """The readings of each benchmark: one for each draft length."""
    return [
        reading
        for report in documents(text)
        if isinstance(report, dict)
        for benchmark in _list(report.get("benchmarks"), "benchmarks")
        for reading in _of_benchmark(benchmark)
    ]


def _list(value: object, name: str) -> list[Object]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InvalidArgumentError(f"{name} of a report must be a list of objects")
    return value


def _of_benchmark(benchmark: Object) -> list[Reading]:
    by_end = benchmark.get("requests")
    if not isinstance(by_end, dict):
        raise InvalidArgumentError("requests of a benchmark must be an object")
    requests = _list(by_end.get("successful") or [], "requests.successful")
    drafts = [found for each in requests for found in _drafts(each)]
    batch, of_batch = _batch(benchmark)
    gaps = [gap for each in requests if (gap := _gap(each))]
    steps = (StepTime(None, batch, median(gaps)),) if gaps and batch else ()
    if not drafts:
        return [_reading(steps, (_NO_DRAFTS, of_batch))] if steps else []
    found = [
        replace(each, engine="guidellm", span="run", notes=(*each.notes, PROMPTS_UNKNOWN))
        for each in vllm_requests.readings(drafts)
    ]
    if steps and len(found) == 1 and found[0].counts is not None:
        steps = (replace(steps[0], gamma=found[0].counts.gamma),)
        found = [replace(found[0], steps=steps, notes=(*found[0].notes, of_batch))]
    return found


def _batch(benchmark: Object) -> tuple[float | None, str]:
    """Requests under way, and the note on where they are from; None where that is not told."""
    streams = _within(benchmark, "config", "strategy", "streams")
    if streams is not None:
        return float(count("streams", streams)) or None, BATCH_IS_A_MAXIMUM
    mean = _within(benchmark, "metrics", "request_concurrency", "successful", "mean")
    if mean is None:
        return None, _MEAN_BATCH
    value = Printed.of("request_concurrency", mean).value
    return (max(value, 1.0) if value else None), _MEAN_BATCH


def _within(document: object, *keys: str) -> object:
    """The value at a path of keys; None where there is none."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _reading(steps: tuple[StepTime, ...], notes: tuple[str, ...]) -> Reading:
    return Reading(
        engine="guidellm", source="benchmarks.json", span="run", steps=steps, notes=notes
    )


def _drafts(request: Object) -> Iterator[Object]:
    drafts = _within(request, "response_metrics", "speculative_decoding")
    if isinstance(drafts, dict):
        if _ACCEPTED not in drafts:
            raise UnsupportedError(f"the metrics of a request lack {_ACCEPTED}")
        yield drafts


def _gap(request: Object) -> float | None:
    """Seconds between the chunks of a request, in the mean."""
    timings = _within(request, "info", "timings")
    if not isinstance(timings, dict):
        return None
    first, last = timings.get("first_token_iteration"), timings.get("last_token_iteration")
    if first is None or last is None or timings.get("token_iterations") is None:
        return None
    chunks = count("token_iterations", timings["token_iterations"])
    between = Printed.of("last_token_iteration", last).value
    between -= Printed.of("first_token_iteration", first).value
    return between / (chunks - 1) if chunks > 1 and between > 0 else None
