"""Laws of the cascades that ``specsim validate --scheme all`` decodes, from what it counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specsim.acceptance import ConstantAcceptance
from specsim.conversions import alpha_from_acceptance_length
from specsim.laws import TARGET, BlockLaw, draft, propose_at_least, verify
from specsim.schemes import (
    Acceptances,
    HorizontalCascade,
    Scheme,
    SpeculativeDecoding,
    VerticalCascade,
)
from studies.common.decoded import by_temperature, is_of, row_of
from studies.common.orderings import FULL
from studies.common.study import Row, where

GRAM = "max-gram"
Rates = Mapping[tuple[str, str], float]

# The setting whose counts say how often a drafter is accepted: before the target by its tokens per
# call, before a reviewer by that one's steps until enough tokens are there.
_BEFORE_TARGET = {
    "middle": SpeculativeDecoding(4, "middle"),
    "draft": SpeculativeDecoding(4),
    GRAM: SpeculativeDecoding(10, GRAM),
}
# Tokens that a reviewer is asked for.
_REVIEWED = 4
_BEFORE_REVIEWER = {
    ("middle", "draft"): VerticalCascade(("middle", "draft"), gamma=2, at_least=(_REVIEWED,)),
    ("middle", GRAM): VerticalCascade(("middle", GRAM), gamma=5, at_least=(_REVIEWED,)),
    ("draft", GRAM): VerticalCascade(("draft", GRAM), gamma=5, at_least=(_REVIEWED,)),
}
PAIRS = (*((TARGET, model) for model in _BEFORE_TARGET), *_BEFORE_REVIEWER)
# Every decoded setting that has a law in these acceptances.
SCHEMES: tuple[Scheme, ...] = (
    SpeculativeDecoding(2),
    *_BEFORE_TARGET.values(),
    SpeculativeDecoding(8),
    HorizontalCascade(("middle", "draft"), (3, 3)),
    HorizontalCascade(("middle", GRAM), (3, 5)),
    VerticalCascade(("middle", "draft"), gamma=2, steps=(2,)),
    *_BEFORE_REVIEWER.values(),
    FULL,
)


def acceptances(decoded: Sequence[Row]) -> list[dict[str, Any]]:
    """The constant acceptance of each pair that gives what was counted, by temperature."""
    return [
        {
            "temperature": temperature,
            "verifier": verifier,
            "drafter": drafter,
            "alpha": alpha,
            "from": setting,
        }
        for temperature, rows in by_temperature(decoded)
        for verifier, drafter, alpha, setting in _found(rows)
    ]


def _found(decoded: Sequence[Row]) -> Iterator[tuple[str, str, float, str]]:
    """Verifier, drafter, alpha and the setting it follows from; rows of one temperature."""
    for drafter, single in _BEFORE_TARGET.items():
        if row := row_of(decoded, single):
            length = row["measured_tokens_per_call"]
            alpha = alpha_from_acceptance_length(length, single.gamma)
            yield TARGET, drafter, alpha, single.label
    for (reviewer, drafter), cascade in _BEFORE_REVIEWER.items():
        if row := row_of(decoded, cascade):
            steps = row["measured_runs"][reviewer] / row["measured_runs"][TARGET]
            alpha = _alpha_from_steps(steps, cascade.gamma, _REVIEWED)
            yield reviewer, drafter, alpha, cascade.label


def steps_to(alpha: float, gamma: int, tokens: int) -> float:
    """Mean steps of a reviewer, each over ``gamma`` drafted tokens, until so many are there."""
    step = verify(draft("inner", gamma), {"inner": ConstantAcceptance(alpha)}, "reviewer")
    law = propose_at_least(step, "reviewer", tokens)
    runs = (count for run, count in law.runs.items() if run.model == "reviewer")
    return float(sum(law.probability @ count for count in runs))


def _alpha_from_steps(steps: float, gamma: int, tokens: int) -> float:
    """Fewer steps where more is accepted; an end of [0, 1] where the count is beyond it.

    The last proposal of a request is cut short, so short texts give a little too much.
    """
    from scipy.optimize import brentq

    def surplus(alpha: float) -> float:
        return steps_to(alpha, gamma, tokens) - steps

    if surplus(0.0) <= 0:
        return 0.0
    if surplus(1.0) >= 0:
        return 1.0
    return float(brentq(surplus, 0.0, 1.0))


def rates(acceptances: Sequence[Row], temperature: float) -> Rates:
    """Of one temperature, by (verifier, drafter)."""
    return {
        (row["verifier"], row["drafter"]): row["alpha"]
        for row in where(acceptances, temperature=temperature)
    }


def known_acceptances(known: Rates) -> Acceptances:
    """As laws take them."""
    return Acceptances(
        {
            (drafter, verifier): ConstantAcceptance(alpha)
            for (verifier, drafter), alpha in known.items()
        }
    )


def law_of(row: Row, known: Rates) -> BlockLaw | None:
    """The law of a decoded setting; None where it has none here, or an acceptance is unknown."""
    scheme = next((each for each in SCHEMES if is_of(row, each)), None)
    if scheme is None or any(pair[::-1] not in known for pair in scheme.pairs):
        return None
    return scheme.law(known_acceptances(known))
