"""vLLM's log lines on drafts, of four generations.

* 2024, v0: "Speculative metrics: Draft acceptance rate: 0.642, System efficiency: 0.598, ...",
  sums since the start.  Its rate counts matches behind the first mismatch too; what was emitted
  is emitted = rounds (K + 1) efficiency, with rounds = draft tokens / K
  (vllm-project/vllm issues 9539, 7301 and 6768).
* April 2025: accepted and drafted tokens alone (pull request 15902).
* September 2025 and now: length, tokens and shares by position, of some ten seconds
  (pull request 24127; vllm/v1/spec_decode/metrics.py, ``SpecDecodingLogging.log``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, floor

from specsim.acceptance import AcceptanceLaw
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.drafts import DraftCounts, DraftTotals
from specsim.counts.pooling import pooled_counts, pooled_totals
from specsim.engines.readers.figures import (
    FIGURE,
    Printed,
    agree,
    count,
    explains,
    reached_from_rates,
    with_draft_length,
)
from specsim.engines.readers.notes import RATE_IS_NOT_ALPHA, SAME_LINES
from specsim.engines.readers.reading import Reading, many

_LINE = re.compile(r"(SpecDecoding|Speculative) metrics: (?P<fields>.*)")
# Mid-2025 versions print a line with nan in it where nothing was drafted.
_EMPTY = re.compile(r"(?:Drafted|draft tokens): 0(?:\.0+)?\b")
_V1_LAW: AcceptanceLaw = "greedy-drafts"

_WINDOWS = (
    "each log line is a window since the line before; windows without a draft are not printed"
)
_V0_SUMS = (
    "the sums of v0 are since the server started: of one server only the last line counts, so "
    "give one file of it"
)
_V0_RATE = (
    "the acceptance rate of v0 counts matches behind the first mismatch too; accepted tokens here "
    "are those emitted less one a round"
)


def recognises(text: str) -> bool:
    """Whether a text has such log lines."""
    return _LINE.search(text) is not None


def read(text: str) -> list[Reading]:
    """Lines with positions by their number, lines with totals alone, and those of v0."""
    windows: list[DraftCounts] = []
    totals: list[DraftTotals] = []
    cumulative: list[DraftCounts] = []
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.search(line)
        if found is None or _EMPTY.search(line):
            continue
        lines.append(line)
        try:
            if "System efficiency" in line:
                cumulative.append(_v0(found["fields"]))
            elif "length" in line or "Per-position" in line:
                windows.append(_window(found["fields"]))
            else:
                totals.append(DraftTotals(*_tokens(found["fields"])))
        except (InvalidArgumentError, UnsupportedError) as error:
            raise type(error)(f"line {number}: {error}") from None
    same = [SAME_LINES] * (len(set(lines)) < len(lines))
    return [*_windows(windows, same), *_totals(totals, same), *_lives(cumulative)]


def _windows(windows: Sequence[DraftCounts], same: Sequence[str]) -> Iterator[Reading]:
    for counts, lines in pooled_counts(windows):
        yield Reading(
            engine="vllm",
            source=many(lines, "log line"),
            span="window",
            counts=with_draft_length(counts, len(counts.reached)),
            acceptance_law=_V1_LAW,
            notes=(_WINDOWS, *same),
        )


def _totals(totals: Sequence[DraftTotals], same: Sequence[str]) -> Iterator[Reading]:
    if totals:
        yield Reading(
            engine="vllm",
            source=f"{many(len(totals), 'log line')} with totals alone",
            span="window",
            totals=pooled_totals(totals),
            acceptance_law=_V1_LAW,
            notes=(_WINDOWS, RATE_IS_NOT_ALPHA, *same),
        )


def _lives(lines: Sequence[DraftCounts]) -> Iterator[Reading]:
    """Sums of v0: of each server's life, which ends where a sum falls, the last line counts."""
    last = [
        before
        for before, after in pairwise([*lines, None])
        if before is not None and (after is None or not _goes_on(before, after))
    ]
    for counts, lives in pooled_counts(last):
        yield Reading(
            engine="vllm",
            source=f"log lines of v0, {lives} server {'lives' if lives > 1 else 'life'}",
            span="server",
            counts=counts,
            acceptance_law="ratio-test",
            notes=(_V0_SUMS, _V0_RATE),
        )


def _goes_on(before: DraftCounts, after: DraftCounts) -> bool:
    return (
        before.gamma == after.gamma
        and before.rounds <= after.rounds
        and before.accepted <= after.accepted
    )


def _field(fields: str, pattern: str, name: str) -> str:
    found = re.search(rf"{pattern}\s*({FIGURE})", fields)
    if found is None:
        raise UnsupportedError(f"the log line lacks {name!r}; give it whole")
    return found[1]


def _tokens(fields: str) -> tuple[int, int]:
    """Accepted and drafted tokens, checked against the printed rate."""
    accepted = count("Accepted", _field(fields, "(?:Accepted|accepted tokens):", "Accepted"))
    drafted = count("Drafted", _field(fields, "(?:Drafted|draft tokens):", "Drafted"))
    word = _field(fields, "Draft acceptance rate:", "Draft acceptance rate")
    rate = Printed.of("Draft acceptance rate", word.removesuffix("%"))
    if drafted:
        printed = rate.share() if word.endswith("%") else rate
        agree("Draft acceptance rate", printed, accepted / drafted, "accepted / drafted")
    return accepted, drafted


def _window(fields: str) -> DraftCounts:
    accepted, drafted = _tokens(fields)
    positions = re.search(r"Per-position acceptance rate:([^A-Za-z]*)", fields)
    if "coverage" in fields:
        raise UnsupportedError(
            "the log line has shares of the rounds that verified a position, not of all; read the "
            "counters of /metrics instead"
        )
    if positions is None:
        raise UnsupportedError("the log line lacks 'Per-position acceptance rate'; give it whole")
    words = [word.strip() for word in positions[1].strip(" ,").split(",")]
    rates = [Printed.of("Per-position acceptance rate", word) for word in words]
    length = Printed.of(
        "Mean acceptance length",
        _field(fields, "Mean acceptance length:", "Mean acceptance length"),
    )
    gamma = len(rates)
    rounds = drafted / gamma
    if drafted % gamma or not length.low <= 1 + accepted / max(rounds, 1) <= length.high:
        rounds = _rounds_of_varied(length, rates, accepted, drafted)
    return DraftCounts(
        gamma=gamma,
        rounds=rounds,
        accepted=accepted,
        drafted=drafted,
        reached=reached_from_rates("Per-position acceptance rate", rates, rounds, accepted),
    )


def _rounds_of_varied(
    length: Printed, rates: Sequence[Printed], accepted: int, drafted: int
) -> float:
    """Rounds where the draft length varied, from length = 1 + accepted / rounds.

    The whole number that all printed shares allow, or the best estimate where they allow several.
    """
    if not accepted:
        raise UnsupportedError(
            "drafts of different lengths and none accepted: the log line does not tell its rounds; "
            "leave the line out"
        )
    # Bounds from the length, from the sum of the shares, and from 1 to K drafts a round.
    low = [accepted / max(length.high - 1, 1e-9), accepted / max(sum(r.high for r in rates), 1e-9)]
    high = [accepted / max(length.low - 1, 1e-9), accepted / max(sum(r.low for r in rates), 1e-9)]
    first = ceil(max(*low, drafted / len(rates)) - 1e-6)
    last = floor(min(*high, drafted) + 1e-6)
    if first > last:
        raise InvalidArgumentError(
            f"no number of rounds explains a mean acceptance length of {length.value:g} with "
            f"{accepted} accepted and {drafted} draft tokens at {len(rates)} positions; the line "
            "was cut or changed"
        )
    if last - first < 1000:
        possible = [each for each in range(first, last + 1) if explains(rates, each, accepted)]
        if not possible:
            raise InvalidArgumentError(
                f"no number of rounds from {first} to {last} gives the shares by position; the "
                "line was cut or changed"
            )
        if len(possible) == 1:
            return possible[0]
    best = accepted / sum(each.value for each in rates)
    return min(max(best, first), last)


def _v0(fields: str) -> DraftCounts:
    def whole(name: str) -> int:
        return count(name, _field(fields, rf"{name}(?: tokens)?:", name).rstrip("."))

    gamma = whole("Number of speculative tokens")
    matched, drafted = whole("Number of accepted tokens"), whole("Number of draft tokens")
    emitted = whole("Number of emitted tokens")
    rate = Printed.of("acceptance rate", _field(fields, "Draft acceptance rate:", "rate"))
    efficiency = Printed.of("efficiency", _field(fields, "System efficiency:", "efficiency"))
    if not gamma or drafted % gamma:
        raise InvalidArgumentError(
            f"draft tokens must be a multiple of {gamma} speculative tokens, got {drafted}"
        )
    rounds = drafted // gamma
    if not rounds <= emitted <= rounds * (gamma + 1):
        raise InvalidArgumentError(
            f"emitted tokens must be 1 to {gamma + 1} in each of {rounds} rounds, got {emitted}"
        )
    if drafted:
        agree("Draft acceptance rate", rate, matched / drafted, "accepted / draft tokens")
        share = emitted / (rounds * (gamma + 1))
        agree("System efficiency", efficiency, share, "emitted / (rounds (K + 1))")
    return DraftCounts(gamma=gamma, rounds=rounds, accepted=emitted - rounds, drafted=drafted)
