"""How many rounds an engine takes over requests: known beforehand, drawn, or read off its texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from calibrate.engine.asked import Asked
from calibrate.engine.rates import acceptance_rates
from calibrate.engine.sets import TimedSet
from calibrate.measure.trace import DECODING, generator
from calibrate.models.load import Pair
from specsim.acceptance import AcceptanceLaw
from specsim.checks import Floats, UnsupportedError
from specsim.predict.replay.engine_rounds import engine_rounds

# Draws of the rounds of a text that leaves them to chance.
_DRAWS = 16

# Rounds of each request of a set, shape (B,).
RoundsOfSet = Callable[[TimedSet], Floats]


def replayed_rounds(asked: Asked, gamma: int) -> list[int]:
    """Rounds of each request; with draft length 0 the steps behind its first token.

    Raises UnsupportedError where the text does not say them for certain: above temperature 0 an
    engine writes other texts than the trace.
    """
    if not asked.check.sampling.greedy:
        raise UnsupportedError(
            f"sets at temperature {asked.check.sampling.temperature:g} have texts of their own, so "
            "that their rounds are not known beforehand"
        )
    if gamma == 0:
        return [tokens - 1 for tokens in asked.tokens]
    return [
        round(engine_rounds(rates, tokens, gamma).counts.rounds)
        for rates, tokens in zip(_rates(asked), asked.tokens, strict=True)
    ]


def drawn_rounds(asked: Asked, gamma: int, seed: int) -> npt.NDArray[np.int64]:
    """Rounds over the trace's texts, one row a draw, shape (D, R).

    Texts like the trace's are what the engine will write above temperature 0.  One row where a text
    leaves nothing to chance: at temperature 0, and with greedy drafts.
    """
    tokens = np.array(asked.tokens)
    if gamma == 0:
        return tokens[None] - 1
    rates = _rates(asked)
    certain = all(bool(np.isin(each, (0.0, 1.0)).all()) for each in rates)
    random = np.random.default_rng([DECODING, seed, gamma])
    return np.array(
        [
            [
                _rounds(each > random.random(each.size), count, gamma)
                for each, count in zip(rates, asked.tokens, strict=True)
            ]
            for _ in range(1 if certain else _DRAWS)
        ]
    )


def _rounds(accepted: npt.NDArray[np.bool_], tokens: int, gamma: int) -> int:
    """Rounds until so many tokens are there, the first of which the prompt's run gave."""
    place, rounds = 1, 0
    while place < tokens:
        stood = accepted[place : place + gamma]
        place += int(stood.size if stood.all() else stood.argmin()) + 1
        rounds += 1
    return rounds


def _rates(asked: Asked) -> list[Floats]:
    """P(accepted) at each position of the trace's texts."""
    trace = asked.check.trace
    return [
        trace.acceptance[trace.starts[number] : trace.starts[number + 1]]
        for number in asked.requests
    ]


def known_rounds(rounds: Mapping[int, Sequence[int]]) -> RoundsOfSet:
    """Where they are known beforehand: by draft length, those of each request that is asked."""

    def found(timed: TimedSet) -> Floats:
        known = np.array([float(rounds[timed.gamma][n]) for n in timed.requests])
        # Where a batch breaks ties otherwise, the set took what the server counted.
        if timed.rounds is None or not known.any():
            return known
        scaled: Floats = known * (timed.rounds / known.sum())
        return scaled

    return found


def read_rounds(pair: Pair, asked: Asked, law: AcceptanceLaw, seed: int) -> RoundsOfSet:
    """Expected rounds over the texts that the engine wrote, which both models read; of greedy
    drafts those that it took.
    """
    target, draft = pair.cached(timed=False)

    def rounds(timed: TimedSet) -> Floats:
        assert timed.texts is not None, "kept above temperature 0"
        if timed.gamma == 0:
            return np.array([len(text) - 1.0 for text in timed.texts])
        found = []
        for number, text in zip(timed.requests, timed.texts, strict=True):
            random = generator(target.device, DECODING, seed, number)
            prompt, behind = asked.prompts[number], timed.gamma - 1
            rates = acceptance_rates(
                *(target, draft, prompt, text, behind, asked.check.sampling, law, random)
            )
            found.append(engine_rounds(rates, len(text), timed.gamma).counts.rounds)
        return np.array(found)

    return rounds
