"""What TensorRT-LLM prints of its drafts: statistics of iterations and of requests.

Iterations (``LLM.get_stats()``, GET /metrics): ``specDecodingStats`` of NVIDIA/TensorRT-LLM
cpp/include/tensorrt_llm/executor/types.h, written by
tensorrt_llm/_torch/pyexecutor/py_executor.py (main of about September 2026), with

    acceptanceLength = (numAcceptedTokens + numRequestsWithDraftTokens) / numRequestsWithDraftTokens
    draftOverhead    = specDecodingStats.iterLatencyMS / iterLatencyMS

so numRequestsWithDraftTokens is the rounds of an iteration, and draftOverhead the drafts' share
of its time, at most 1; one-model drafting does not time drafts apart.

Requests: ``speculative_decoding`` of a response (pull request #19311, open in September 2026) has
a histogram; before, ``request_perf_metrics`` had totals alone (#17082: zero on the PyTorch backend
until August 2026) and ``avg_decoded_tokens_per_iter`` a mean.  ``trtllm-bench --report_json``
(tensorrt_llm/bench/dataclasses/reporting.py) has lengths of requests; its draft tokens are the
maximum times the iterations, an upper bound (#14724), and are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.drafts import DraftCounts, DraftTotals, MeanLength
from specsim.counts.pooling import pooled_counts, pooled_totals
from specsim.counts.steps import StepTime
from specsim.engines.readers.documents import Object, is_json, objects
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

_ITERATION, _OF_DRAFTS = "iterLatencyMS", "specDecodingStats"
_REQUEST = "total_accepted_draft_tokens"
_MEAN = "avg_decoded_tokens_per_iter"
_REPORT = "acceptance_length_percentiles"

_NO_ROUNDS = (
    "numRequestsWithDraftTokens is missing, so rounds are not known: accepted and drafted tokens "
    "alone"
)
_BAD_LENGTH = (
    "acceptanceLength {length:g} fits no number of requests with {accepted} accepted tokens; it "
    "is not used"
)
_BAD_OVERHEAD = (
    "draftOverhead {overhead:g} is above 1, but it is the drafts' share of an iteration; it is "
    "not used"
)
_MEDIAN = "step times are medians of iterations without prompts in them"
_SCHEDULE = "num_spec_tokens is null, so K followed a schedule (draft_len_schedule) and varied"
_UPPER_BOUND = (
    "draft tokens of trtllm-bench are the maximum times the iterations, an upper bound, so its "
    "acceptance rate is a lower one; only the length is read, a mean over requests"
)
_MEAN_OF_REQUESTS = "the mean length is a mean over requests and has no counts"


def recognises(text: str) -> bool:
    """Whether a text has statistics of TensorRT-LLM."""
    return is_json(text) and (
        f'"{_OF_DRAFTS}"' in text
        or ("inflightBatchingStats" in text and f'"{_ITERATION}"' in text)
        or any(f'"{key}"' in text for key in (_REQUEST, _MEAN, _REPORT))
    )


def read(text: str) -> list[Reading]:
    """Iterations by draft length, requests by draft length, and means where there is no more."""
    found = objects(text)
    return [
        *_of_iterations([each for each in found if _ITERATION in each and _is_iteration(each)]),
        *_of_requests([each for each in found if _REQUEST in each]),
        *_of_means(found),
    ]


def _is_iteration(document: Object) -> bool:
    # specDecodingStats has an iterLatencyMS of its own, which is that of the drafts.
    return _OF_DRAFTS in document or "inflightBatchingStats" in document


def _of_iterations(iterations: Sequence[Object]) -> Iterator[Reading]:
    counted: list[DraftCounts] = []
    totals: list[DraftTotals] = []
    timed: dict[tuple[int, int, bool], list[tuple[float, float | None]]] = {}
    notes: list[str] = []
    for number, iteration in enumerate(iterations, start=1):
        drafts = iteration.get(_OF_DRAFTS) or {}
        if not isinstance(drafts, dict):
            raise InvalidArgumentError(f"{_OF_DRAFTS} of iteration {number} must be an object")
        counts = _of_iteration(drafts, notes)
        if isinstance(counts, DraftTotals):
            totals.append(counts)
        elif counts is not None:
            counted.append(counts)
        _time(iteration, drafts, counts, timed, notes)
    steps = [
        StepTime(
            gamma,
            batch,
            median(seconds for seconds, _ in rows),
            steps=len(rows),
            draft_s=_median_or_none([draft_s for _, draft_s in rows]),
            drafter_loaded=loaded,
        )
        for (gamma, batch, loaded), rows in sorted(timed.items())
    ]
    extra = tuple(dict.fromkeys(notes))
    for counts, number in pooled_counts(counted):
        mine = tuple(step for step in steps if step.gamma == counts.gamma)
        steps = [step for step in steps if step.gamma != counts.gamma]
        yield Reading(
            engine="tensorrt-llm",
            source=f"statistics of {many(number, 'iteration')}",
            span="run",
            counts=counts,
            steps=mine,
            law="greedy-drafts",
            notes=(*((_MEDIAN,) if mine else ()), *extra),
        )
    if totals:
        yield Reading(
            engine="tensorrt-llm",
            source=f"statistics of {many(len(totals), 'iteration')} without rounds",
            span="run",
            totals=pooled_totals(totals),
            law="greedy-drafts",
            notes=(_NO_ROUNDS, RATE_IS_NOT_ALPHA, *extra),
        )
    if steps:
        yield Reading(
            engine="tensorrt-llm",
            source="step times of iterations",
            span="run",
            steps=tuple(steps),
            notes=(_MEDIAN, *extra),
        )


def _of_iteration(drafts: Object, notes: list[str]) -> DraftCounts | DraftTotals | None:
    """Rounds of one iteration; totals where its requests are missing; None without drafts."""
    if not drafts.get("numDraftTokens"):
        return None
    drafted = count("numDraftTokens", drafts["numDraftTokens"])
    accepted = count("numAcceptedTokens", drafts.get("numAcceptedTokens"))
    word = drafts.get("acceptanceLength")
    length = None if word is None else Printed.of("acceptanceLength", word)
    if drafts.get("numRequestsWithDraftTokens") is None:
        if length is not None and not _some_requests(length, accepted, drafted):
            notes.append(_BAD_LENGTH.format(length=length.value, accepted=accepted))
        return DraftTotals(accepted, drafted)
    rounds = count("numRequestsWithDraftTokens", drafts["numRequestsWithDraftTokens"])
    if not rounds or drafted < rounds:
        raise InvalidArgumentError(
            f"{rounds} requests with draft tokens cannot have {drafted} of them; the statistics "
            "were cut or changed"
        )
    if length is not None:
        agree("acceptanceLength", length, 1 + accepted / rounds, "(accepted + requests) / requests")
    gamma = drafted // rounds if drafted % rounds == 0 else None
    return DraftCounts(gamma, rounds, accepted, drafted)


def _some_requests(length: Printed, accepted: int, drafted: int) -> bool:
    """Whether a whole number of requests has this length."""
    if not accepted:
        return length.low <= 1 <= length.high
    if length.high <= 1:
        return False
    near = round(accepted / (length.value - 1)) if length.value > 1 else drafted
    return 0 < near <= drafted and length.low <= 1 + accepted / near <= length.high


def _time(
    iteration: Object,
    drafts: Object,
    counts: DraftCounts | DraftTotals | None,
    timed: dict[tuple[int, int, bool], list[tuple[float, float | None]]],
    notes: list[str],
) -> None:
    """Add the time of an iteration in which all requests made one step of one draft length."""
    overhead = drafts.get("draftOverhead")
    share = None if overhead is None else Printed.of("draftOverhead", overhead).value
    if share is not None and share > 1:
        notes.append(_BAD_OVERHEAD.format(overhead=share))
        share = None
    batching = iteration.get("inflightBatchingStats")
    if not isinstance(batching, dict) or isinstance(counts, DraftTotals):
        return
    if batching.get("numGenRequests") is None or batching.get("numContextRequests") is None:
        return
    batch = count("numGenRequests", batching["numGenRequests"])
    prompts = count("numContextRequests", batching["numContextRequests"])
    seconds = Printed.of(_ITERATION, iteration[_ITERATION]).value / 1000
    if prompts or not batch or not seconds:
        return
    if counts is None:
        timed.setdefault((0, batch, _OF_DRAFTS in iteration), []).append((seconds, None))
    elif counts.gamma is not None and counts.rounds == batch:
        # Zero is written where drafts were not timed apart.
        draft_s = share * seconds if share and share < 1 else None
        timed.setdefault((counts.gamma, batch, True), []).append((seconds, draft_s))


def _median_or_none(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if len(known) == len(values) else None


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
            law="greedy-drafts",
            notes=schedule,
        )
    if totals:
        yield Reading(
            engine="tensorrt-llm",
            source=f"statistics of {many(len(totals), 'request')} without rounds",
            span="request",
            totals=pooled_totals(totals),
            law="greedy-drafts",
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
            law="greedy-drafts",
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
                law="greedy-drafts",
                notes=(_UPPER_BOUND,),
            )


def _has_counts(response: Object) -> bool:
    drafts = response.get("speculative_decoding")
    return isinstance(drafts, dict) and _REQUEST in drafts
