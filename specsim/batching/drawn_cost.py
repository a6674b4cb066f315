"""What the repeats of a batch grid leave open of its prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from specsim.batching.cost import RunByRun
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.checks import Floats
from specsim.hardware.repeats import PassDraws
from specsim.hardware.run_time_fit import pass_draws

if TYPE_CHECKING:
    from specsim.profiles import Overhead, Profile, Role, RunTime

Row = TypeVar("Row", "RunTime", "Overhead")


@dataclass(frozen=True)
class DrawnLoadCost(RunByRun):
    """A grid's cost drawn from its repeats: every price is of shape (D,), in place of a number.

    So is what follows from prices by arithmetic, such as the speedup of a ``BatchPoint``.

    cost : as measured
    draws : of the passes through the grid
    """

    cost: MeasuredLoadCost
    draws: PassDraws

    @staticmethod
    def of(profile: Profile, temperature: float, cost: MeasuredLoadCost) -> DrawnLoadCost:
        """Of the profile's grid that ``cost`` is of, at this temperature.

        A grid of a single pass, which that of an accelerator is, knows nothing of the drift
        between passes: its repeats are drawn instead, as if they were independent.
        """
        grid = [row for row in profile.grid if row.mode == cost.mode]
        host = [row for row in profile.batch_overhead if row.mode == cost.mode]
        if len(pass_draws([*grid, *host]).passes) == 1:
            grid, host = _by_repeat(grid), _by_repeat(host)
            numbered = msgspec.structs.replace(profile, grid=grid, batch_overhead=host)
            cost = MeasuredLoadCost.of(numbered, temperature, cost.mode)
        return DrawnLoadCost(cost, pass_draws([*grid, *host]))

    @property
    def longest(self) -> int:
        return self.cost.longest

    def run_s(
        self, model: Role, tokens: int, batch: int, context: float, follows: Role = "draft"
    ) -> Any:
        key = model, tokens, batch, context, follows
        if key not in self._runs:
            times = self.cost.target
            if model == "draft":
                times = self.cost.first_draft if follows == "target" else self.cost.next_draft
            self._runs[key] = times.drawn(tokens, batch, context, self.draws)
        return self._runs[key]

    @cached_property
    def _runs(self) -> dict[tuple[Role, int, int, float, Role], Floats]:
        return {}

    def overhead_s(self, gamma: int, batch: int) -> Any:
        by_batch = {measured: _between(gamma, host) for measured, host in self._host.items()}
        return _between(batch, by_batch)

    @cached_property
    def _host(self) -> dict[int, dict[int, Floats]]:
        """Host time by batch and draft length."""
        return {
            batch: {gamma: host.drawn(gamma, self.draws) for gamma in host.by_gamma}
            for batch, host in self.cost.host.items()
        }


def _between(asked: float, drawn: Mapping[int, Floats]) -> Floats:
    """Linear between the keys, which rise, and held beyond them; shape (D,)."""
    shares = [np.interp(asked, list(drawn), row) for row in np.eye(len(drawn))]
    found: Floats = np.array(shares) @ np.array(list(drawn.values()))
    return found


def _by_repeat(rows: Sequence[Row]) -> list[Row]:
    """Every repeat as a pass of its own."""
    return [msgspec.structs.replace(row, passes=list(range(len(row.seconds)))) for row in rows]
