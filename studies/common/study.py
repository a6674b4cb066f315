"""What a study is, and what it reads: a profile and the measurements beside it.

Beside ``profile.json`` may lie

    profile.decoders.json        specsim validate profile.json --scheme all --format json
    profile.speedups.json        specsim validate profile.json --format json
    profile.synthetic.json       specsim validate profile.json --synthetic --format json
    profile.positions-T.parquet  specsim score --temperature T

A study says what it can without the ones that are not there, and which command makes them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from specsim.files import file_digest
from specsim.frontier import LabelledPositions, read_positions
from specsim.optimizers.workload import Workload
from specsim.profiles import Profile, read_profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
# By name; every table is written as CSV, and those with a caption stand on the page too.
Tables = dict[str, list[dict[str, Any]]]

REFERENCE = Path(__file__).parents[1] / "reference"
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
        return self.path.with_name(f"{self.path.stem}.{what}.json")

    def positions_file(self, temperature: float) -> Path:
        return self.path.with_name(f"{self.path.stem}.positions-{temperature:g}.parquet")

    def _rows(self, what: str) -> list[dict[str, Any]]:
        file = self.beside(what)
        return msgspec.json.decode(file.read_bytes()) if file.is_file() else []


@dataclass(frozen=True)
class Check:
    """A printed number of a paper and what specsim makes of it.

    ours : None where it cannot be computed from what the paper prints
    tolerance : absolute; half a unit of the last printed digit, or what the inputs' rounding does
    reason : why ours is further off than that, or missing; empty where it matches
    printed_twice : ours is made of other printed numbers alone, so that a match says that the paper
        agrees with itself
    """

    where: str  # paper and table
    item: str  # which row and column
    printed: float
    ours: float | None
    tolerance: float
    reason: str = ""
    printed_twice: bool = False

    @property
    def matches(self) -> bool:
        return self.ours is not None and abs(self.ours - self.printed) <= self.tolerance


class Study(Protocol):
    """What the modules of this package are.

    CAPTIONS : by table that stands on the page; the first sentence is its heading and names the
        paper's table where rows come from there.  Other tables are the figures' points
    FIGURES : by figure, the line under it
    compute : all tables; a row of a paper says so in its column ``source``, a row of ours names
        the profile (``Measured.source``)
    opening : three sentences: what the paper claims, what we find, where we differ and why
    draw : figures by name, from the tables alone; what was not measured has none
    checks : the paper's printed numbers against ours
    """

    TITLE: str
    CAPTIONS: Mapping[str, str]
    FIGURES: Mapping[str, str]

    def compute(self, measured: Measured) -> Tables: ...
    def opening(self, tables: Tables) -> str: ...
    def draw(self, tables: Tables) -> dict[str, Figure]: ...
    def checks(self, tables: Tables) -> Sequence[Check]: ...


def reference(name: str) -> list[dict[str, str]]:
    """A table of a paper, as printed."""
    with (REFERENCE / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))
