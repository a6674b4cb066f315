"""Numbers as engines print them: rounded, and checked against each other.

A printed figure stands for every number that rounds to it.  Two figures that no numbers can
explain together mean that the text was cut or changed, or that it is not what it looks like;
that is an error and never a guess.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specsim.checks import InvalidArgumentError
from specsim.counts.drafts import DraftCounts

# A number in a regular expression; ``Printed.of`` says what is wrong with one that is not.
FIGURE = r"[^\s,|}\"]+"

_NUMBER = re.compile(r"\d+(\.\d*)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
# Beyond this float64 holds not every whole number.
_LARGEST_WHOLE = 2.0**53
# Rounds that may have drafted less than the others and still be of one draft length.
MOST_SHORT = 0.05
# Longer than any draft: figures that say so are not of drafts.
LONGEST = 1000
# Sums and quotients of float64 beside what was printed in full precision.
_FLOAT = 1e-9


@dataclass(frozen=True)
class Printed:
    """A printed number >= 0, and half a unit of its last digit."""

    value: float
    half: float

    @classmethod
    def of(cls, name: str, word: object) -> Printed:
        """A word of a text or a number of a JSON document; ``name`` is what it is called there."""
        text = str(word).strip()
        if isinstance(word, bool) or len(text) > 400 or not _NUMBER.fullmatch(text):
            raise InvalidArgumentError(f"{name} must be a number >= 0, got {text[:40]!r}")
        value = float(text)
        if not math.isfinite(value):
            raise InvalidArgumentError(f"{name} must be finite, got {text[:40]!r}")
        mantissa, _, exponent = text.lower().partition("e")
        decimals = len(mantissa.partition(".")[2])
        power = int(exponent[:6] or 0) - decimals
        half = 0.5 * 10.0**power if -400 < power < 300 else 0.0
        return cls(value, half)

    @property
    def low(self) -> float:
        return self.value - self.half - _FLOAT * self.value

    @property
    def high(self) -> float:
        return self.value + self.half + _FLOAT * self.value

    def share(self) -> Printed:
        """Of a percentage, the share."""
        return Printed(self.value / 100, self.half / 100)


def count(name: str, word: object) -> int:
    """A whole number >= 0 as printed: 3000, 3000.0 or 3e3."""
    value = Printed.of(name, word).value
    if value != math.floor(value) or value > _LARGEST_WHOLE:
        raise InvalidArgumentError(f"{name} must be a whole number >= 0, got {str(word)[:40]}")
    return int(value)


def counts_in(name: str, words: Any) -> list[int]:
    """Whole numbers in a list of a JSON document."""
    if not isinstance(words, list):
        raise InvalidArgumentError(f"{name} must be a list of whole numbers, got {words!r:.40}")
    return [count(f"{name}[{i}]", word) for i, word in enumerate(words)]


def agree(name: str, printed: Printed, expected: float, reason: str) -> None:
    """Refuse a figure that is not the rounded ``expected``, which ``reason`` gives."""
    if not printed.low <= expected <= printed.high:
        raise InvalidArgumentError(
            f"{name} is printed as {printed.value:g}, but {reason} gives {expected:.6g}; the text "
            "was cut or changed, or these lines do not belong together"
        )


def reached_from_rates(
    name: str, rates: Sequence[Printed], rounds: float, accepted: float
) -> tuple[float, ...]:
    """Rounds that got to each position, from printed shares of all ``rounds``.

    Whole where the printed digits leave one whole number, else the share times the rounds.  The
    sum over positions must be what was accepted.
    """
    known: list[int | None] = []
    for position, rate in enumerate(rates, start=1):
        if rate.value > 1:
            raise InvalidArgumentError(
                f"{name} at position {position} must be a share <= 100 %, got {rate.value:g}"
            )
        first, last = math.ceil(rate.low * rounds), math.floor(rate.high * rounds)
        if first > last and rounds == math.floor(rounds):
            raise InvalidArgumentError(
                f"{name} at position {position} is printed as {rate.value:g}, which is no whole "
                f"number of {rounds:g} rounds; the text was cut or changed"
            )
        known.append(first if first == last else _near_whole(rate.value * rounds))
    least = sum(each.low for each in rates) * rounds
    most = sum(each.high for each in rates) * rounds
    open_positions = [i for i, each in enumerate(known) if each is None]
    rest = accepted - sum(each for each in known if each is not None)
    if not least <= accepted <= most or (not open_positions and rest):
        total = sum(each.value for each in rates) * rounds
        raise InvalidArgumentError(
            f"{name} adds up to {total:.6g} accepted tokens in {rounds:g} rounds, but "
            f"{accepted:g} were accepted; the text was cut or changed"
        )
    if len(open_positions) == 1:  # then the sum tells it
        (i,) = open_positions
        if rates[i].low * rounds <= rest <= rates[i].high * rounds:
            known[i] = round(rest)
    return tuple(
        min(rate.value, 1.0) * rounds if each is None else float(each)
        for each, rate in zip(known, rates, strict=True)
    )


def explains(rates: Sequence[Printed], rounds: int, accepted: int) -> bool:
    """Whether so many rounds can have these printed shares and so many accepted tokens."""
    try:
        reached_from_rates("share", rates, rounds, accepted)
    except InvalidArgumentError:
        return False
    return True


def _near_whole(value: float) -> int | None:
    """Of a share in full precision times its rounds, the whole number that it was."""
    near = round(value)
    return near if abs(value - near) < _FLOAT * max(value, 1.0) else None


def with_draft_length(counts: DraftCounts, gamma: int) -> DraftCounts:
    """The counts with this draft length if all but a few rounds drafted as many.

    Engines draft less at the end of a context.  Tokens missing from full drafts are at most
    ``MOST_SHORT`` a round, so at most that share of the rounds was short.
    """
    assert counts.drafted is not None
    missing = counts.rounds * gamma - counts.drafted
    constant = 0 <= missing <= MOST_SHORT * counts.rounds and gamma > 0
    return replace(counts, gamma=gamma if constant else None)


def counts_of_histogram(
    histogram: Sequence[int], gamma: int | None, drafted: float | None = None
) -> DraftCounts:
    """Counts from the number of rounds with 0, 1, 2, ... accepted drafts.

    gamma : the draft length where all rounds had one; the histogram may end before it
    """
    if gamma is not None and any(histogram[gamma + 1 :]):
        raise InvalidArgumentError(
            f"the histogram has rounds with more than gamma = {gamma} accepted tokens"
        )
    length = len(histogram) - 1 if gamma is None else gamma
    bins = [*histogram, *[0] * (length + 1 - len(histogram))][: length + 1]
    return DraftCounts(
        gamma=gamma,
        rounds=sum(bins),
        accepted=sum(j * rounds for j, rounds in enumerate(bins)),
        drafted=drafted,
        reached=tuple(float(sum(bins[i:])) for i in range(1, length + 1)),
    )
