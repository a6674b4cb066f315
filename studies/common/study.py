"""What a study is: a paper's printed numbers, tables, pictures and the sentences over them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.api.progress import Progress
from studies.common.measured import SHIPPED, Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
# By name; every table is written as CSV, and those with a caption stand on the page too.
Tables = dict[str, list[dict[str, Any]]]

REFERENCE = Path(__file__).parents[1] / "reference"
NOT_DECODED = (
    "Nothing was decoded beside this profile (`specsim validate`), so no prediction is held "
    "against a measurement."
)
NOT_SCORED = (
    "No text was scored beside this profile (`specsim score`), so the quality of our own models is "
    "not shown."
)


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


@dataclass(frozen=True)
class Picture:
    """A figure of a page; what ``draw`` says of itself is its caption.

    draw : from the rows of ``tables``; None where they have nothing to show.  It is not called
        where the first table is empty, which is what was not measured
    """

    draw: Callable[..., Figure | None]
    tables: tuple[str, ...]

    @property
    def caption(self) -> str:
        return " ".join((self.draw.__doc__ or "").split())


def _measure_all(profile: Path | None, out: Path, progress: Progress) -> Path:
    from studies.common.measure import measure_all  # loads torch

    return measure_all(profile, out, progress)


@dataclass(frozen=True)
class Study:
    """A paper, or our own question, as tables, pictures and sentences.

    captions : by table that stands on the page; the first sentence is its heading and names the
        paper's table where rows come from there.  Other tables are the pictures' points
    compute : all tables; a row of a paper, or one computed without a measurement, says so in its
        column ``source``
    opening : three paragraphs: what the paper claims, what we find, where we differ and why
    checks : the paper's printed numbers against ours
    shipped : the profile whose measurements are shown where none is given
    measure : everything that is read beside a profile, what is there already excepted; from the
        profile that is given, or None, and the folder where one is made then, to its path
    """

    title: str
    captions: Mapping[str, str]
    pictures: Mapping[str, Picture]
    compute: Callable[[Measured], Mapping[str, Sequence[Row]]]
    opening: Callable[[Tables], Sequence[str]]
    checks: Callable[[Tables], Sequence[Check]]
    shipped: Path = SHIPPED
    measure: Callable[[Path | None, Path, Progress], Path] = _measure_all

    def tables(self, measured: Measured) -> Tables:
        """All tables; rows that rest on the measurements name them as their source."""
        return {
            name: [{"source": measured.source, **row} for row in rows]
            for name, rows in self.compute(measured).items()
        }

    def draw(self, tables: Tables) -> dict[str, Figure]:
        """The pictures of what was measured, by name."""
        import matplotlib.pyplot as plt

        from specsim.report.plots import STYLE

        with plt.rc_context(STYLE):
            drawn = {
                name: picture.draw(*(tables[table] for table in picture.tables))
                for name, picture in self.pictures.items()
                if tables[picture.tables[0]]
            }
        return {name: figure for name, figure in drawn.items() if figure is not None}


def reference(name: str) -> list[dict[str, str]]:
    """A table of a paper, as printed."""
    with (REFERENCE / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def where(rows: Sequence[Row], **values: object) -> list[Row]:
    """The rows that have these values in these columns."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
