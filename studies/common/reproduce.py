"""Studies written one after another, and how many of the papers' printed numbers come out again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from specsim.api.result import Result, Row
from studies.common.measured import Measured
from studies.common.study import Check
from studies.common.write import counts, write


@dataclass(frozen=True, kw_only=True)
class Reproduction(Result):
    """Pages that were written, and the printed numbers on them.

    checks : by study, every printed number against ours
    """

    schema: ClassVar[str] = "specsim.study"

    out: Path
    checks: Mapping[str, Sequence[Check]]

    def rows(self) -> list[Row]:
        """How the printed numbers of each paper stand against ours (``write.counts``)."""
        return [
            {"study": study, **counts(checks), "page": str(self.out / f"{study}.md")}
            for study, checks in self.checks.items()
        ]

    def sentences(self) -> list[str]:
        return [
            f"failed: {each.where}, {each.item}: printed {each.printed:g}, ours {each.ours}"
            for each in self.unexplained
        ]

    @property
    def unexplained(self) -> list[Check]:
        """Numbers that neither match nor have a known reason not to."""
        return [
            check
            for checks in self.checks.values()
            for check in checks
            if not check.matches and not check.reason
        ]


def reproduce(profiles: Mapping[str, Path], out: Path, command: str) -> Reproduction:
    """Write studies to the folder ``out``.

    profiles : by name of the study, what it shows the measurements of
    command : for the record
    """
    from threadpoolctl import threadpool_limits

    # Thousands of small products: threads that wait for one another cost more than they save, and
    # on a busy machine ten times more.
    with threadpool_limits(1):
        measured = {path: Measured.at(path) for path in set(profiles.values())}
        checks = {
            name: write(name, measured[path], out, command) for name, path in profiles.items()
        }
    return Reproduction(
        out=out,
        checks=checks,
        inputs={"profiles": {name: str(path) for name, path in profiles.items()}, "out": str(out)},
    )
