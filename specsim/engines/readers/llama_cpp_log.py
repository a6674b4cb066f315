"""What llama.cpp's log tells of drafts: counts by drafter and draft length, and step times.

The lines of a request are its own.  A statistics line is of one drafter and counts since the
server started, so it has the same tokens again: where a request has one, the statistics are
counted and the request's own line is not, and of a growing series only the last line is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from specsim.counts.drafts import DraftCounts, DraftTotals
from specsim.counts.pooling import pooled_counts, pooled_totals
from specsim.counts.steps import StepTime
from specsim.engines.readers.figures import Printed, agree, count, reached_from_rates
from specsim.engines.readers.llama_cpp_lines import (
    Request,
    Statistics,
    recognises,
    requests_of,
)
from specsim.engines.readers.llama_cpp_rounds import (
    gamma_of,
    rounds_of_length,
    rounds_of_tokens,
)
from specsim.engines.readers.notes import RATE_IS_NOT_ALPHA
from specsim.engines.readers.reading import Reading, many

__all__ = ["read", "recognises"]

CUT = "the last draft of a request is cut to what is left of it, and still counts as one of K"
SHORTER = (
    "drafts were not all of one length, or too few to tell (--spec-draft-p-min, n-grams, the end "
    "of a request), so a position tells how often it was drafted and accepted"
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
# Steps that did not draft, or drafted otherwise, are fewer than this share of a request's.
_FEW = 0.05


def read(text: str) -> list[Reading]:
    """The statistics by drafter, and requests that have none by draft length."""
    requests = requests_of(text)
    if not any(each.found or each.statistics for each in requests):
        return _plain(requests)
    own = [(each, _of_request(each)) for each in requests if each.found]
    steps = [step for each, counts in own for step in _steps(each, counts)]
    uncovered = _uncovered(requests)
    drafters = list(dict.fromkeys(s.drafter for each in requests for s in each.statistics))
    readings = [
        *(each for drafter in drafters for each in _of_statistics(drafter, requests, own)),
        *_of_requests(
            [counts for each, counts in own if any(each is other for other in uncovered)],
            drafters[0] if len(drafters) == 1 else None,
        ),
    ]
    return _with_steps(readings, steps)


def _uncovered(requests: Sequence[Request]) -> list[Request]:
    """Requests whose drafts no statistics line has: those of a server's last n requests are in it.

    n is the number of requests that the statistics say were begun.
    """
    seen: Counter[str] = Counter()
    waiting: dict[str, list[tuple[int, Request]]] = {}
    for each in requests:
        if not each.found and not each.statistics:
            continue
        seen[each.process] += 1
        mine = waiting.setdefault(each.process, [])
        if each.statistics:
            first = seen[each.process] - max(s.requests for s in each.statistics)
            mine[:] = [(number, other) for number, other in mine if number <= first]
        else:
            mine.append((seen[each.process], each))
    return [request for mine in waiting.values() for _, request in mine]


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
        return rounds_of_length(length, accepted, drafted, request.rates)
    return rounds_of_tokens(request.tokens, accepted, drafted)


def _steps(request: Request, counts: DraftCounts | DraftTotals) -> Iterator[StepTime]:
    """The step time of a request, if nearly all its tokens came from rounds of one drafter."""
    rounds = sum(each.counts.rounds for each in request.statistics)
    main = [each for each in request.statistics if each.counts.rounds >= (1 - _FEW) * rounds]
    if isinstance(counts, DraftTotals):
        # The first request of a server has its rounds in the statistics after it.
        first = all(each.requests == 1 for each in request.statistics)
        accepted = sum(each.counts.accepted for each in request.statistics)
        if not main or not first or accepted != counts.accepted:
            return
        gamma = main[0].counts.gamma
    else:
        rounds, gamma = counts.rounds, counts.gamma
    if not request.eval_s or not request.tokens or not rounds:
        return
    others = request.tokens - 1 - counts.accepted - rounds
    if abs(others) > max(_FEW * rounds, gamma or 1):
        return
    seconds = request.eval_s / rounds
    draft_s = main[0].draft_s if main else None
    if draft_s is not None and draft_s >= seconds:
        draft_s = None
    yield StepTime(gamma, 1, seconds, steps=rounds, draft_s=draft_s)


def _plain(requests: Iterable[Request]) -> list[Reading]:
    """Steps of requests of a server that drafts nothing."""
    steps = tuple(
        StepTime(0, 1, each.eval_s / (each.tokens - 1), steps=each.tokens - 1)
        for each in requests
        if each.eval_s and each.tokens > 1
    )
    if not steps:
        return []
    source = f"log of {many(len(steps), 'request')} without drafts"
    return [Reading(engine="llama.cpp", source=source, span="request", steps=steps, notes=(ALONE,))]


def _of_statistics(
    drafter: str,
    requests: Sequence[Request],
    own: Sequence[tuple[Request, DraftCounts | DraftTotals]],
) -> Iterator[Reading]:
    """One reading for each draft length of a drafter, each server's life counted once."""
    alone = all(s.drafter == drafter for each in requests for s in each.statistics)
    drafted = {id(each): counts.drafted or 0.0 for each, counts in own if alone}
    last = _last_lines(
        [
            (f"{each.process}|{each.slot}", s, drafted.get(id(each), 0.0))
            for each in requests
            for s in each.statistics
            if s.drafter == drafter
        ]
    )
    notes = [_LIFE]
    made = sum(each.drafts for each in last)
    verified = sum(each.counts.rounds for each in last)
    if made > verified:
        notes.append(_UNVERIFIED.format(drafter=drafter, made=made, verified=verified))
    if alone:
        notes += _rolled_back(own, last)
    for counts, lives in pooled_counts(each.counts for each in last):
        yield Reading(
            engine="llama.cpp",
            source=f"statistics of {drafter}" + f", {lives} servers or slots" * (lives > 1),
            span="server",
            drafter=drafter,
            counts=counts,
            acceptance_law="greedy-drafts",
            notes=(*notes, *_of_lengths(counts)),
        )


_Line = tuple[str, Statistics, float]


def _last_lines(lines: Sequence[_Line]) -> list[Statistics]:
    """The last line of each series: of a server, or of a slot where slots count apart.

    lines : process and slot, statistics, and what the request before them drafted by itself
    """

    def one_series(group: Sequence[_Line]) -> bool:
        return all(before[1].goes_on(*after[1:]) for before, after in pairwise(group))

    by_process: dict[str, list[_Line]] = {}
    for line in lines:
        by_process.setdefault(line[0].partition("|")[0], []).append(line)
    found = []
    for group in by_process.values():
        by_slot: dict[str, list[_Line]] = {}
        for line in group:
            by_slot.setdefault(line[0], []).append(line)
        series = [*by_slot.values()]
        if one_series(group) or not all(one_series(each) for each in series):
            series = [group]
        for each in series:
            # Where a series falls, its server was started again.
            found += [a[1] for a, b in pairwise(each) if not a[1].goes_on(*b[1:])]
            found.append(each[-1][1])
    return found


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


def _of_requests(
    counted: Sequence[DraftCounts | DraftTotals], drafter: str | None
) -> Iterator[Reading]:
    """Requests without statistics, by draft length, and those without rounds."""
    with_rounds = [each for each in counted if isinstance(each, DraftCounts)]
    for counts, number in pooled_counts(with_rounds):
        yield Reading(
            engine="llama.cpp",
            source=f"log of {many(number, 'request')}",
            span="request",
            drafter=drafter,
            counts=counts,
            acceptance_law="greedy-drafts",
            notes=_of_lengths(counts),
        )
    totals = [each for each in counted if isinstance(each, DraftTotals)]
    if totals:
        yield Reading(
            engine="llama.cpp",
            source=f"log of {many(len(totals), 'request')} without rounds",
            span="request",
            totals=pooled_totals(totals),
            acceptance_law="greedy-drafts",
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
        source = f"log of {many(len(left), 'request')}, step times"
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
