"""What a law must know beside the structure of its scheme: how often things happen.

A description holds no chances.  Its law takes them as one of these small frozen dataclasses, and
they come from wherever one likes: numbers, a measured profile, recorded text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from specsim.acceptance import (
    Acceptance,
    BetaAcceptance,
    DecayingAcceptance,
    SurvivalAcceptance,
    acceptance_of,
)
from specsim.checks import InvalidArgumentError, numbers
from specsim.schemes.fields import (
    PROBABILITY,
    TABLE,
    Described,
    Words,
    described,
    same_size,
    settle,
)

# Drafter and verifier: whose tokens are accepted, and by whom.
Pair = tuple[str, str]


def acceptance_from_words(option: str, words: str) -> Acceptance:
    """``0.8``; ``0.9,0.8`` by position; ``beta:a,b``; ``decay:alpha,rate``; ``survival:S1,S2``."""
    kind, colon, rest = words.partition(":")
    if not colon:
        return acceptance_of(numbers(option, words.split(","), low=0, high=1).tolist())
    values = numbers(option, rest.split(",")).tolist()
    makers: dict[str, Callable[..., Acceptance]] = {
        "beta": BetaAcceptance,
        "decay": DecayingAcceptance,
        "survival": lambda *curve: SurvivalAcceptance(curve),
    }
    if kind not in makers:
        raise InvalidArgumentError(
            f"{option} must be a rate or one of {', '.join(makers)}:..., got {words}"
        )
    try:
        return makers[kind](*values)
    except TypeError:
        raise InvalidArgumentError(f"{option} {words} has the wrong number of numbers") from None


ALPHA = Words(
    "alpha[/alpha...]",
    lambda option, words: [
        tuple(acceptance_from_words(option, part.strip()) for part in words.split("/"))
    ],
)


class Known(Described):
    """Base of what a law may have to know; each is a frozen dataclass whose fields are options."""


@dataclass(frozen=True)
class Acceptances(Known):
    """How often each verifier accepts each drafter's tokens.

    Made of one acceptance, which then holds for every pair (a rate, a list of rates by position,
    anything in specsim.acceptance), of several, one per pair in the order of ``Scheme.pairs``, or
    of a mapping from pairs.  A list of plain numbers is one acceptance by position;
    ``Acceptances.of_pairs(0.8, 0.6)`` is two rates.
    """

    alpha: tuple[Acceptance, ...] | Mapping[Pair, Acceptance] = described(
        "Acceptance of a drafter's tokens: a rate, rates by position (0.9,0.8; the last one holds "
        "on), beta:a,b, decay:alpha,rate or survival:S1,S2. Between several models one for each "
        "pair, split by /: first of every drafter by the target, then by the drafters before it.",
        ALPHA,
    )

    def __post_init__(self) -> None:
        given: Any = self.alpha
        if isinstance(given, Mapping):
            settle(self, alpha={pair: acceptance_of(each) for pair, each in given.items()})
            return
        several = isinstance(given, (list, tuple)) and not all(
            isinstance(each, Real) for each in given
        )
        settle(self, alpha=tuple(map(acceptance_of, given if several else [given])))

    @classmethod
    def of_pairs(cls, *alphas: Any) -> Acceptances:
        """One for each pair, in the order of ``Scheme.pairs``; each a rate, a list, or made."""
        return cls(tuple(map(acceptance_of, alphas)))

    @classmethod
    def of(cls, known: Any) -> Acceptances:
        """What is known, where it is acceptances already or something that they are made of."""
        return known if isinstance(known, Acceptances) else cls(known)

    def by_pair(self, pairs: Sequence[Pair]) -> Mapping[Pair, Acceptance]:
        """The acceptance of each pair; raises InvalidArgumentError where one is missing."""
        if isinstance(self.alpha, Mapping):
            for drafter, verifier in pairs:
                if (drafter, verifier) not in self.alpha:
                    raise InvalidArgumentError(
                        f"alpha must have the acceptance of {drafter!r} by {verifier!r}, "
                        f"got those of {list(self.alpha)}"
                    )
            return self.alpha
        if len(self.alpha) == 1:
            return dict.fromkeys(pairs, self.alpha[0])
        named = ", ".join(f"{drafter} by {verifier}" for drafter, verifier in pairs)
        same_size("alpha", self.alpha, len(pairs), f"one or one for each of {named}")
        return dict(zip(pairs, self.alpha, strict=True))


@dataclass(frozen=True)
class FallbackRollback(Known):
    """How often BiLD's small model gives way and is overruled, wherever it stands (Kim23)."""

    fallback: float = described(
        "Probability that the small model gives way at a step.", PROBABILITY
    )
    rollback: float = described(
        "Probability that a drafted token is replaced, given that those before it stand.",
        PROBABILITY,
    )


@dataclass(frozen=True)
class DraftedAccepted(Known):
    """BiLD as it was counted: how often j tokens were drafted and the first m of them stood.

    Low confidence predicts rejection, so fallback and rollback depend on one another; this table
    holds any dependence.  Counts serve as well as probabilities.
    """

    table: tuple[tuple[float, ...], ...] = described(
        "Instead of chances: how often j = 0..window tokens were drafted and m = 0..j of them "
        "stood, one row for each j, split by /.",
        TABLE,
    )

    def __post_init__(self) -> None:
        rows = tuple(
            tuple(np.atleast_1d(numbers("table", row, low=0.0)).tolist()) for row in self.table
        )
        for drafted, row in enumerate(rows):
            same_size(f"table row {drafted}", row, drafted + 1, "one for each m = 0..j")
        if not sum(map(sum, rows)) > 0:
            raise InvalidArgumentError("table must have a weight > 0, all are zero")
        settle(self, table=rows)

    @property
    def window(self) -> int:
        """The longest draft that was possible when it was counted."""
        return len(self.table) - 1


@dataclass(frozen=True)
class Deferral(Known):
    """How often a small model hands over to the large one: a token, or a whole response."""

    deferral: float = described(
        "Probability that the small model defers: at a token, or a whole response.", PROBABILITY
    )

    @classmethod
    def of(cls, known: Any) -> Deferral:
        """What is known, where it is a deferral already or its chance."""
        return known if isinstance(known, Deferral) else cls(known)
