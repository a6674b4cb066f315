"""vLLM's metrics of single requests (``--per-request-spec-decode-metrics summary | detailed``).

``metrics.speculative_decoding`` of a response (vllm-project/vllm pull request 48915;
vllm/v1/metrics/stats.py): ``acceptance_histogram[j]`` is the number of rounds with j accepted
drafts; earlier it was an object {"0": 39, "3": 3}.  Detailed ones have ``per_step_accepted`` and
``per_step_drafted``, one number a round.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.counts.pooling import pooled_counts
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
from specsim.engines.readers.notes import LENGTHS_APART
from specsim.engines.readers.reading import Reading, many

_ACCEPTED = "num_accepted_draft_tokens"
_HISTOGRAM = "acceptance_histogram"


def recognises(text: str) -> bool:
    """Whether a text has such metrics, in JSON or JSONL."""
    return is_json(text) and f'"{_ACCEPTED}"' in text


def read(text: str) -> list[Reading]:
    """One reading for each draft length, over all requests."""
    return readings([each for each in objects(text) if _ACCEPTED in each])


def readings(requests: list[Object]) -> list[Reading]:
    """One reading for each draft length of the metrics of these requests."""
    counted = [counts for each in requests for counts in request_counts(each)]
    if requests and not counted:
        raise UnsupportedError("no request has a round with a draft")
    number = len(requests)
    pooled = [
        counts if counts.gamma is None else with_draft_length(counts, counts.gamma)
        for counts, _ in pooled_counts(counted)
    ]
    return [
        Reading(
            engine="vllm",
            source=f"metrics of {many(number, 'request')}",
            span="request",
            counts=counts,
            acceptance_law="greedy-drafts",
            notes=(LENGTHS_APART,) * (len(pooled) > 1),
        )
        for counts in pooled
    ]


def request_counts(metrics: Object) -> list[DraftCounts]:
    """Counts of one request by draft length, checked against its other figures."""
    for key in (_HISTOGRAM, "num_spec_steps", "num_draft_tokens"):
        if metrics.get(key) is None:
            raise UnsupportedError(f"the metrics of a request lack {key}; give them whole")
    histogram = _histogram(metrics[_HISTOGRAM])
    rounds = count("num_spec_steps", metrics["num_spec_steps"])
    drafted = count("num_draft_tokens", metrics["num_draft_tokens"])
    accepted = count(_ACCEPTED, metrics[_ACCEPTED])
    _same("the rounds of the histogram", sum(histogram), "num_spec_steps", rounds)
    in_it = sum(j * each for j, each in enumerate(histogram))
    _same("the accepted tokens of the histogram", in_it, _ACCEPTED, accepted)
    if not rounds:
        return []
    if metrics.get("mean_acceptance_length") is not None:
        length = Printed.of("mean_acceptance_length", metrics["mean_acceptance_length"])
        agree("mean_acceptance_length", length, 1 + accepted / rounds, "the histogram")
    if drafted and metrics.get("draft_acceptance_rate") is not None:
        rate = Printed.of("draft_acceptance_rate", metrics["draft_acceptance_rate"])
        agree("draft_acceptance_rate", rate, accepted / drafted, "accepted / drafted")
    if metrics.get("per_step_drafted") is not None:
        return _by_step(metrics, rounds, drafted, accepted)
    gamma = metrics.get("num_spec_tokens")
    if gamma is not None:
        gamma = count("num_spec_tokens", gamma)
        if gamma >= LONGEST or drafted > rounds * gamma:
            raise InvalidArgumentError(
                f"num_draft_tokens must be at most num_spec_tokens = {gamma} in each of {rounds} "
                f"rounds, got {drafted}"
            )
    return [counts_of_histogram(histogram, gamma, drafted)]


def _by_step(metrics: Object, rounds: int, drafted: int, accepted: int) -> list[DraftCounts]:
    """Counts by the draft length of each round; rounds without a draft are plain steps."""
    of_round = counts_in("per_step_drafted", metrics["per_step_drafted"])
    stood = counts_in("per_step_accepted", metrics.get("per_step_accepted"))
    _same("the length of per_step_drafted", len(of_round), "num_spec_steps", rounds)
    _same("the length of per_step_accepted", len(stood), "num_spec_steps", rounds)
    _same("the sum of per_step_drafted", sum(of_round), "num_draft_tokens", drafted)
    _same("the sum of per_step_accepted", sum(stood), _ACCEPTED, accepted)
    found: dict[int, Counter[int]] = {}
    for gamma, j in zip(of_round, stood, strict=True):
        if j > gamma or gamma >= LONGEST:
            raise InvalidArgumentError(f"a round accepted {j} of {gamma} draft tokens")
        if gamma:
            found.setdefault(gamma, Counter())[j] += 1
    return [
        counts_of_histogram(
            [bins[j] for j in range(gamma + 1)], gamma, float(gamma * sum(bins.values()))
        )
        for gamma, bins in found.items()
    ]


def _histogram(words: Any) -> list[int]:
    if not isinstance(words, dict):
        return counts_in(_HISTOGRAM, words)
    bins = {count(f"a key of {_HISTOGRAM}", j): each for j, each in words.items()}
    if len(bins) < len(words) or max(bins, default=0) >= LONGEST:
        raise InvalidArgumentError(
            f"the keys of {_HISTOGRAM} must be different whole numbers < {LONGEST}"
        )
    return [count(f"{_HISTOGRAM}[{j}]", bins.get(j, 0)) for j in range(max(bins, default=0) + 1)]


def _same(what: str, found: int, key: str, expected: int) -> None:
    if found != expected:
        raise InvalidArgumentError(f"{what} must be {key} = {expected}, got {found}")
