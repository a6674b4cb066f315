"""TensorRT-LLM's statistics of iterations: ``LLM.get_stats()``, GET /metrics.

``specDecodingStats`` of NVIDIA/TensorRT-LLM cpp/include/tensorrt_llm/executor/types.h, written by
tensorrt_llm/_torch/pyexecutor/py_executor.py (main of about September 2026), has

    acceptanceLength = (numAcceptedTokens + numRequestsWithDraftTokens) / numRequestsWithDraftTokens
    draftOverhead    = specDecodingStats.iterLatencyMS / iterLatencyMS

so numRequestsWithDraftTokens is the rounds of an iteration, and draftOverhead the drafts' share
of its time, at most 1; one-model drafting does not time drafts apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from specsim.checks import InvalidArgumentError
from specsim.counts.drafts import DraftCounts, DraftTotals
from specsim.counts.pooling import pooled_counts, pooled_totals
from specsim.counts.steps import StepTime
from specsim.engines.readers.documents import Object, objects
from specsim.engines.readers.figures import Printed, agree, count
from specsim.engines.readers.notes import RATE_IS_NOT_ALPHA
from specsim.engines.readers.reading import Reading, many

_ITERATION, _OF_DRAFTS = "iterLatencyMS", "specDecodingStats"

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


def recognises(text: str) -> bool:
    """Whether a JSON text has such statistics."""
    return f'"{_OF_DRAFTS}"' in text or (
        "inflightBatchingStats" in text and f'"{_ITERATION}"' in text
    )


def read(text: str) -> list[Reading]:
    """Iterations by draft length, and step times of the others."""
    found = objects(text)
    return [*_of_iterations([each for each in found if _ITERATION in each and _is_iteration(each)])]


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
            acceptance_law="greedy-drafts",
            notes=(*((_MEDIAN,) if mine else ()), *extra),
        )
    if totals:
        yield Reading(
            engine="tensorrt-llm",
            source=f"statistics of {many(len(totals), 'iteration')} without rounds",
            span="run",
            totals=pooled_totals(totals),
            acceptance_law="greedy-drafts",
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
