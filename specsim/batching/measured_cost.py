"""Seconds of everything that a batch does, from the measured run times of a profile's grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from specsim.batching.cost import CellUnavailableError, RunByRun
from specsim.checks import UnsupportedError
from specsim.deployment.cost import DeployedCost
from specsim.deployment.timed import timed_deployment
from specsim.hardware.host_times import HostTimes

if TYPE_CHECKING:
    from specsim.hardware.run_time_fit import FittedRunTimes
    from specsim.profiles import Mode, Overhead, Profile, Role


@dataclass(frozen=True)
class MeasuredLoadCost(RunByRun):
    """From the batch grid of a profile.

    target : run times of the target, fitted to the grid
    first_draft, next_draft : of the draft right after the target, and right after itself
    host : host times by batch; linear between the measured ones and held beyond them
    missing : batch, context and reason of cells that could not be measured.  A cell as large as
        one of these raises CellUnavailableError.
    mode : how the models ran
    deployed : the same by the data sheet, which knows the memory of the card; None: not known

    Raises CellUnavailableError at other batches than the only one that was timed, and NoRoomError
    where the requests do not fit on the card beside the models.
    """

    target: FittedRunTimes
    first_draft: FittedRunTimes
    next_draft: FittedRunTimes
    host: Mapping[int, HostTimes]
    missing: tuple[tuple[int, int, str], ...] = ()
    mode: Mode = "eager"
    deployed: DeployedCost | None = None

    @staticmethod
    def of(profile: Profile, temperature: float, mode: Mode | None = None) -> MeasuredLoadCost:
        """The cost at one temperature, which the host time depends on.

        mode : eager, or compiled, which is the default where it was measured
        """
        modes = sorted({row.mode for row in profile.grid})
        if not modes:
            raise UnsupportedError(
                "the profile has no run times of batches (its grid is empty): measure them with "
                "specsim calibrate --batch"
            )
        if mode is None:
            mode = modes[0]  # "compiled" sorts before "eager"
        if mode not in modes:
            raise UnsupportedError(
                f"run times in mode {mode} are not in the profile (measured: {', '.join(modes)})"
            )
        from specsim.hardware.grid_fit import grid_fits  # loads scipy

        found = grid_fits(profile, mode)
        for model, kind in (("target", "target"), ("draft", "first draft")):
            if (mode, kind) not in found:
                raise UnsupportedError(f"no run times were measured of the {model} in mode {mode}")
        first = found[mode, "first draft"]
        deployment = timed_deployment(profile)
        return MeasuredLoadCost(
            target=found[mode, "target"],
            first_draft=first,
            next_draft=found.get((mode, "next draft"), first),  # gamma 1 has no later runs
            host=_host_times(profile.batch_overhead, temperature, mode),
            missing=tuple(
                (cell.batch, cell.context, cell.reason)
                for cell in profile.missing
                if cell.mode == mode
            ),
            mode=mode,
            deployed=(
                None
                if deployment is None
                else DeployedCost(deployment, deployment.drafters[0], profile.gamma_max + 1)
            ),
        )

    def at(self, profile: Profile, temperature: float) -> MeasuredLoadCost:
        """The cost at another temperature of the same profile, with the same runs."""
        return replace(self, host=_host_times(profile.batch_overhead, temperature, self.mode))

    @property
    def batches(self) -> tuple[int, ...]:
        """Batches that were measured."""
        return tuple(sorted({point.batch for point in self.target.points}))

    @property
    def contexts(self) -> tuple[int, ...]:
        """Contexts that were measured."""
        return tuple(sorted({point.context for point in self.target.points}))

    @property
    def longest(self) -> int:
        return self.target.widest

    def verify_s(self, gamma: int, batch: int, context: float) -> float:
        if self.deployed is not None and not self._had_room(batch, context):
            self.deployed.check_room(gamma, batch, context)
        return super().verify_s(gamma, batch, context)

    def _had_room(self, batch: int, context: float) -> bool:
        """Whether it is part of a cell that was timed."""
        return any(
            point.batch >= batch and point.context >= context for point in self.target.points
        )

    def run_s(
        self, model: Role, tokens: int, batch: int, context: float, follows: Role = "draft"
    ) -> float:
        if model == "draft":
            times = self.first_draft if follows == "target" else self.next_draft
            return times(tokens, batch, context)
        timed = self.batches
        if len(timed) == 1 and batch != timed[0]:
            raise CellUnavailableError(
                f"runs were timed at batch {timed[0]} alone, which does not tell what more "
                "requests add: time others (specsim calibrate --batch), or price a deployment with "
                "a fit to this profile (--target, --drafter, --accelerator, --fit)"
            )
        # Judged by the target run alone, which has the context of the cell.
        for least_batch, least_context, reason in self.missing:
            if batch >= least_batch and context >= least_context:
                raise CellUnavailableError(
                    f"batch {least_batch} with context {least_context} could not be measured: "
                    f"{reason}"
                )
        return self.target(tokens, batch, context)

    def overhead_s(self, gamma: int, batch: int) -> float:
        by_batch = [
            np.interp(gamma, list(row), list(row.values())) for row in self._overhead.values()
        ]
        return float(np.interp(batch, list(self._overhead), by_batch))

    @cached_property
    def _overhead(self) -> dict[int, dict[int, float]]:
        """Seconds by batch and gamma, both increasing."""
        return {
            batch: {gamma: host(gamma) for gamma in host.by_gamma}
            for batch, host in self.host.items()
        }

    def covers(self, batch: int, context: float) -> bool:
        """Whether the cell lies between measured ones; beyond, the fit extrapolates."""
        fits = (self.target, self.first_draft, self.next_draft)
        return all(times.covers(1, batch, context) for times in fits)


def _host_times(rows: Sequence[Overhead], temperature: float, mode: Mode) -> dict[int, HostTimes]:
    """By batch, increasing; over all measured contexts."""
    found: dict[int, list[Overhead]] = {}
    for row in rows:
        if (row.temperature, row.mode) == (temperature, mode):
            found.setdefault(row.batch, []).append(row)
    if not found:
        known = ", ".join(sorted({f"{row.temperature:g} {row.mode}" for row in rows})) or "none"
        raise UnsupportedError(
            f"the profile has no host time of batches at temperature {temperature:g} in mode "
            f"{mode} (measured: {known})"
        )
    table: dict[int, HostTimes] = {}
    for batch in sorted(found):
        if not any(row.gamma == 0 for row in found[batch]):
            raise UnsupportedError(
                f"the profile has no host time of plain decoding at batch {batch}"
            )
        table[batch] = HostTimes.of(found[batch], temperature)
    return table
