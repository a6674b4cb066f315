"""GuideLLM's report, benchmarks.json.

Read from vllm-project/guidellm 0.8.1 (schemas/base/request_stats.py, schemas/base/info.py,
benchmark/schemas/report.py).  A report has a list ``benchmarks``; a benchmark has its requests by
how they ended, and a request has ``response_metrics``, which are vLLM's own metrics of that
request passed through as received.  Its times of the first and last token and the number of
chunks between them give the step time; ``inter_token_latency_ms`` is per token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.steps import StepTime
from specsim.engines.readers import vllm_requests
from specsim.engines.readers.documents import Object, documents, is_json
from specsim.engines.readers.figures import Printed, count
from specsim.engines.readers.reading import Reading

_METRICS = "response_metrics"
_ACCEPTED = "num_accepted_draft_tokens"

_NO_DRAFTS = (
    "no request has speculative_decoding among its response_metrics (vLLM's "
    "--per-request-spec-decode-metrics), so the draft length of the step times is not known"
)
_BATCH = (
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
    step = _step(benchmark, requests)
    if not drafts:
        return [] if step is None else [_reading(steps=(step,), notes=(_NO_DRAFTS, _BATCH))]
    found = vllm_requests.readings(drafts)
    if step is not None and len(found) == 1 and found[0].counts is not None:
        steps = (replace(step, gamma=found[0].counts.gamma),)
        found = [replace(found[0], steps=steps, notes=(*found[0].notes, _BATCH))]
    return [replace(each, engine="guidellm", span="run") for each in found]


def _reading(steps: tuple[StepTime, ...], notes: tuple[str, ...]) -> Reading:
    return Reading(
        engine="guidellm", source="benchmarks.json", span="run", steps=steps, notes=notes
    )


def _drafts(request: Object) -> Iterator[Object]:
    metrics = request.get(_METRICS)
    drafts = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if isinstance(drafts, dict):
        if _ACCEPTED not in drafts:
            raise UnsupportedError(f"the metrics of a request lack {_ACCEPTED}")
        yield drafts


def _step(benchmark: Object, requests: Sequence[Object]) -> StepTime | None:
    """The median over requests of their mean gap between chunks; of no known draft length."""
    gaps = [gap for each in requests if (gap := _gap(each))]
    batch = benchmark.get("metrics")
    for key in ("request_concurrency", "successful", "mean"):
        batch = batch.get(key) if isinstance(batch, dict) else None
    if not gaps or batch is None:
        return None
    mean = Printed.of("request_concurrency", batch).value
    return StepTime(None, max(mean, 1.0), median(gaps)) if mean else None


def _gap(request: Object) -> float | None:
    timings = request.get("info")
    timings = timings.get("timings") if isinstance(timings, dict) else None
    if not isinstance(timings, dict):
        return None
    first, last = timings.get("first_token_iteration"), timings.get("last_token_iteration")
    if first is None or last is None or timings.get("token_iterations") is None:
        return None
    chunks = count("token_iterations", timings["token_iterations"])
    between = Printed.of("last_token_iteration", last).value
    between -= Printed.of("first_token_iteration", first).value
    return between / (chunks - 1) if chunks > 1 and between > 0 else None
