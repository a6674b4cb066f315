"""What reading prompts costs an engine, from prompts that were timed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specsim.checks import UnsupportedError, integer, number
from specsim.counts.steps import PromptTime
from specsim.hardware.repeats import held


@dataclass(frozen=True)
class PromptCosts:
    """Prompts of one target and drafter, two lengths at least for every draft length.

    times : in any order, with repeats
    """

    times: tuple[PromptTime, ...]

    def __post_init__(self) -> None:
        for gamma in self.gammas:
            if len(self._mean_s(gamma)) < 2:
                raise UnsupportedError(
                    f"prompts of {len(self._mean_s(gamma))} length were timed with {gamma} draft "
                    "tokens, and what a token costs needs two; time another length"
                )

    @property
    def gammas(self) -> tuple[int, ...]:
        """Draft lengths of the steps in which prompts were read, rising."""
        return tuple(sorted({each.gamma for each in self.times}))

    def seconds(self, gamma: int, tokens: float) -> float:
        """Of a step that reads a prompt of so many tokens and nothing else.

        Means over repeats, outliers held, linear between lengths; beyond them the nearest piece
        goes on, and a prompt costs no less than nothing.  Linear between draft lengths, the
        nearest beyond.
        """
        integer("gamma", gamma)
        number("tokens", tokens, low=0.0)
        timed = self.gammas
        known = [0] if gamma == 0 and 0 in timed else [each for each in timed if each] or [*timed]
        values = [_line(self._mean_s(each), tokens) for each in known]
        return max(float(np.interp(gamma, known, values)), 0.0)

    @property
    def frontend_s(self) -> float:
        """Seconds of a request outside of the engine, in the mean: sending and answer.  Prompts
        alone are sent as token ids, so that no tokenizer is in it.
        """
        return _usual([each.answer_s - each.seconds for each in self.times])

    def _mean_s(self, gamma: int) -> dict[int, float]:
        """By tokens, rising."""
        found: dict[int, list[float]] = {}
        for each in self.times:
            if each.gamma == gamma:
                found.setdefault(each.tokens, []).append(each.seconds)
        return {tokens: _usual(found[tokens]) for tokens in sorted(found)}


def _line(points: dict[int, float], x: float) -> float:
    """Linear between points, and on at the ends."""
    knots: Sequence[int] = list(points)
    upper = min(max(int(np.searchsorted(knots, x)), 1), len(knots) - 1)
    low, high = knots[upper - 1], knots[upper]
    share = (x - low) / (high - low)
    return (1.0 - share) * points[low] + share * points[high]


def _usual(seconds: Sequence[float]) -> float:
    """The mean, outliers held."""
    return float(held(np.array(seconds)).mean())
