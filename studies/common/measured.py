"""What studies read: a profile and the measurements beside it.

Beside ``profile.json`` may lie

    profile.decoders.json        specsim validate profile.json --scheme all --format json
    profile.speedups.json        specsim validate profile.json --format json
    profile.synthetic.json       specsim validate profile.json --synthetic --format json
    profile.positions-T.parquet  specsim score --temperature T

A study says what it can without the ones that are not there, and which command makes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import calibrate
from specsim.checks import SpecsimError, reason_of
from specsim.files import file_digest, read_regular
from specsim.frontier import LabelledPositions, read_positions
from specsim.optimizers.workload import Workload
from specsim.profiles import Profile, read_profile

# What is shipped: the embedded family, on two CPU cores.
SHIPPED = Path(__file__).parents[1] / "measured" / "embedded-cpu" / "profile.json"
# The temperatures that ``specsim score`` is run at.
SCORED = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class Measured:
    """A profile and what lies beside it."""

    path: Path
    profile: Profile

    @staticmethod
    def at(path: Path) -> Measured:
        return Measured(path, read_profile(path))

    @cached_property
    def source(self) -> str:
        """How rows that rest on these measurements name them."""
        return f"profile {file_digest(self.path)[:8]}"

    @cached_property
    def workloads(self) -> list[Workload]:
        """The profile's sampling settings, with their traces."""
        return Workload.all_of(self.profile, self.path, None)

    @cached_property
    def greedy(self) -> Workload | None:
        """The workload at temperature 0, if the profile has one."""
        found = [each for each in self.workloads if temperature_of(each) == 0]
        return found[0] if found else None

    def nearest(self, temperature: float) -> Workload:
        """The workload of that temperature, or of the nearest above, or of the nearest.

        Run times do not depend on the temperature; the host's part does, by whether it samples.
        """

        def away(workload: Workload) -> tuple[bool, float]:
            gap = temperature_of(workload) - temperature
            return gap < 0, abs(gap)

        return min(self.workloads, key=away)

    @cached_property
    def decoded(self) -> list[dict[str, Any]]:
        """Every decoder, predicted beside measured; empty if none was decoded."""
        return self._rows("decoders")

    @cached_property
    def speedups(self) -> list[dict[str, Any]]:
        """Speculative decoding at every draft length, predicted beside measured."""
        return self._rows("speedups")

    @cached_property
    def synthetic(self) -> list[dict[str, Any]]:
        """Decoding in a batch at a synthetic acceptance, predicted beside measured."""
        return self._rows("synthetic")

    @cached_property
    def positions(self) -> dict[float, LabelledPositions]:
        """Scored text by temperature, as far as it is there."""
        files = {temperature: self.positions_file(temperature) for temperature in SCORED}
        return {at: read_positions(file) for at, file in files.items() if file.is_file()}

    def beside(self, what: str) -> Path:
        """The file of rows of that name."""
        return _rows_file(self.path, what)

    def positions_file(self, temperature: float) -> Path:
        return _positions_file(self.path, temperature)

    @staticmethod
    def files(profile: Path) -> list[Path]:
        """All that may lie beside a profile."""
        rows = [_rows_file(profile, what) for what in ("synthetic", "decoders", "speedups")]
        return [*rows, *(_positions_file(profile, temperature) for temperature in SCORED)]

    def family_file(self, name: str) -> dict[str, Any]:
        """A file of the embedded family's, if that is what was measured; else nothing."""
        if not self.profile.target.name.startswith("embedded/"):
            return {}
        file = Path(calibrate.__file__).parent / "family" / name
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def _rows(self, what: str) -> list[dict[str, Any]]:
        """Of a result (``specsim.api.result``) as JSON."""
        file = self.beside(what)
        if not file.is_file():
            return []
        try:
            document = msgspec.json.decode(read_regular(file, "", SpecsimError))
            return msgspec.convert(document["answer"]["rows"], type=list[dict[str, Any]])
        except (msgspec.MsgspecError, RecursionError, LookupError, TypeError) as error:
            said = f"{file}: is no result of specsim in JSON ({reason_of(error)})"
            raise SpecsimError(said) from None


def _rows_file(profile: Path, what: str) -> Path:
    return profile.with_name(f"{profile.stem}.{what}.json")


def _positions_file(profile: Path, temperature: float) -> Path:
    return profile.with_name(f"{profile.stem}.positions-{temperature:g}.parquet")


def temperature_of(workload: Workload) -> float:
    """What its text was sampled at."""
    return workload.measured.sampling.temperature


def verify_curve(workload: Workload) -> list[float]:
    """v(1), v(2), ... at the mean context, as far as target runs were timed."""
    where = np.array([workload.context])
    widths = range(1, int(workload.cost.target.tokens[-1]) + 1)
    seconds = [float(workload.cost.target(width, where)[0]) for width in widths]
    return [each / seconds[0] for each in seconds]
