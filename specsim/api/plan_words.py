"""What a plan says in sentences, for people: the answer, what it is held against, and changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import isinf, isnan
from operator import itemgetter
from typing import TYPE_CHECKING

from specsim.api.result import Row, milliseconds
from specsim.checks import significant
from specsim.intervals import Interval
from specsim.serving.planning.sizing import slack

if TYPE_CHECKING:
    from specsim.api.plan_result import Answer, CapacityPlan, Sequences
    from specsim.serving.levels import ServiceLevel
    from specsim.serving.planning.crossing import Crossing


def sentences(found: CapacityPlan) -> list[str]:
    """One line each, the answer first."""
    lines = [_first(found), *_intervals(found)]
    drafts = found.best.planned.speculates
    other = found.without if drafts else found.with_drafts
    kind = "without drafts" if drafts else "with drafts"
    if other is not None and other is not found.best:
        lines.append(f"{kind}: {_words(found, other)}")
    elif found.met:
        tried = any(each.planned.speculates != drafts for each in found.answers)
        lines.append(f"{kind}: {'no set-up meets the levels' if tried else 'none was tried'}")
    lines += _other_cards(found)
    if found.gain is not None:
        lines.append(
            f"a card takes {_with_ends(found.gain)} times as many requests within the levels "
            "with drafts as without"
        )
    if found.stops is not None and found.with_drafts is not None:
        lines.append(_stops_words(found))
    if found.sequences is not None and found.met:
        limit = found.best.planned.setup.engine.limit
        lines.append(_sequences_words(found.sequences, limit))
    changes = _changes(found.by_rate)
    if changes:
        lines.append(f"at multiples of the rate (analytic): {changes}")
    shown = len(found.table())
    if len(found.answers) > shown:
        lines.append(
            f"{shown} of {len(found.answers):,} set-ups are shown; --format json and csv have all"
        )
    return lines


def _first(found: CapacityPlan) -> str:
    best = found.best
    if not found.met:
        return f"no set-up meets the levels; {_nearest(found, best)}"
    words = f"{_tie(found)}{_words(found, best)}"
    if best.price is not None:
        price = significant(best.price)
        words += f" in the unit of the price, {price} for an hour of a card"
    ends = found.replicas
    if ends is not None and ends.low < ends.high:
        most = "more than any number of" if isinf(ends.high) else f"{ends.high:.0f}"
        words += f"; {ends.low:.0f} to {most} replicas at the ends of its speed"
    return words


def _intervals(found: CapacityPlan) -> list[str]:
    """How sure what was simulated of the answer is, and which level may still be missed."""
    settled, levels = found.best.settled, found.levels
    if settled is None:
        return []
    words, doubtful, unknown = [], [], False
    for level in levels:
        each = settled.figures[level.name]
        words.append(f"{level.name} {_milliseconds(each)}")
        unknown |= isnan(each.high) and not isnan(each.best)
        if level.met(each.best) and not level.met(each.high):
            doubtful.append(level.name)
    line = f"simulated: {', '.join(words)}"
    if unknown:
        return [f"{line}, of too few requests for intervals: simulate more requests"]
    more = "simulate more requests"
    line += ", 95% intervals"
    if settled.speed is not None:
        line += " with what costs and acceptance leave open"
        more = "plan for more requests a second to leave room"
    else:
        line += " of chance alone"
    if doubtful:
        line += f", which do not all keep {' and '.join(doubtful)}: {more}"
    return [line]


def _sequences_words(sequences: Sequences, limit: str) -> str:
    if sequences.too_few:
        share = significant(100 * sequences.all_in_use, 2)
        return (
            f"all {sequences.count} sequences that fit are in use {share}% of the time, and "
            "requests wait"
        )
    return f"{limit} {sequences.count} holds all but 1 in 1,000 moments"


def _milliseconds(value: Interval[float]) -> str:
    if isnan(value.best):
        return "of no request"
    if isnan(value.low) or value.low == value.high:
        return milliseconds(value.best)
    low, high = significant(1e3 * value.low, 3), significant(1e3 * value.high, 3)
    return f"{milliseconds(value.best)} ({low} to {high})"


def _tie(found: CapacityPlan) -> str:
    """That the answer is the cheapest, or how it was chosen of two that cost the same."""
    plain, drafting = found.without, found.with_drafts
    if plain is None or drafting is None or plain.cost != drafting.cost:
        return "fewest cards: " if _unpriced(found) else "cheapest: "
    same = "the same price"
    if plain.cards == drafting.cards:
        count = plain.cards
        same = _cards(count) if plain.planned.accelerator else _replicas(count)
    if not plain.sustained or not drafting.sustained:
        return f"{same} either way: "
    # Of what costs the same, so that this is what each leaves beyond the workload.
    room = drafting.replicas * drafting.sustained / (plain.replicas * plain.sustained)
    held = "" if found.best is drafting or room < 1 else ", which is within the margin"
    return (
        f"{same} either way, drafts sustain {significant(room, 3)} times the rate (analytic)"
        f"{held}: "
    )


def _unpriced(found: CapacityPlan) -> bool:
    """Whether cards of several kinds are compared by their number."""
    several = {each.planned.accelerator for each in found.answers}
    return found.best.price is None and len(several) > 1


def _nearest(found: CapacityPlan, answer: Answer) -> str:
    """What of it misses which levels."""
    missed = [
        f"{each.name} {milliseconds(answer.figures[each.name])} of {milliseconds(each.limit_s)}"
        for each in found.levels
        if not each.met(answer.figures[each.name])
    ]
    where = f"with {_replicas(answer.replicas)}" if answer.replicas else "at no load"
    otherwise = "the queue grows without end" if answer.replicas else "it takes too many replicas"
    return f"nearest: {answer.planned.name}, {where}{_by(answer)}: {', '.join(missed) or otherwise}"


def other_cards(
    answers: Sequence[Answer], told: Sequence[Answer], levels: Sequence[ServiceLevel]
) -> list[Answer]:
    """The cheapest set-up of every kind of cards that none of those told is on; where none of them
    meets the levels, the nearest.
    """
    kinds: dict[str, list[Answer]] = {each.planned.accelerator: [] for each in answers}
    for each in answers:
        kinds[each.planned.accelerator].append(each)
    for each in told:
        kinds.pop(each.planned.accelerator, None)
    return [
        own[0] if own[0].met(levels) else min(own, key=lambda each: slack(each.figures, levels))
        for own in kinds.values()
    ]


def _other_cards(found: CapacityPlan) -> list[str]:
    """A line for each of them."""
    named = (found.best, found.with_drafts, found.without)
    told = [each for each in named if each is not None]
    lines = []
    for each in other_cards(found.answers, told, found.levels):
        name = each.planned.accelerator
        if each.met(found.levels):
            less = "none with fewer cards" if _unpriced(found) else "none of them cheaper"
            lines.append(f"with {name}, {less}: {_words(found, each)}")
        else:
            lines.append(f"with {name}, no set-up meets the levels; {_nearest(found, each)}")
    return lines


def _by(answer: Answer) -> str:
    """Whether it was not simulated."""
    return " (analytic)" if answer.settled is None else ""


def _words(found: CapacityPlan, answer: Answer) -> str:
    words = f"{_replicas(answer.replicas)} of {answer.planned.name}"
    if answer.planned.accelerator:
        words += f" ({_cards(answer.cards)})"
    words += _by(answer)
    cost = answer.per_million(found.tokens_per_s)
    if cost is not None:
        words += f", {significant(cost, 3)} per million tokens"
    return words


def _stops_words(found: CapacityPlan) -> str:
    assert found.stops is not None, "asked for where it is known"
    assert found.with_drafts is not None, "asked for where something drafts"
    drafts = f"drafts of {found.with_drafts.planned.name}"
    low, best, high = found.stops
    begin = ""
    if found.starts is not None and found.starts.rate > 0:
        begin = f" from {_short(found.starts.rate)} requests/s of a replica on"
    if best is None:
        words = f"{drafts} pay{begin or ' at every rate'} up to the capacity of a replica"
        return words if low is None else f"{words}; where they are slowest {_until(low)}"
    if best.rate == 0:
        fastest = "" if high == best else f"; where they are fastest {_until(high)}"
        return f"{drafts} pay at no rate: {found.why}{fastest}"
    if begin:
        begin = f" pay{begin}, and"
    ends = "" if low == high else f" ({_end(low)} to {_end(high)})"
    return (
        f"{drafts}{begin} stop paying at {_short(best.rate)}{ends} requests/s of a replica, where "
        f"{_short(best.batch)} decode: {found.why}"
    )


def _end(crossing: Crossing | None) -> str:
    return "the capacity" if crossing is None else _short(crossing.rate)


def _until(crossing: Crossing | None) -> str:
    if crossing is None:
        return "they pay at every rate"
    if crossing.rate == 0:
        return "they pay at none"
    return f"they stop at {_short(crossing.rate)} requests/s"


def _changes(rows: Sequence[Row]) -> str:
    """Which set-up is the cheapest at which of the rates, and its cards there."""
    words = []
    for best, alike in groupby(rows, key=itemgetter("best")):
        first, *others = alike
        rates, cards = f"{_short(first['rate'])}/s", _cards(first["cards"])
        if others:
            rates = ", ".join(_short(row["rate"]) for row in (first, *others)) + "/s"
            cards = f"{first['cards']:,} to {_cards(others[-1]['cards'])}"
        words.append(f"at {rates} {best} ({cards})")
    return "; ".join(words)


def _cards(count: int) -> str:
    return f"{count:,} card{'' if count == 1 else 's'}"


def _replicas(count: int) -> str:
    return f"{count:,} replica{'' if count == 1 else 's'}"


def _with_ends(value: Interval[float]) -> str:
    if isnan(value.low) or value.low == value.high:
        return _short(value.best)
    return f"{_short(value.best)} ({_short(value.low)} to {_short(value.high)})"


def _short(value: float) -> str:
    return significant(value, 3)
