"""What a scheme is: a frozen description of a block, and what follows from it.

A description says structure and numbers: who drafts, how many tokens, who reviews, by which rule.
It holds no acceptance and no time.  Three readers interpret it: the law (here, with what is known
of acceptance), the replay (specsim.predict.replay, with recorded text) and the decoder
(calibrate.decode.build, with models).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from specsim.acceptance import Acceptance, AcceptanceLaw
from specsim.checks import UnsupportedError
from specsim.laws import TARGET, BlockLaw, Run
from specsim.schemes.drafters import Drafter
from specsim.schemes.fields import Described, options
from specsim.schemes.known import Acceptances, Known, Pair
from specsim.schemes.policies import AdaptiveDraft, GammaPolicy
from specsim.schemes.proposals import acceptance_pairs, block_law

if TYPE_CHECKING:
    from specsim.rules import Rule

# Fields that a table of schemes has, where a scheme has them.
_COUNTS = ("gamma", "steps", "at_least")


class Scheme(Described, ABC):
    """Base of all schemes; each is a frozen dataclass whose fields are ``described``.

    A new scheme has fields, ``pairs``, ``law`` and an example, and one line in
    ``specsim.schemes.SCHEMES``; all else is derived, and overridden where it can be said better.

    example : options of one working command line; empty where there are none
    knows : kinds of what its law must know, any one of them; none where it must know nothing
    """

    example: ClassVar[str] = ""
    knows: ClassVar[tuple[type[Known], ...]] = (Acceptances,)

    @property
    @abstractmethod
    def pairs(self) -> tuple[Pair, ...]:
        """(drafter, verifier) in the order in which acceptances are given."""

    @property
    def lossless(self) -> bool:
        """Does what it emits have the target's law?"""
        return False

    @property
    def models(self) -> tuple[str, ...]:
        """The draft models and other drafters that it runs."""
        return tuple(dict.fromkeys(drafter for drafter, _ in self.pairs))

    @abstractmethod
    def law(self, known: Any) -> BlockLaw:
        """The law of one block.

        known : one of ``knows``, or what it is made of; for acceptances a rate, a list of rates
            by position, or anything in specsim.acceptance, then the same for every pair

        Raises UnsupportedError where state is carried across blocks.
        """

    def stationary_law(self, known: Any) -> BlockLaw:
        """The law of a block picked at random from a long run: ``law``, unless state is carried.

        Raises UnsupportedError where it is not known.
        """
        return self.law(known)

    def policy(self) -> GammaPolicy:
        """How gamma follows from what was accepted before."""
        raise UnsupportedError(
            f"{type(self).__name__} carries no state across blocks and has no policy: use its law"
        )

    def source(self, known: Any) -> BlockLaw | AdaptiveDraft:
        """What Monte Carlo draws blocks from: the law, or a policy and what it acts on."""
        return self.law(known)

    def baseline(self) -> BlockLaw:
        """What a speedup is measured against: plain decoding by the target."""
        return plain_decoding()

    @classmethod
    def implied_by(cls, known: Any) -> Mapping[str, Any]:
        """Fields that what is known decides, for a command line that does not name them."""
        return {}

    @property
    def label(self) -> str:
        """A short name for people, which tells settings of one scheme apart."""
        own = {name: getattr(self, name) for name in options(type(self))}
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in own.items())

    def row_fields(self) -> dict[str, Any]:
        """The same as fields of a row: drafters, gamma, steps, rule, threshold where they apply."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        counts = {name: own[name] for name in _COUNTS if own.get(name) is not None}
        rule = own.get("rule")
        return {
            "drafters": ", ".join(self.models),
            **{name: row_value(value) for name, value in counts.items()},
            **(rule_fields(rule) if rule is not None else {}),
        }


class OneDraft(Scheme):
    """A scheme of one draft model, before the target."""

    draft: str

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return ((self.draft, TARGET),)

    def acceptance(self, known: Any) -> Acceptance:
        """Of the draft model's tokens by the target."""
        return Acceptances.of(known).by_pair(self.pairs)[self.draft, TARGET]


class DraftingScheme(Scheme):
    """A scheme whose block is a proposal and the target's verdict on it."""

    bonus: bool = True
    rule: Rule | None = None
    acceptance_law: AcceptanceLaw = "ratio-test"

    @property
    @abstractmethod
    def drafter(self) -> Drafter:
        """What drafts, described for all readers."""

    @property
    def lossless(self) -> bool:
        return self.rule is None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return acceptance_pairs(self.drafter)

    def law(self, known: Any) -> BlockLaw:
        acceptances = Acceptances.of(known).by_pair(self.pairs)
        return block_law(self.drafter, acceptances, bonus=self.bonus)

    @property
    def label(self) -> str:
        parts = [self.drafter.label]
        parts += [rule_label(self.rule)] if self.rule else []
        parts += [self.acceptance_law] if self.acceptance_law != "ratio-test" else []
        parts += [] if self.bonus else ["no bonus"]
        return ", ".join(parts)


def plain_decoding(positions: int = 1) -> BlockLaw:
    """One target run emits one token; it reads one, or the last one of every beam."""
    return BlockLaw(np.ones(1), np.ones(1, dtype=np.int64), {Run(TARGET, positions): np.ones(1)})


def row_value(count: int | tuple[int, ...]) -> int | str:
    """A count, or several of them as text; one of a kind is itself."""
    if isinstance(count, int):
        return count
    return count[0] if len(count) == 1 else ", ".join(map(str, count))


def rule_fields(rule: Rule) -> dict[str, Any]:
    """A rule as fields of a row: its name, and its threshold or whatever numbers it has."""
    values = [getattr(rule, each.name) for each in fields(rule)]  # type: ignore[arg-type]
    numbers = [value for value in values if isinstance(value, Real)]
    threshold = numbers[0] if len(numbers) == 1 else ", ".join(f"{value:g}" for value in numbers)
    return {"rule": type(rule).__name__, **({"threshold": threshold} if numbers else {})}


def rule_label(rule: Rule) -> str:
    """A rule for people: its name and its numbers."""
    named = rule_fields(rule)
    return " ".join(f"{value:g}" if isinstance(value, Real) else value for value in named.values())
