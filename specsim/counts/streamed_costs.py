"""What steps and prompts cost an engine under load, from the steps that its clients saw.

With K draft tokens a step of n requests, those whose prompts it reads among them, takes

    S(K, n)                                                  where no prompt is read
    S(K, n) + P(K) + Q(K) n + a(K) prompts + b(K) tokens     where some are

with S linear between a few n.  A request more makes a step with a prompt less longer than one
without, so that without P + Q n prompts are too cheap beside few requests and too dear beside many.
S is of requests with c tokens in the cache, the mean of all that decoded; where the caches of those
that decode hold C tokens in all, and not c each,

    e(K) (C - decodes c)

comes to it.  A request that is sent while a step runs makes it longer by u, whatever K and n are:
what takes it in leaves the engine less of the host.  A long step sees more of them than a short one
anyway: where they come at any moment alike, and steps that see nobody take S in the mean, with the
variance V, those that see one take S + V / S + u.

A request spends

    f + g decodes + h (prompts - 1)

outside of all steps, where so many others decode in the step of its first token, and so many have
theirs in it: what sends them their chunks, or takes in the others, is busy with that.  What was
timed of it holds the u of its own that a simulation has in a step, which is so where a request
spends longer there than in a step; where it spends less, it is up to u / 2 too little.  All but u
are least-squares fits; S, a, b, e, f, g, h and u are not below zero, and e is no larger than leaves
a step with empty caches a tenth of S.

Single steps lie about these, and so do single requests outside of them, with coefficients of
variation: roots of the mean square of how far they are, over the mean square of what is fitted.
What a machine, or another server of the same configuration, does for longer is in them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import NamedTuple

import numpy as np

from specsim.checks import UnsupportedError
from specsim.counts.arrival_costs import seconds_of_arrivals
from specsim.counts.steps import FrontendTime, StepTime, StreamedStep, StreamedSteps
from specsim.counts.streamed_law import StreamedLaw, beyond, fitted_law

# Prompts of this many lengths tell a token from a prompt.
_LENGTHS = 2


@dataclass(frozen=True)
class StreamedCosts:
    """Of one target and drafter.

    streamed : by draft length and repeat, in any order
    """

    streamed: tuple[StreamedSteps, ...]

    def __post_init__(self) -> None:
        for gamma in self.gammas:
            if all(step.prompts for step in self._of(gamma)):
                raise UnsupportedError(
                    f"no step without a prompt was seen with {gamma} draft tokens, so that nobody "
                    "knows what one costs"
                )
        for gamma in self.gammas:
            known = self._known(gamma)
            if all(step.prompts for step in known):
                raise UnsupportedError(
                    f"no step without a prompt was seen with {gamma} draft tokens and at most "
                    f"{self.most} requests, as it was with other draft lengths"
                )
        for gamma in self.gammas:
            known = self._known(gamma)
            lengths = {step.prompt_tokens / step.prompts for step in known if step.prompts}
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
        """f: seconds of a request outside of all steps."""
        return self._frontend[0]

    @property
    def frontend_decode_s(self) -> float:
        """g: seconds outside of all steps for each request that decodes beside; 0 where nobody
        tells how many those were.
        """
        return self._frontend[1]

    @property
    def frontend_prompt_s(self) -> float:
        """h: seconds outside of all steps for each other request with its first token in the same
        step; 0 where nobody tells how many those were.
        """
        return self._frontend[2]

    @cached_property
    def _frontend(self) -> tuple[float, float, float]:
        from scipy.optimize import nnls

        rows = [row for each in self.streamed for row in each.frontends]
        if not rows:
            return 0.0, 0.0, 0.0
        decodes = [row.decodes for row in rows]
        others = [row.prompts and row.prompts - 1 for row in rows]
        columns = np.ones((len(rows), 3))
        for place, counts in enumerate((decodes, others), start=1):
            columns[:, place] = 0.0 if None in counts else counts
        seconds = np.array([row.seconds - self.arrival_s for row in rows])
        root = np.sqrt([row.requests for row in rows])
        found, _ = nnls(columns * root[:, None], seconds * root)
        alone_s, decode_s, prompt_s = found.tolist()
        return alone_s, decode_s, prompt_s

    @cached_property
    def arrival_s(self) -> float:
        """u: seconds by which a step is longer for each request that is sent while it runs; 0 where
        nobody tells.
        """
        return seconds_of_arrivals(self.streamed)

    @cached_property
    def step_variation(self) -> float:
        """Coefficient of variation of single steps without a prompt; 0 where nobody tells it."""
        return self._variation(reads_prompts=False)

    @cached_property
    def prompt_step_variation(self) -> float:
        """The same of steps with a prompt."""
        return self._variation(reads_prompts=True)

    def _variation(self, reads_prompts: bool) -> float:
        return _variation(
            [
                _Scattered(each.steps, each.seconds, each.variance_s2, self.expected_s(gamma, each))
                for gamma in self.gammas
                for each in self._known(gamma)
                if bool(each.prompts) == reads_prompts and each.variance_s2 is not None
            ]
        )

    def expected_s(self, gamma: int, step: StreamedStep) -> float:
        """What a step of these requests, prompts, caches and arrivals is to take; with caches like
        those that were timed where nobody tells what is in them.
        """
        law = self.laws[gamma]
        (more,) = beyond(
            [step], self.context if self.knows_caches and step.decode_context else None
        )
        alike_s = law.seconds(step.requests, step.prompts, step.prompt_tokens)
        came_s = self.arrival_s * (step.arrivals or 0)
        return alike_s + law.context_token_s * float(more) + came_s

    @cached_property
    def frontend_variation(self) -> float:
        """Coefficient of variation of what single requests spend outside of all steps; 0 where
        nobody tells it.

        The moment of a step that a request was sent in leaves its square open, so that rows weigh
        by the inverse square of that.
        """
        found = []
        for streamed in self.streamed:
            law = self.laws[streamed.gamma]
            for each in streamed.frontends:
                if each.variance_s2 is not None and (step_s := law.seconds(each.decodes or 1)) > 0:
                    weight = each.requests / step_s**4
                    seconds = each.seconds - self.arrival_s
                    row = _Scattered(weight, seconds, each.variance_s2, self.outside_s(each))
                    found.append(row)
        return _variation(found)

    @property
    def knows_variations(self) -> bool:
        """Whether anything tells how far single steps or requests scatter."""
        steps = [each.variance_s2 for streamed in self.streamed for each in streamed.steps]
        outside = [each.variance_s2 for streamed in self.streamed for each in streamed.frontends]
        return any(each is not None for each in (*steps, *outside))

    @property
    def knows_arrivals(self) -> bool:
        """Whether anything tells which steps somebody was sent in."""
        return any(step.arrivals is not None for each in self.streamed for step in each.steps)

    def outside_s(self, row: FrontendTime) -> float:
        """What a request is to spend outside of all steps beside as many others as in this row."""
        found = self.frontend_s + self.frontend_decode_s * (row.decodes or 0)
        return found + self.frontend_prompt_s * ((row.prompts or 1) - 1)

    @property
    def most(self) -> int:
        """Requests of a step without a prompt that were seen with every draft length."""
        steps = [self._of(gamma) for gamma in self.gammas]
        return min(
            max(each.requests for each in of_gamma if not each.prompts) for of_gamma in steps
        )

    @cached_property
    def context(self) -> float | None:
        """Tokens in the cache of a request that decodes, in the mean; None where nobody tells."""
        known = [each.context for each in self.streamed if each.context]
        return sum(known) / len(known) if known else None

    @cached_property
    def knows_caches(self) -> bool:
        """Whether every step tells what is in the caches."""
        return all(step.decode_context for each in self.streamed for step in each.steps)

    @cached_property
    def laws(self) -> dict[int, StreamedLaw]:
        """By draft length."""
        context = self.context if self.knows_caches else None
        return {
            gamma: fitted_law(self._known(gamma), self.most, context, self.arrival_s)
            for gamma in self.gammas
        }

    def step_times(self) -> list[StepTime]:
        """Steps without prompts at the batches of the fit."""
        return [
            StepTime(gamma, batch, float(seconds), float(steps), context=self.context)
            for gamma, law in self.laws.items()
            for batch, seconds, steps in zip(law.batches, law.step_s, law.steps, strict=True)
            if seconds > 0
        ]

    def _known(self, gamma: int) -> list[StreamedStep]:
        """Those of batches that every draft length has."""
        return [step for step in self._of(gamma) if step.requests <= self.most]

    def _of(self, gamma: int) -> list[StreamedStep]:
        return [step for each in self.streamed if each.gamma == gamma for step in each.steps]


class _Scattered(NamedTuple):
    """Times that are alike: their weight, mean and variance, and what the fit says of them."""

    weight: float
    seconds: float
    variance_s2: float
    expected_s: float


def _variation(rows: Sequence[_Scattered]) -> float:
    """Of single times about what is expected of them; 0 where nobody tells it, or by chance."""
    if not rows:
        return 0.0
    weights, seconds, variance_s2, expected_s = np.array(rows).T
    squares_s2 = float(weights @ expected_s**2)
    if squares_s2 == 0.0:
        return 0.0
    variance = float(weights @ (variance_s2 + (seconds - expected_s) ** 2))
    return sqrt(max(variance, 0.0) / squares_s2)
