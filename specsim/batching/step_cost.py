"""What a batch costs by the step times of an engine, which tell a whole step and not its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specsim.batching.cost import CellUnavailableError
from specsim.checks import UnsupportedError
from specsim.counts.prompt_costs import PromptCosts
from specsim.counts.step_costs import CONTEXTS_APART, StepCosts
from specsim.counts.steps import PromptTime, StepTime, StreamedSteps
from specsim.counts.streamed_costs import StreamedCosts
from specsim.counts.streamed_law import EMPTY


@dataclass(frozen=True)
class StepLoadCost:
    """From the step times of an engine (a ``LoadCost``).

    An engine times a step as a whole, so here all of a step counts as its target run: the drafts,
    the verification and the host time.  Steps shorter than the shortest that was timed follow the
    law of a step (``StepCosts.line``), and cost no less than a plain one.  Where one draft length
    alone was timed, nobody knows what a round costs beside its drafts: shorter ones then cost as
    much as that one, which is a bound.

    steps : at whole batches, with plain decoding and one draft length at least
    prompts : what reading prompts costs, where it was timed: beside other requests, or alone
    """

    steps: StepCosts
    prompts: PromptCosts | StreamedCosts | None = None

    def __post_init__(self) -> None:
        if 0 not in self.steps.gammas:
            raise UnsupportedError(
                "no step of plain decoding was timed, which a speedup is against; read a benchmark "
                "of the engine without a drafter, too"
            )
        if not self.drafted:
            raise UnsupportedError(
                "no step with drafts was timed; read a benchmark of the engine with a drafter, too"
            )

    @classmethod
    def of(
        cls,
        steps: Sequence[StepTime],
        prompts: Sequence[PromptTime] = (),
        streamed: Sequence[StreamedSteps] = (),
    ) -> StepLoadCost:
        """From all that was timed of an engine; steps of an engine under load go before those of
        sets of requests, which tell of larger batches alone, and before prompts alone.
        """
        if not streamed:
            alone = PromptCosts(tuple(prompts)) if prompts else None
            return cls(StepCosts.of(steps), alone)
        loaded = StreamedCosts(tuple(streamed))
        larger = [step for step in steps if step.batch > loaded.most]
        return cls(StepCosts.of([*loaded.step_times(), *larger]), loaded)

    @property
    def frontend_s(self) -> float:
        """Seconds of a request outside of its steps; 0 where nobody timed it."""
        return 0.0 if self.prompts is None else self.prompts.frontend_s

    @property
    def drafted(self) -> list[int]:
        """Draft lengths that were timed, rising."""
        return [gamma for gamma in self.steps.gammas if gamma]

    @property
    def longest(self) -> int:
        return self.drafted[-1] + 1

    @property
    def batches(self) -> tuple[int, ...]:
        """Batches that were timed, up to the largest that all draft lengths reach, plain decoding
        among them: beyond it nobody knows which of them is best.
        """
        most = min(self._reach.values())
        return tuple(int(batch) for batch in self.steps.batches if batch <= most)

    @cached_property
    def _reach(self) -> dict[int, float]:
        """The largest batch of each draft length."""
        return {
            gamma: max(row.batch for row in self.steps.times if row.gamma == gamma)
            for gamma in self.steps.gammas
        }

    @property
    def half(self) -> int:
        """The largest batch that was timed up to half of the largest, or the smallest: from there
        on a request adds to a step what it adds beyond.
        """
        return max((b for b in self.batches if 2 * b <= self.batches[-1]), default=self.batches[0])

    @property
    def contexts(self) -> tuple[int, ...]:
        """One, the mean of the steps; 0 where the engine does not tell."""
        known = [row.context for row in self.steps.times if row.context is not None]
        return (round(sum(known) / len(known)) if known else 0,)

    @cached_property
    def loaded_context(self) -> float | None:
        """The mean context of steps under load; None where there are none, or nobody tells."""
        return self.prompts.context if isinstance(self.prompts, StreamedCosts) else None

    @cached_property
    def _most(self) -> int:
        """Requests of the largest step under load."""
        return self.prompts.most if isinstance(self.prompts, StreamedCosts) else 0

    @cached_property
    def _larger_context(self) -> float | None:
        """The mean context of steps of more requests than that."""
        rows = [row for row in self.steps.times if row.batch > self._most]
        known = [row.context for row in rows if row.context is not None]
        return sum(known) / len(known) if known else None

    def draft_s(self, gamma: int, batch: int, context: float, bonus: float) -> float:
        return 0.0  # in the step

    def verify_s(self, gamma: int, batch: int, context: float) -> float:
        timed_s = self.timed_s(gamma, batch)
        timed = self.loaded_context if batch <= self._most else self._larger_context
        if timed is None:
            return timed_s
        longer_s = self.context_token_s(gamma) * batch * (context - timed)
        return max(timed_s + longer_s, EMPTY * timed_s)

    def context_token_s(self, gamma: int) -> float:
        """What a token more in the cache of a request adds to a step, on a line between the draft
        lengths that were timed; 0 where nobody knows.
        """
        if not isinstance(self.prompts, StreamedCosts):
            return 0.0
        laws = self.prompts.laws
        if not gamma:
            return laws[0].context_token_s
        timed = [each for each in self.prompts.gammas if each]
        return float(np.interp(gamma, timed, [laws[each].context_token_s for each in timed]))

    def timed_s(self, gamma: int, batch: int) -> float:
        """A step at the context that was timed."""
        shortest = self.drafted[0]
        least = min(self._reach, key=lambda each: (self._reach[each], each != gamma))
        if batch > self._reach[least]:
            # The length that was timed to the smallest batch says at which ones.
            try:
                self.steps.step_s(least, batch)
            except UnsupportedError as reason:
                raise CellUnavailableError(str(reason)) from None
        if 0 < gamma < shortest and len(self.drafted) > 1:
            # Two long drafts may lie so steeply that the line falls below a plain step.
            plain = self.steps.plain_s(batch)
            return max(self.steps.line(batch).step_s(gamma), plain)
        return self.steps.step_s(max(gamma, shortest) if gamma else 0, batch)

    def overhead_s(self, gamma: int, batch: int) -> float:
        return 0.0  # in the step

    def loaded_s(self, batch: int, context: float) -> float:
        return 0.0

    def covers(self, batch: int, context: float) -> bool:
        """Whether the steps were timed at about this context; batches beyond have no price at all.

        Contexts pool within a factor of two (``StepCosts``); one that is not known is itself only.
        """
        (timed,) = self.contexts
        return timed / CONTEXTS_APART <= context <= timed * CONTEXTS_APART
