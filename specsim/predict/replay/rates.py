"""What a law must know of a scheme, as recorded text shows it.

A law takes acceptance as alike at every place, so it is told one rate for each pair of drafter and
verifier: the mean over the tokens of the text, not over target calls.  A head over the target's
states (EAGLE), which reads its own features behind them, has one rate for each depth of a block,
over blocks that start at every token.  Where
acceptance differs from place to place, the law and the replay of the same text then differ: with
rates that hold on for whole requests the mean over tokens makes the law promise too much, and
where a rejection makes the next one likelier or less likely, it errs either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from specsim.acceptance import (
    Acceptance,
    AcceptanceLaw,
    ConstantAcceptance,
    PerPositionAcceptance,
)
from specsim.checks import Floats
from specsim.laws import TARGET
from specsim.predict.replay.head import rates_by_depth
from specsim.predict.replay.recorded import RecordedText, agreement
from specsim.schemes import (
    Acceptances,
    Deferral,
    FallbackRollback,
    Scheme,
)
from specsim.schemes.drafters import (
    Drafter,
    EagleDrafter,
    HorizontalDrafter,
    ModelDrafter,
    NgramDrafter,
    VerticalDrafter,
)
from specsim.schemes.known import Pair

FALLBACK, ROLLBACK, DEFERRAL = "fallback", "rollback", "deferral"
# What happens at some rate: a verifier accepts a drafter's token, at whatever depth of a block or
# as the j-th of it, or one of the three above.
Event = Pair | tuple[str, str, int] | str


@dataclass(frozen=True)
class Tried:
    """How often something happened, or was expected to, of how often it could; additive."""

    happened: float
    times: float

    def __add__(self, other: Tried) -> Tried:
        return Tried(self.happened + other.happened, self.times + other.times)

    @property
    def rate(self) -> float:
        """0 where it never could."""
        return min(self.happened / self.times, 1.0) if self.times else 0.0


Rates = Mapping[Event, Tried]


def acceptance_rates(
    drafter: Drafter,
    text: RecordedText,
    verifier: str = TARGET,
    law: AcceptanceLaw = "ratio-test",
) -> Iterator[tuple[Event, Tried]]:
    """How often the tokens of each drafter in a description are accepted by who reviews them.

    The mean over the tokens of the text: of a model or counts that of a_t, of what proposes a block
    at once the share of tokens that would have stood as the first of a block, of a head one rate
    for each depth, over blocks that start at every token.  ``law`` is how a model, a head or counts
    that draft by themselves are accepted.
    """
    match drafter:
        case ModelDrafter() | NgramDrafter():
            accepted = text.accepted(drafter.name, verifier, law)
            yield (drafter.name, verifier), Tried(float(accepted.sum()), len(accepted))
        case EagleDrafter(name=name):
            found = rates_by_depth(*text.accepted_by_depth(drafter, verifier, law))
            for depth, counts in enumerate(found, start=1):
                yield (name, verifier, depth), Tried(*counts)
        case VerticalDrafter():
            accepted = text.accepted(drafter.name, verifier)
            yield (drafter.name, verifier), Tried(float(accepted.sum()), len(accepted))
            yield from acceptance_rates(drafter.inner, text, drafter.name)
        case HorizontalDrafter():
            for part in drafter.parts:
                yield from acceptance_rates(part, text, verifier)
        case _:
            agrees, _ = agreement(text, drafter)
            yield (drafter.name, verifier), first_tokens(agrees)


def first_tokens(accepted: Floats) -> Tried:
    """Blocks from every place of a text whose first token stood.

    accepted : shape (T, most): 1 where token i of the block at t stands, given all before it
    """
    first = accepted[:, :1]
    return Tried(float(first.sum()), first.size)


def total(found: Iterable[tuple[Event, Tried]]) -> Rates:
    """Added up over requests, and over parts of a drafter that are the same pair."""
    rates: dict[Event, Tried] = {}
    for event, tried in found:
        rates[event] = rates[event] + tried if event in rates else tried
    return rates


def law_tokens_per_call(scheme: Scheme, rates: Rates) -> float:
    """Tokens per target call of the scheme's law, infinite where there are no calls.

    Raises UnsupportedError where the scheme has no law of one block, or one too large.
    """
    law = scheme.law(_known(scheme, rates))
    calls = law.calls(TARGET)
    return law.tokens_per_call / calls if calls else float("inf")


def _known(scheme: Scheme, rates: Rates) -> Acceptances | FallbackRollback | Deferral:
    def rate(event: Event) -> float:
        # A pair with a share of zero tokens has no rate and needs none.
        return rates.get(event, Tried(0.0, 0.0)).rate

    if FallbackRollback in scheme.knows:
        return FallbackRollback(rate(FALLBACK), rate(ROLLBACK))
    if Deferral in scheme.knows:
        return Deferral(rate(DEFERRAL))

    def acceptance(pair: Pair) -> Acceptance:
        depths = [
            event[2]
            for event in rates
            if isinstance(event, tuple) and len(event) == 3 and event[:2] == pair
        ]
        if depths:
            return PerPositionAcceptance(tuple(rate((*pair, depth)) for depth in sorted(depths)))
        return ConstantAcceptance(rate(pair))

    return Acceptances({pair: acceptance(pair) for pair in scheme.pairs})


def named_rates(rates: Rates) -> dict[str, float]:
    """For people: ``draft by target``, ``eagle by target at 1``, ``fallback``, ..."""
    return {_named(event): tried.rate for event, tried in rates.items()}


def _named(event: Event) -> str:
    if isinstance(event, str):
        return event
    drafter, verifier, *depth = event
    return f"{drafter} by {verifier}" + "".join(f" at {place}" for place in depth)
