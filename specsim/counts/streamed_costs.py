"""What steps and prompts cost an engine under load, from the steps that its clients saw.

With K draft tokens a step of n requests, some of which have their prompts read, takes

    S(K, n) + a(K) prompts + b(K) prompt tokens

where S is linear between a few n.  All are one least-squares fit of the steps with K drafts, none
of them below zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specsim.checks import Floats, UnsupportedError, integer
from specsim.counts.steps import StepTime, StreamedStep, StreamedSteps

# Prompts of this many lengths tell a token from a prompt.
_LENGTHS = 2


def batch_levels(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... up to ``most``: batches between which steps are on a line."""
    found, level = [], 1
    while level < most:
        found.append(level)
        if level >= 2 and 3 * level // 2 < most:
            found.append(3 * level // 2)
        level *= 2
    return [*found, integer("most", most, low=1)]


@dataclass(frozen=True)
class StreamedLaw:
    """Of one draft length.

    batches : rising, (J,)
    step_s : S there, seconds, (J,)
    per_prompt_s, per_token_s : a and b, seconds
    steps : how many were timed of about each batch, (J,)
    """

    batches: tuple[int, ...]
    step_s: Floats
    per_prompt_s: float
    per_token_s: float
    steps: Floats

    def seconds(self, step: StreamedStep) -> float:
        """What a step like this one takes."""
        plain = float(np.interp(step.requests, self.batches, self.step_s))
        return plain + self.per_prompt_s * step.prompts + self.per_token_s * step.prompt_tokens


@dataclass(frozen=True)
class StreamedCosts:
    """Of one target and drafter.

    streamed : by draft length and repeat, in any order
    """

    streamed: tuple[StreamedSteps, ...]

    def __post_init__(self) -> None:
        for gamma in self.gammas:
            lengths = {
                step.prompt_tokens / step.prompts for step in self._of(gamma) if step.prompts
            }
            if len(lengths) < _LENGTHS:
                raise UnsupportedError(
                    "what a token of a prompt costs needs prompts of two lengths that were read "
                    f"beside other requests, got {len(lengths)} with {gamma} draft tokens"
                )

        if len(self.gammas) < 2 or self.gammas[0]:
            raise UnsupportedError(
                "steps under load must be of plain decoding and of one draft length at least, got "
                f"draft lengths {', '.join(map(str, self.gammas)) or 'none'}"
            )

    @property
    def gammas(self) -> tuple[int, ...]:
        """Draft lengths, rising."""
        return tuple(sorted({each.gamma for each in self.streamed}))

    @property
    def frontend_s(self) -> float:
        """Seconds of a request outside of all steps, in the mean."""
        requests = sum(each.requests for each in self.streamed)
        total = sum(each.frontend_s * each.requests for each in self.streamed)
        return max(total / requests, 0.0) if requests else 0.0

    @property
    def most(self) -> int:
        """Requests of a step that were seen with every draft length."""
        steps = [self._of(gamma) for gamma in self.gammas]
        return min(max(each.requests for each in of_gamma) for of_gamma in steps)

    @property
    def context(self) -> float | None:
        """Tokens in the cache of a request that decodes, in the mean; None where nobody tells."""
        known = [each.context for each in self.streamed if each.context]
        return sum(known) / len(known) if known else None

    @cached_property
    def laws(self) -> dict[int, StreamedLaw]:
        """By draft length."""
        steps = {gamma: self._of(gamma) for gamma in self.gammas}
        return {
            gamma: _fitted([each for each in of_gamma if each.requests <= self.most], self.most)
            for gamma, of_gamma in steps.items()
        }

    def step_times(self) -> list[StepTime]:
        """Steps without prompts at those batches of the fit that were seen."""
        return [
            StepTime(gamma, batch, float(seconds), float(steps), context=self.context)
            for gamma, law in self.laws.items()
            for batch, seconds, steps in zip(law.batches, law.step_s, law.steps, strict=True)
            if seconds > 0 and steps > 0
        ]

    def _of(self, gamma: int) -> list[StreamedStep]:
        return [step for each in self.streamed if each.gamma == gamma for step in each.steps]


def _fitted(steps: Sequence[StreamedStep], most: int) -> StreamedLaw:
    from scipy.optimize import nnls

    requests = np.array([each.requests for each in steps], dtype=float)
    seconds = np.array([each.seconds for each in steps])
    weights = np.array([each.steps for each in steps], dtype=float)
    batches = batch_levels(most)
    shares = np.array([np.interp(requests, batches, row) for row in np.eye(len(batches))]).T
    prompts = np.array([[each.prompts, each.prompt_tokens] for each in steps], dtype=float)
    columns = np.hstack([shares, prompts])
    # Columns of one size, so that the solver's tolerance means the same for all.
    sizes = np.maximum(np.abs(columns).max(axis=0), 1.0)
    root = np.sqrt(weights)[:, None]
    found, _ = nnls(columns / sizes * root, seconds * root[:, 0])
    found = found / sizes
    return StreamedLaw(
        tuple(batches),
        found[: len(batches)],
        float(found[-2]),
        float(found[-1]),
        shares.T @ weights,
    )
