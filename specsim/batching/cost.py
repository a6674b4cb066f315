"""Seconds of everything that a batch does: what is asked of a cost, and measured run times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from specsim.checks import UnsupportedError
from specsim.hardware.host_times import HostTimes

if TYPE_CHECKING:
    from specsim.hardware.run_time_fit import FittedRunTimes
    from specsim.profiles import Mode, Overhead, Profile, Role


class CellUnavailableError(UnsupportedError):
    """One batch and context cannot be priced, mostly for want of memory; smaller ones can."""


class NoRoomError(CellUnavailableError):
    """The requests do not fit beside the weights with so many drafts; with fewer they may."""


class LoadCost(Protocol):
    """Seconds of everything that a batch does."""

    @property
    def longest(self) -> int:
        """The widest target run that can be priced: the largest gamma and one."""
        ...

    def draft_s(self, gamma: int, batch: int, context: float, bonus: float) -> float:
        """All that drafts ``gamma`` tokens, at least one, for each of ``batch`` requests.

        context : tokens that each request has in the cache before the round
        bonus : chance that a request comes from a round whose drafts were all accepted
        """
        ...

    def verify_s(self, gamma: int, batch: int, context: float) -> float:
        """The target run that verifies ``gamma`` drafts; gamma 0 is that of plain decoding."""
        ...

    def overhead_s(self, gamma: int, batch: int) -> float:
        """Host time of a block outside the runs; gamma 0 is a step of plain decoding."""
        ...

    def loaded_s(self, batch: int, context: float) -> float:
        """What a step without drafts takes longer because a drafter stays loaded, whose cache is
        kept in step; 0 where nobody knows.
        """
        ...


class RunByRun(ABC):
    """A cost whose runs are priced one by one, of a draft that is a model of its own.

    A request that accepted everything, with probability b, left its draft one token behind, and the
    batch reads as wide as its widest request, so the first draft run reads two tokens with
    probability 1 - (1 - b)^B (requests independent).
    """

    @abstractmethod
    def run_s(
        self, model: Role, tokens: int, batch: int, context: float, follows: Role = "draft"
    ) -> float:
        """One run over ``tokens`` new tokens of each of ``batch`` requests.

        context : tokens that each request has in the cache before the run
        follows : the model that ran just before, which may have left the processor's caches cold
        """

    def draft_s(self, gamma: int, batch: int, context: float, bonus: float) -> float:
        one, two = (self.run_s("draft", tokens, batch, context, "target") for tokens in (1, 2))
        someone_is_behind = 1.0 - (1.0 - bonus) ** batch
        seconds = one + someone_is_behind * (two - one)
        if gamma > 1:
            # Draft run i has i more tokens in the cache; from the second on that is gamma / 2 in
            # the mean, and run times are taken as linear over so few tokens.
            seconds += (gamma - 1) * self.run_s("draft", 1, batch, context + gamma / 2, "draft")
        return seconds

    def verify_s(self, gamma: int, batch: int, context: float) -> float:
        follows: Role = "draft" if gamma else "target"
        return self.run_s("target", gamma + 1, batch, context, follows)

    def loaded_s(self, batch: int, context: float) -> float:
        return 0.0


@runtime_checkable
class TimedLoadCost(LoadCost, Protocol):
    """A cost that was measured at some batches and contexts."""

    @property
    def batches(self) -> tuple[int, ...]:
        """Batches that were timed, rising."""
        ...

    @property
    def contexts(self) -> tuple[int, ...]:
        """Contexts that were timed, rising."""
        ...

    def covers(self, batch: int, context: float) -> bool:
        """Whether the cell lies between timed ones; beyond, the cost extrapolates."""
        ...


@dataclass(frozen=True)
class MeasuredLoadCost(RunByRun):
    """From the batch grid of a profile.

    target : run times of the target, fitted to the grid
    first_draft, next_draft : of the draft right after the target, and right after itself
    host : host times by batch; linear between the measured ones and held beyond them
    missing : batch, context and reason of cells that could not be measured.  A cell as large as
        one of these raises CellUnavailableError.
    mode : how the models ran
    """

    target: FittedRunTimes
    first_draft: FittedRunTimes
    next_draft: FittedRunTimes
    host: Mapping[int, HostTimes]
    missing: tuple[tuple[int, int, str], ...] = ()
    mode: Mode = "eager"

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
        from specsim.hardware.run_time_fit import fits  # loads scipy

        found = fits(row for row in profile.grid if row.mode == mode)
        for model, kind in (("target", "target"), ("draft", "first draft")):
            if (mode, kind) not in found:
                raise UnsupportedError(f"no run times were measured of the {model} in mode {mode}")
        first = found[mode, "first draft"]
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

    def run_s(
        self, model: Role, tokens: int, batch: int, context: float, follows: Role = "draft"
    ) -> float:
        if model == "draft":
            times = self.first_draft if follows == "target" else self.next_draft
            return times(tokens, batch, context)
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
