"""``specsim.doctor``: whether this machine and this installation are fit, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from specsim.api import doctor_checks as checks
from specsim.api.doctor_checks import Condition
from specsim.api.result import Result, Row
from specsim.checks import number


@dataclass(frozen=True, kw_only=True)
class Installation(Result):
    """What was found, one condition each.

    Rows say what was looked at, what was found, the state (ok, advice, to do where specsim lacks
    something, or unknown) and what to do.
    """

    schema: ClassVar[str] = "specsim.doctor"

    conditions: tuple[Condition, ...]

    @property
    def title(self) -> str:
        return "this machine and this installation"

    @property
    def fit(self) -> bool:
        """Whether specsim has all that it needs."""
        return not any(each.state == "to do" for each in self.conditions)

    def rows(self) -> list[Row]:
        return [
            {
                "what": each.what,
                "found": each.found,
                "state": each.state,
                "advice": each.advice or None,
            }
            for each in self.conditions
        ]

    def table(self) -> list[Row]:
        """What to do is said below the table."""
        return [
            {"what": each.what, "state": each.state, "found": each.found}
            for each in self.conditions
        ]

    @property
    def told_below(self) -> str:
        return "found"

    def summary(self) -> Row:
        return {"title": self.title, "fit": self.fit}

    def sentences(self) -> list[str]:
        lines = [
            f"{each.state}, {each.what}: {each.advice}" for each in self.conditions if each.advice
        ]
        return [*lines, "all that is needed is here" if self.fit else "something is lacking"]


def doctor(target: str | None = None, *, seconds: float = 1.0) -> Installation:
    """Look at versions, cores, threads, accelerator, other programs, the embedded family, the
    inference engine, memory and caches.

    target : find, by a trial of less than two seconds once it is loaded, how many threads
        ``calibrate`` takes for this model or shape; None: say among which it would look
    seconds : how long other programs are watched, at least 0.1

    torch is loaded where it is installed.  Raises ModelError where the target cannot be loaded.
    """
    number("seconds", seconds, low=0.1)
    if target is not None:
        from specsim.api.models import need_torch

        need_torch()
    return Installation(
        conditions=tuple(_conditions(target, seconds)),
        inputs={"target": target, "seconds": seconds},
    )


def _conditions(target: str | None, seconds: float) -> Iterator[Condition]:
    yield from checks.versions()
    yield checks.cores()
    yield checks.threads(target)
    yield checks.accelerator()
    yield checks.others(seconds)
    yield checks.family()
    yield checks.engine()
    yield checks.memory()
    yield from checks.caches()
