"""TensorRT-LLM's statistics of requests, and the report of its benchmark.

``speculative_decoding`` of a response (NVIDIA/TensorRT-LLM pull request #19311, open in September
2026) has a histogram; before, ``request_perf_metrics`` had totals alone (#17082: zero on the
PyTorch backend until August 2026) and ``avg_decoded_tokens_per_iter`` a mean.  ``trtllm-bench
--report_json`` (tensorrt_llm/bench/dataclasses/reporting.py) has lengths of requests; its draft
tokens are the maximum times the iterations, an upper bound (#14724), and are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.drafts import DraftCounts, DraftTotals, MeanLength
from specsim.counts.pooling import pooled_counts, pooled_totals
from specsim.engines.readers.documents import Object, objects
from specsim.engines.readers.figures import (
    LONGEST,
    Printed,
    agree,
    count,
    counts_in,
    counts_of_histogram,
    with_draft_length,
)
from specsim.engines.readers.notes import RATE_IS_NOT_ALPHA
from specsim.engines.readers.reading import Reading, many

_REQUEST = "total_accepted_draft_tokens"
_MEAN = "avg_decoded_tokens_per_iter"
_REPORT = "acceptance_length_percentiles"

_SCHEDULE = "num_spec_tokens is null, so K followed a schedule (draft_len_schedule) and varied"
_UPPER_BOUND = (
    "draft tokens of trtllm-bench are the maximum times the iterations, an upper bound, so its "
    "acceptance rate is a lower one; only the length is read, a mean over requests"
)
_MEAN_OF_REQUESTS = "the mean length is a mean over requests and has no counts"


def recognises(text: str) -> bool:
    """Whether a JSON text has such statistics."""
    return any(f'"{key}"' in text for key in (_REQUEST, _MEAN, _REPORT))


def read(text: str) -> list[Reading]:
    """Requests by draft length, and means where there is no more."""
    found = objects(text)
    return [*_of_requests([each for each in found if _REQUEST in each]), *_of_means(found)]


def _of_requests(requests: Sequence[Object]) -> Iterator[Reading]:
    counted: list[DraftCounts] = []
    totals: list[DraftTotals] = []
    scheduled = False
    for request in requests:
        drafted = count("total_draft_tokens", request.get("total_draft_tokens"))
        accepted = count(_REQUEST, request[_REQUEST])
        if request.get("acceptance_rate") is not None and drafted:
            rate = Printed.of("acceptance_rate", request["acceptance_rate"])
            agree("acceptance_rate", rate, accepted / drafted, "accepted / drafted")
        if request.get("acceptance_histogram") is not None:
            scheduled = scheduled or request.get("num_spec_tokens") is None
            counted += _of_histogram(request, accepted, drafted)
        elif drafted:
            totals.append(DraftTotals(accepted, drafted))
    for counts, number in pooled_counts(counted):
        schedule = (_SCHEDULE,) if scheduled and counts.gamma is None else ()
        yield Reading(
            engine="tensorrt-llm",
            source=f"statistics of {many(number, 'request')}",
            span="request",
            counts=counts,
            acceptance_law="greedy-drafts",
            notes=schedule,
        )
    if totals:
        yield Reading(
            engine="tensorrt-llm",
            source=f"statistics of {many(len(totals), 'request')} without rounds",
            span="request",
            totals=pooled_totals(totals),
            acceptance_law="greedy-drafts",
            notes=(RATE_IS_NOT_ALPHA,),
        )


def _of_histogram(request: Object, accepted: int, drafted: int) -> list[DraftCounts]:
    """Counts of one request, with the identities sum h_j = steps and sum j h_j = accepted."""
    histogram = counts_in("acceptance_histogram", request["acceptance_histogram"])
    if len(histogram) > LONGEST:
        raise UnsupportedError(f"a histogram of {len(histogram)} lengths is no draft's")
    rounds = count("num_spec_steps", request.get("num_spec_steps"))
    of_it = sum(j * each for j, each in enumerate(histogram))
    if sum(histogram) != rounds or of_it != accepted:
        raise InvalidArgumentError(
            f"the histogram has {sum(histogram)} steps and {of_it} accepted tokens, but "
            f"num_spec_steps is {rounds} and {_REQUEST} {accepted}; the statistics were changed"
        )
    if not rounds:
        return []
    gamma = None
    if request.get("num_spec_tokens") is not None:
        gamma = count("num_spec_tokens", request["num_spec_tokens"])
        if drafted > gamma * rounds or gamma > LONGEST:
            raise InvalidArgumentError(
                f"total_draft_tokens must be at most num_spec_tokens = {gamma} in each of {rounds} "
                f"steps, got {drafted}"
            )
    counts = counts_of_histogram(histogram, gamma, drafted)
    return [counts if gamma is None else with_draft_length(counts, gamma)]


def _of_means(found: Sequence[Object]) -> Iterator[Reading]:
    """Mean lengths of responses without counts, and of a report of trtllm-bench."""
    means = [
        MeanLength(None, Printed.of(_MEAN, each[_MEAN]).value, weight_of="requests")
        for each in found
        if each.get(_MEAN) is not None and not _has_counts(each)
    ]
    if means:
        yield Reading(
            engine="tensorrt-llm",
            source=f"mean length of {many(len(means), 'response')}",
            span="request",
            length=sum(means[1:], means[0]),
            acceptance_law="greedy-drafts",
            notes=(_MEAN_OF_REQUESTS,),
        )
    for each in found:
        lengths = each.get(_REPORT)
        if isinstance(lengths, dict):
            average = Printed.of(f"average of {_REPORT}", lengths.get("average")).value
            yield Reading(
                engine="tensorrt-llm",
                source="report of trtllm-bench",
                span="run",
                length=MeanLength(None, average),
                acceptance_law="greedy-drafts",
                notes=(_UPPER_BOUND,),
            )


def _has_counts(response: Object) -> bool:
    drafts = response.get("speculative_decoding")
    return isinstance(drafts, dict) and _REQUEST in drafts
