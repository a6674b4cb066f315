"""How far off a speedup may be that rests on the step times of an engine.

Repeats of a timing differ, and servers of one configuration that are started again do: their steps
lie off the line in K that they have in common, as far as chance does not explain it.  Steps that
were timed once tell nothing, and two draft lengths nothing of servers, which are then as far apart
as others were.  What machines do later is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import expm1, log

import numpy as np

from specsim.batching.step_cost import StepLoadCost
from specsim.checks import Floats, UnsupportedError
from specsim.counts.steps import PromptTime, StepTime, StreamedSteps
from specsim.intervals import sum_half_width
from specsim.predict.engine_sets import residuals, servers_variance

# Servers whose steps a speedup is a ratio of: with and without drafts, those that were timed and
# those that will run.
_SERVERS = 4
# Repeats of steps under load have every other number of clients by turns.
_BY_TURNS = 2


@dataclass(frozen=True, eq=False)
class StepError:
    """Half of the 95 % interval that step times leave a speedup, as a share of it.

    steps : at whole batches
    prompts, streamed : as of ``StepLoadCost.of``

    What repeats leave open is told by leaving some of them out in turn (the jackknife of groups),
    in the mean over the draft lengths that were timed.
    """

    steps: Sequence[StepTime]
    prompts: Sequence[PromptTime] = ()
    streamed: Sequence[StreamedSteps] = ()

    def __call__(self, batch: int, context: float) -> float | None:
        """At a batch and context; None where repeats do not tell, or beyond the batches that were
        timed.
        """
        if not self._without:
            return None
        try:
            logs = np.array([_logs(each, batch, context) for each in self._without])
        except UnsupportedError:
            return None
        of_repeats = self._jackknife * float(logs.var(axis=0).mean())
        off, freedom = self._of_servers
        return expm1(sum_half_width([(of_repeats, len(logs) - 1), (_SERVERS * off, freedom)]))

    @cached_property
    def _streams(self) -> Sequence[StreamedSteps]:
        """Steps under load, where leaving some out leaves every number of clients: else whole sets
        tell what repeats leave open.
        """
        known = {each.repeat for each in self.streamed}
        return self.streamed if len(known) >= 2 * _BY_TURNS else ()

    @cached_property
    def _groups(self) -> list[set[int]]:
        """The repeats that are left out together; an odd one has not all numbers of clients, and is
        never left out.
        """
        size = _BY_TURNS if self._streams else 1
        ends = range(size, len(self._repeats) + 1, size)
        return [set(self._repeats[end - size : end]) for end in ends]

    @cached_property
    def _repeats(self) -> list[int]:
        known = {each.repeat for each in self._streams or self.steps}
        return sorted(each for each in known if each is not None)

    @property
    def _jackknife(self) -> float:
        """By how much the variance of a mean of n repeats is larger than that between means without
        each of G groups of m: (n - m)^2 G / (n m (G - 1)), which is G - 1 where they are all.
        """
        count, groups = len(self._repeats), len(self._groups)
        size = len(self._groups[0])
        return (count - size) ** 2 * groups / (count * size * (groups - 1))

    @cached_property
    def _without(self) -> list[StepLoadCost]:
        """The costs without each group of repeats; none where repeats are not alike, or too few."""
        if len(self._groups) < 2 or not self._repeats_are_alike(self._repeats):
            return []
        try:
            return [
                StepLoadCost.of(
                    [each for each in self.steps if each.repeat not in group],
                    self.prompts,
                    [each for each in self._streams if each.repeat not in group],
                )
                for group in self._groups
            ]
        except UnsupportedError:  # of what is left nobody knows what it costs
            return []

    def _repeats_are_alike(self, repeats: Sequence[int]) -> bool:
        """Whether all have the same draft lengths and batches: others are put between those, and
        would differ for that alone.
        """
        timed = {(each.repeat, each.gamma, each.batch) for each in self.steps}
        cells = {(gamma, batch) for _, gamma, batch in timed}
        streamed = {(each.repeat, each.gamma) for each in self._streams}
        gammas = {gamma for _, gamma in streamed}
        return timed == {(repeat, *cell) for repeat in repeats for cell in cells} and streamed == {
            (repeat, gamma) for repeat in repeats for gamma in gammas
        }

    @cached_property
    def _of_servers(self) -> tuple[float, int]:
        """Variance of a logarithm, and its degrees of freedom, of all batches that were timed with
        every draft length.
        """
        cost = StepLoadCost.of(self.steps, self.prompts, self._streams)
        batches = set(cost.batches)
        for gamma in cost.steps.gammas:
            batches &= {int(row.batch) for row in cost.steps.times if row.gamma == gamma}
        timed = _ratios(cost, sorted(batches))
        of_repeats = np.zeros(timed.shape)
        # Without some repeats a batch may be beyond those that are left; then all that a step is
        # off the line counts as the servers'.
        with suppress(UnsupportedError):
            left_out = [
                residuals(cost.drafted, _ratios(each, sorted(batches))) for each in self._without
            ]
            of_repeats = self._jackknife * np.var(left_out, axis=0)
        return servers_variance(cost.drafted, timed, of_repeats)


def _ratios(cost: StepLoadCost, batches: Sequence[int]) -> Floats:
    """Steps over plain ones by batch and draft length, of those that were timed, (J, G)."""
    found = [
        [cost.timed_s(gamma, batch) / cost.timed_s(0, batch) for gamma in cost.drafted]
        for batch in batches
    ]
    return np.array(found).reshape(len(batches), len(cost.drafted))


def _logs(cost: StepLoadCost, batch: int, context: float) -> list[float]:
    """Logarithms of steps over plain ones, of the draft lengths that were timed."""
    plain_s = cost.verify_s(0, batch, context)
    return [log(cost.verify_s(gamma, batch, context) / plain_s) for gamma in cost.drafted]
