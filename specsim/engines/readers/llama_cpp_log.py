"""What llama.cpp's log tells of drafts: counts by drafter and draft length, and step times.

The lines of a request are its own.  A statistics line is of one drafter and counts since the
server started, so it has the same tokens again: where a request has one, the statistics are
counted and the request's own line is not, and of a growing series only the last line is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, floor

from specsim.checks import InvalidArgumentError
from specsim.counts.drafts import DraftCounts, DraftTotals
from specsim.counts.pooling import pooled_counts
from specsim.counts.steps import StepTime
from specsim.engines.readers.figures import Printed, agree, count, reached_from_rates
from specsim.engines.readers.llama_cpp_lines import (
    FEW,
    Request,
    Statistics,
    gamma_of,
    recognises,
    requests_of,
)
from specsim.engines.readers.notes import RATE_IS_NOT_ALPHA
from specsim.engines.readers.reading import Reading

__all__ = ["read", "recognises"]

CUT = "the last draft of a request is cut to what is left of it, and still counts as one of K"
SHORTER = (
    "drafts ended early (--spec-draft-p-min, or n-grams that were shorter), so a position tells "
    "how often it was drafted and accepted"
)
_LIFE = "statistics lines count since the server started, so requests before the log are in them"
ALONE = (
    "the log does not say how many requests shared a step; step times are taken to be of one alone"
)
_ROLLED_BACK = (
    "requests say {accepted:g} of {drafted:g} draft tokens, the drafter's own statistics another "
    "share: where the cache cannot be rolled back, verification is repeated and counted again "
    "(ggml-org/llama.cpp #25682, #26320); the statistics are taken"
)
_UNVERIFIED = (
    "{drafter} made {made:g} drafts and {verified:g} were verified; tokens of the others are among "
    "the drafted ones"
)
# Rounds and a draft length that fit by chance: less than one time in ten if rounds >= 20 K.
_ROUNDS_TO_FIT = 20


def read(text: str) -> list[Reading]:
    """The statistics by drafter, and requests that have none by draft length."""
    requests = requests_of(text)
    if not any(each.found or each.statistics for each in requests):
        return _plain(requests)
    own = [(each, _of_request(each)) for each in requests if each.found]
    steps = [step for each, counts in own for step in _steps(each, counts)]
    readings = [
        *_of_statistics(requests, own),
        *_of_requests([counts for each, counts in own if not each.statistics]),
    ]
    return _with_steps(readings, steps)


def _of_request(request: Request) -> DraftCounts | DraftTotals:
    """What one request counted; its rounds where they can be told."""
    assert request.found is not None
    accepted = count("accepted", request.found["accepted"])
    drafted = count("generated", request.found["drafted"])
    totals = DraftTotals(accepted, drafted)
    if drafted:
        rate = Printed.of("draft acceptance", request.found["rate"])
        agree("draft acceptance", rate, accepted / drafted, "accepted / generated")
    rounds = _rounds(request, accepted, drafted)
    if rounds is None:
        return totals
    rates = request.rates
    return DraftCounts(
        gamma=gamma_of(rounds, drafted, 1, len(rates)),
        rounds=rounds,
        accepted=accepted,
        drafted=drafted,
        reached=reached_from_rates("acceptance by position", rates, rounds, accepted)
        if rates
        else (),
    )


def _rounds(request: Request, accepted: int, drafted: int) -> float | None:
    """Rounds of a request: from its mean length, or from its tokens if all drafts were alike."""
    assert request.found is not None
    if request.found["length"] is not None:
        length = Printed.of("mean len", request.found["length"])
        if not accepted:
            agree("mean len", length, 1.0, "nothing accepted")
            return None
        return _rounds_of_length(length, accepted, drafted, request.rates)
    return rounds_of_tokens(request.tokens, accepted, drafted)


def rounds_of_tokens(tokens: int, accepted: int, drafted: int) -> int | None:
    """Rounds of a request from its tokens; None unless they fit drafts of one length.

    tokens : all of them; the first came with the prompt's run, and the last step may not draft
    """
    steps = tokens - 1 - accepted
    fitting = [
        rounds
        for rounds in (steps, steps - 1)
        if rounds > 0
        and (gamma := gamma_of(rounds, drafted, 1)) is not None
        and rounds >= _ROUNDS_TO_FIT * gamma
    ]
    return fitting[0] if len(fitting) == 1 else None


def _rounds_of_length(
    length: Printed, accepted: int, drafted: int, rates: Sequence[Printed]
) -> float:
    """Rounds from length = 1 + accepted / rounds: the whole number that all else allows.

    Where several are left, the printed length itself decides, and the rounds are not whole.
    """
    if length.high <= 1 or accepted > drafted:
        raise InvalidArgumentError(
            f"mean len is {length.value:g} and {accepted} of {drafted} draft tokens were accepted; "
            "the line was cut or changed"
        )
    first = ceil(accepted / (length.high - 1) - 1e-9)
    last = floor(min(accepted / max(length.low - 1, 1e-9), drafted) + 1e-9)
    if first > last:
        raise InvalidArgumentError(
            f"no number of rounds gives mean len = {length.value:g} with {accepted} accepted of "
            f"{drafted} draft tokens; the line was cut or changed"
        )
    allowed = list(range(first, last + 1))[:10_000]
    if rates:
        allowed = [each for each in allowed if _explains(rates, each, accepted)]
        if not allowed:
            raise InvalidArgumentError(
                "no number of rounds gives the shares by position; the line was cut or changed"
            )
    alike = [each for each in allowed if gamma_of(each, drafted, 1, len(rates)) is not None]
    for possible in (allowed, alike):
        if len(possible) == 1:
            return possible[0]
    return min(max(accepted / (length.value - 1), allowed[0]), allowed[-1])


def _explains(rates: Sequence[Printed], rounds: int, accepted: int) -> bool:
    try:
        reached_from_rates("share", rates, rounds, accepted)
    except InvalidArgumentError:
        return False
    return True


def _steps(request: Request, counts: DraftCounts | DraftTotals) -> Iterator[StepTime]:
    """The step time of a request, if nearly all its tokens came from rounds of one drafter."""
    if not isinstance(counts, DraftCounts) or not request.eval_s or not request.tokens:
        return
    others = request.tokens - 1 - counts.accepted - counts.rounds
    if abs(others) > max(FEW * counts.rounds, counts.gamma or 1):
        return
    drafting = [each for each in request.statistics if each.draft_s is not None]
    rounds = sum(each.counts.rounds for each in drafting)
    main = [each for each in drafting if each.counts.rounds >= (1 - FEW) * rounds]
    seconds = request.eval_s / counts.rounds
    draft_s = main[0].draft_s if main else None
    if draft_s is not None and draft_s >= seconds:
        draft_s = None
    yield StepTime(counts.gamma, 1, seconds, steps=counts.rounds, draft_s=draft_s)


def _plain(requests: Iterable[Request]) -> list[Reading]:
    """Steps of requests of a server that drafts nothing."""
    steps = tuple(
        StepTime(0, 1, each.eval_s / (each.tokens - 1), steps=each.tokens - 1)
        for each in requests
        if each.eval_s and each.tokens > 1
    )
    if not steps:
        return []
    source = f"log of {len(steps)} request{'s' * (len(steps) > 1)} without drafts"
    return [Reading(engine="llama.cpp", source=source, span="request", steps=steps, notes=(ALONE,))]


def _of_statistics(
    requests: Sequence[Request], own: Sequence[tuple[Request, DraftCounts | DraftTotals]]
) -> Iterator[Reading]:
    """One reading a drafter and draft length, each server's life counted once."""
    drafters = list(dict.fromkeys(s.drafter for each in requests for s in each.statistics))
    for drafter in drafters:
        last = _last_lines(
            [(each.slot, s) for each in requests for s in each.statistics if s.drafter == drafter]
        )
        notes = [_LIFE]
        made = sum(each.drafts for each in last)
        verified = sum(each.counts.rounds for each in last)
        if made > verified:
            notes.append(_UNVERIFIED.format(drafter=drafter, made=made, verified=verified))
        if len(drafters) == 1:
            notes += _rolled_back(own, last)
        for counts, lives in pooled_counts(each.counts for each in last):
            yield Reading(
                engine="llama.cpp",
                source=f"statistics of {drafter}" + f" of {lives} servers" * (lives > 1),
                span="server",
                drafter=drafter,
                counts=counts,
                law="greedy-drafts",
                notes=(*notes, *_of_lengths(counts)),
            )


def _last_lines(lines: Sequence[tuple[str, Statistics]]) -> list[Statistics]:
    """The last line of each server, or of each slot where slots count apart (early 2026)."""
    everything = [each for _, each in lines]
    if all(before.goes_on(after) for before, after in pairwise(everything)):
        return everything[-1:]
    by_slot: dict[str, list[Statistics]] = {}
    for slot, each in lines:
        by_slot.setdefault(slot, []).append(each)
    groups = list(by_slot.values())
    if not all(before.goes_on(after) for group in groups for before, after in pairwise(group)):
        groups = [everything]
    return [
        before
        for group in groups
        for before, after in pairwise([*group, None])
        if before is not None and (after is None or not before.goes_on(after))
    ]


def _rolled_back(
    own: Sequence[tuple[Request, DraftCounts | DraftTotals]], last: Sequence[Statistics]
) -> list[str]:
    """A note where requests and statistics that cover the same drafts tell different shares."""
    covered = [counts for request, counts in own if request.statistics]
    if len(covered) != sum(each.requests for each in last):
        return []
    accepted = sum(each.accepted for each in covered)
    drafted = sum(each.drafted or 0.0 for each in covered)
    same = drafted == sum(each.counts.drafted or 0.0 for each in last)
    return [] if same else [_ROLLED_BACK.format(accepted=accepted, drafted=drafted)]


def _of_requests(counted: Sequence[DraftCounts | DraftTotals]) -> Iterator[Reading]:
    """Requests without statistics, by draft length, and those without rounds."""
    with_rounds = [each for each in counted if isinstance(each, DraftCounts)]
    for counts, number in pooled_counts(with_rounds):
        yield Reading(
            engine="llama.cpp",
            source=f"log of {number} request{'s' * (number > 1)}",
            span="request",
            counts=counts,
            law="greedy-drafts",
            notes=_of_lengths(counts),
        )
    totals = [each for each in counted if isinstance(each, DraftTotals)]
    if totals:
        first, *rest = totals
        yield Reading(
            engine="llama.cpp",
            source=f"log of {len(totals)} request{'s' * (len(totals) > 1)} without rounds",
            span="request",
            totals=sum(rest, first),
            law="greedy-drafts",
            notes=(RATE_IS_NOT_ALPHA,),
        )


def _of_lengths(counts: DraftCounts) -> tuple[str, ...]:
    if counts.gamma is None:
        return (SHORTER,)
    return (CUT,) if counts.drafted != counts.gamma * counts.rounds else ()


def _with_steps(readings: list[Reading], steps: Sequence[StepTime]) -> list[Reading]:
    """The readings, each with the steps of its draft length; others get a reading of their own."""
    found = []
    left = list(steps)
    for each in readings:
        mine = tuple(
            step for step in left if each.counts and step.gamma == each.counts.gamma is not None
        )
        left = [step for step in left if step not in mine]
        notes = (*each.notes, ALONE) if mine else each.notes
        found.append(replace(each, steps=mine, notes=notes))
    if left:
        source = f"log of {len(left)} request{'s' * (len(left) > 1)}, step times"
        found.append(
            Reading(
                engine="llama.cpp",
                source=source,
                span="request",
                steps=tuple(left),
                notes=(ALONE,),
            )
        )
    return found
