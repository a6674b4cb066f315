"""What llama.cpp prints of its drafts: its log, scrapes of /metrics, and ``timings`` of responses.

``timings`` of a response (ggml-org/llama.cpp pull request #12603; tools/server/server-common.cpp
of 0c1e57098) has the tokens drafted, accepted and predicted, and no rounds.  Every step gives one
token beside the accepted ones, so predicted - accepted is the number of steps, up to the first
token, which came with the prompt; a step is a round only if it drafted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specsim.checks import InvalidArgumentError
from specsim.counts.drafts import DraftCounts, DraftTotals, MeanLength
from specsim.counts.pooling import pooled_counts, pooled_totals
from specsim.counts.steps import StepTime
from specsim.engines.readers import llama_cpp_log, prometheus
from specsim.engines.readers.documents import Object, is_json, objects
from specsim.engines.readers.figures import Printed, count
from specsim.engines.readers.llama_cpp_log import ALONE, CUT, SHORTER
from specsim.engines.readers.llama_cpp_rounds import rounds_of_tokens
from specsim.engines.readers.reading import Reading, many

_PREFIX = "llamacpp"
_DRAFTED, _ACCEPTED, _PREDICTED = "draft_n", "draft_n_accepted", "predicted_n"

_STEPS = (
    "timings have no rounds: steps are predicted_n - draft_n_accepted, less the first token; that "
    "each of them drafted is taken from draft_n, which fits one draft length"
)
_NOT_ALL_DRAFTED = (
    "timings have no rounds, and draft_n fits no single draft length: some steps drafted less or "
    "nothing, so the mean length is of all steps and there is no acceptance by round"
)


def recognises(text: str) -> bool:
    """Whether a text is of llama.cpp."""
    return (
        prometheus.has_counters(text, _PREFIX)
        or llama_cpp_log.recognises(text)
        or _has_timings(text)
    )


def read(text: str) -> list[Reading]:
    """All readings of a text, of every form that is in it."""
    # A log line may begin like JSON, with its process in brackets.
    if _has_timings(text):
        return _of_timings([each for each in objects(text) if _ACCEPTED in each])
    found: list[Reading] = []
    if prometheus.has_counters(text, _PREFIX):
        # A drafted token is accepted if the target's sampler draws the same one.
        scrapes = prometheus.read_scrapes(text, _PREFIX, "llama.cpp", "greedy-drafts")
        found += [_with_note(each) for each in scrapes]
    if llama_cpp_log.recognises(text):
        found += llama_cpp_log.read(text)
    return found


def _has_timings(text: str) -> bool:
    return is_json(text) and f'"{_ACCEPTED}"' in text and f'"{_PREDICTED}"' in text


def _with_note(scrape: Reading) -> Reading:
    """The scrape, with what a length that varies says of its positions."""
    if scrape.counts is None or scrape.counts.gamma is not None:
        return scrape
    return replace(scrape, notes=(*scrape.notes, SHORTER))


def _of_timings(responses: Sequence[Object]) -> list[Reading]:
    """Responses by draft length, and together those that fit none."""
    counted: list[DraftCounts] = []
    steps: list[StepTime] = []
    totals: list[DraftTotals] = []
    lengths: list[MeanLength] = []
    for response in responses:
        predicted, drafted, accepted = (
            count(name, response.get(name)) for name in (_PREDICTED, _DRAFTED, _ACCEPTED)
        )
        calls = predicted - 1 - accepted
        if accepted > drafted or (drafted and calls < 1):
            raise InvalidArgumentError(
                f"timings of {predicted} predicted tokens cannot have {accepted} accepted of "
                f"{drafted} drafted ones; they were cut or changed"
            )
        rounds = rounds_of_tokens(predicted, accepted, drafted)
        if not drafted:
            continue
        if rounds is None:
            totals.append(DraftTotals(accepted, drafted))
            lengths.append(MeanLength(None, 1 + accepted / calls, calls, "target runs"))
            continue
        gamma = -(-drafted // rounds)
        counted.append(DraftCounts(gamma, rounds, accepted, drafted))
        if response.get("predicted_ms") is not None:
            seconds = Printed.of("predicted_ms", response["predicted_ms"]).value / 1000 / calls
            if seconds:
                steps.append(StepTime(gamma, 1, seconds, steps=calls))
    found = [
        Reading(
            engine="llama.cpp",
            source=f"timings of {many(number, 'response')}",
            span="request",
            counts=counts,
            steps=tuple(each for each in steps if each.gamma == counts.gamma),
            acceptance_law="greedy-drafts",
            notes=(_STEPS, CUT, ALONE),
        )
        for counts, number in pooled_counts(counted)
    ]
    if totals:
        number = len(totals)
        found.append(
            Reading(
                engine="llama.cpp",
                source=f"timings of {many(number, 'response')} without rounds",
                span="request",
                totals=pooled_totals(totals),
                length=sum(lengths[1:], lengths[0]),
                acceptance_law="greedy-drafts",
                notes=(_NOT_ALL_DRAFTED,),
            )
        )
    return found
