"""What the checks of ``specsim.validate`` share: a profile, its models, a run that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.api.models import Models
from specsim.api.progress import Progress
from specsim.api.result import LeftOut, Row, plain
from specsim.api.validation import AnyCheck, Tolerance, Validation
from specsim.checkpoint import Checkpoint
from specsim.checks import InvalidArgumentError, integer
from specsim.files import file_digest
from specsim.profiles import Hardware, Profile

if TYPE_CHECKING:
    from calibrate.models.busy import Watch
    from calibrate.validate.findings import Findings


@dataclass(frozen=True)
class CheckedProfile:
    """What is validated, whatever the check."""

    path: Path
    profile: Profile
    models: Models
    tolerance: Tolerance | None
    progress: Progress

    def checkpoint(self, check: AnyCheck, *more: object) -> Checkpoint:
        """Found again by a run on the same profile, asked for the same; ``more`` as JSON."""
        asked = plain(check), plain(self.models)
        return Checkpoint.temporary("validate", file_digest(self.path), *asked, *more)

    def begin(self, check: AnyCheck, *more: object) -> WatchedRun:
        """A run of the same whose run times count, so that the machine is watched meanwhile."""
        from calibrate.models.busy import Watch
        from calibrate.models.machine import hardware, told_apart_by

        here, there = hardware(self.models.place().device), self.profile.hardware
        checkpoint = self.checkpoint(check, told_apart_by(here), *more)
        resumed = resumed_warnings(checkpoint)
        if told_apart_by(here) != told_apart_by(there):
            where = f"measured on {_machine(there)}, and this is {_machine(here)}"
            resumed = (*resumed, f"the profile was {where}: two machines differ")
        elif here.device == "cpu" and here.threads != there.threads:
            resumed = (
                *resumed,
                f"the profile was measured with threads {there.threads}, and this decodes with "
                f"{here.threads}: what models cost differs",
            )
        # An accelerator's models keep one core of the host at work.
        threads = self.models.threads if here.device == "cpu" else None
        return WatchedRun(checkpoint, Watch(checkpoint, self.progress, threads or 1), resumed)

    def result(
        self,
        check: AnyCheck,
        rows: list[Row],
        findings: Findings,
        warnings: tuple[str, ...],
        left_out: tuple[LeftOut, ...] = (),
    ) -> Validation:
        return Validation(
            check=check,
            measured=tuple(rows),
            errors=findings.errors,
            failures=findings.failures,
            inputs={
                "profile": str(self.path),
                "check": check,
                "models": self.models,
                "tolerance": self.tolerance,
            },
            warnings=(*self.profile.warnings, *warnings),
            left_out=left_out,
        )


@dataclass(frozen=True)
class WatchedRun:
    """What is done so far, and what other programs use of the machine."""

    checkpoint: Checkpoint
    watch: Watch
    resumed: tuple[str, ...]

    def done(self) -> tuple[str, ...]:
        """Remove what was kept; the warnings of the run."""
        found = (*self.resumed, *self.watch.warnings())
        self.checkpoint.done()
        return found


def _machine(hardware: Hardware) -> str:
    return f"{hardware.device_name} ({hardware.processor}, cores {hardware.cores})"


def resumed_warnings(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The warning that not all of it is decoded now, if that is so."""
    if not checkpoint.begun:
        return ()
    return (f"went on with what was decoded before, in {checkpoint.folder}",)


def draft_lengths(asked: tuple[int, ...] | None, longest: int) -> tuple[int, ...]:
    """Those that are asked for, or all up to the longest of the profile."""
    if not asked:
        return tuple(range(1, longest + 1))
    for gamma in asked:
        if not 1 <= integer("gamma", gamma) <= longest:
            raise InvalidArgumentError(
                f"gamma must be in [1, {longest}] with this profile, got {gamma}"
            )
    return tuple(dict.fromkeys(asked))
