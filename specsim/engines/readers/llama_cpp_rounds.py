"""Rounds and draft length of llama.cpp's requests, from the totals that it prints of them.

The last draft of a request is cut to what is left of it, so drafted tokens are K times the rounds
less a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

from specsim.checks import InvalidArgumentError
from specsim.engines.readers.figures import Printed, explains

# Totals that fit a draft length by chance in less than one of so many cases say that it is K.
_NO_CHANCE = 20


def gamma_of(rounds: float, drafted: float, requests: int, positions: int = 0) -> int | None:
    """K, if every draft had K tokens but for the last ones of some requests; else None.

    positions : how many positions the source has, which are K where drafts of K tokens were made

    Without positions the totals must fit better than by chance: of the totals that so many rounds
    can have, ``missing + 1`` in each ``rounds`` are as near to a multiple.
    """
    if not rounds or not drafted:
        return positions or None
    gamma = max(positions, ceil(drafted / rounds))
    missing = gamma * rounds - drafted
    if missing and missing > (gamma - 1) * requests:
        return None
    if gamma == positions:
        return gamma if missing * _NO_CHANCE <= drafted else None
    return gamma if missing == 0 or (missing + 1) * _NO_CHANCE <= rounds else None


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
        and rounds >= _NO_CHANCE * gamma
    ]
    return fitting[0] if len(fitting) == 1 else None


def rounds_of_length(
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
        allowed = [each for each in allowed if explains(rates, each, accepted)]
        if not allowed:
            raise InvalidArgumentError(
                "no number of rounds gives the shares by position; the line was cut or changed"
            )
    alike = [each for each in allowed if gamma_of(each, drafted, 1, len(rates)) is not None]
    for possible in (allowed, alike):
        if len(possible) == 1:
            return possible[0]
    return min(max(accepted / (length.value - 1), allowed[0]), allowed[-1])
