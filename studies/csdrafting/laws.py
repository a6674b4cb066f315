"""Laws of the cascades that ``specsim validate --scheme all`` decodes, from what it counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specsim.acceptance import ConstantAcceptance
from specsim.conversions import alpha_from_acceptance_length
from specsim.laws import TARGET, BlockLaw, draft, propose_at_least, verify
from specsim.schemes import (
    Acceptances,
    FullCascade,
    HorizontalCascade,
    Scheme,
    SpeculativeDecoding,
    VerticalCascade,
)
from studies.common.decoded import by_temperature
from studies.common.study import Row

GRAM = "max-gram"
# Drafters that look up or count.
WITHOUT_PARAMETERS = (GRAM, "copy", "unigram", "bigram")
# The matrix that was decoded.
DECODED_FULL = ((3, 2, 3), (2, 3), (3,))
Rates = Mapping[tuple[str, str], float]

# Who drafts before whom, and the setting whose counts say how often it is accepted: before the
# target by tokens per call at that gamma, before a reviewer by its steps until so many tokens.
_BEFORE_TARGET = {"middle": ("middle 4", 4), "draft": ("draft 4", 4), GRAM: ("Max-Gram 10", 10)}
_BEFORE_REVIEWER = {
    ("middle", "draft"): ("middle reviews draft 2, >= 4", 2, 4),
    ("middle", GRAM): ("middle reviews Max-Gram 5, >= 4", 5, 4),
    ("draft", GRAM): ("draft reviews Max-Gram 5, >= 4", 5, 4),
}
PAIRS = (*((TARGET, model) for model in _BEFORE_TARGET), *_BEFORE_REVIEWER)


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
        for verifier, drafter, alpha, setting in _found({row["setting"]: row for row in rows})
    ]


def _found(decoded: Mapping[str, Row]) -> Iterator[tuple[str, str, float, str]]:
    """Verifier, drafter, alpha and the setting it follows from; settings of one temperature."""
    for drafter, (setting, gamma) in _BEFORE_TARGET.items():
        if setting in decoded:
            length = decoded[setting]["measured_tokens_per_call"]
            yield TARGET, drafter, alpha_from_acceptance_length(length, gamma), setting
    for (reviewer, drafter), (setting, gamma, tokens) in _BEFORE_REVIEWER.items():
        if setting in decoded:
            runs = decoded[setting]["measured_runs"]
            steps = runs[reviewer] / runs[TARGET]
            yield reviewer, drafter, _alpha_from_steps(steps, gamma, tokens), setting


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
        for row in acceptances
        if row["temperature"] == temperature
    }


def known_acceptances(known: Rates) -> Acceptances:
    """As laws take them."""
    return Acceptances(
        {
            (drafter, verifier): ConstantAcceptance(alpha)
            for (verifier, drafter), alpha in known.items()
        }
    )


def law_of(setting: str, known: Rates) -> BlockLaw | None:
    """The law of a decoded setting; None where it has none here, or an acceptance is unknown."""
    scheme = _SCHEMES.get(setting)
    if scheme is None or any(
        (verifier, drafter) not in known for drafter, verifier in scheme.pairs
    ):
        return None
    return scheme.law(known_acceptances(known))


_BOTH, _GRAM = ("middle", "draft"), ("middle", GRAM)
_SCHEMES: dict[str, Scheme] = {
    "draft 2": SpeculativeDecoding(2),
    "draft 4": SpeculativeDecoding(4),
    "draft 8": SpeculativeDecoding(8),
    "middle 4": SpeculativeDecoding(4, "middle"),
    "Max-Gram 10": SpeculativeDecoding(10, GRAM),
    "middle 3, draft 3": HorizontalCascade(_BOTH, (3, 3)),
    "middle 3, Max-Gram 5": HorizontalCascade(_GRAM, (3, 5)),
    "middle reviews draft 2, twice": VerticalCascade(_BOTH, 2, steps=(2,)),
    "middle reviews draft 2, >= 4": VerticalCascade(_BOTH, 2, at_least=(4,)),
    "middle reviews Max-Gram 5, >= 4": VerticalCascade(_GRAM, 5, at_least=(4,)),
    "draft reviews Max-Gram 5, >= 4": VerticalCascade(("draft", GRAM), 5, at_least=(4,)),
    "middle, draft, Max-Gram": FullCascade((*_BOTH, GRAM), DECODED_FULL),
}
