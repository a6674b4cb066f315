"""The schedule of a plan, or of one that was written as JSON."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.checks import InvalidArgumentError, reason_of
from specsim.engines.schedule import Schedule
from specsim.files import read_regular

if TYPE_CHECKING:
    from specsim.api.plan_result import CapacityPlan


def planned_schedule(plan: CapacityPlan | str | PathLike[str]) -> Schedule:
    """(first, last, gamma) by batch of the answer of ``specsim.plan``, or of its JSON.

    Raises InvalidArgumentError where the file is another one, or its plan meets no level.
    """
    if isinstance(plan, (str, PathLike)):
        name, document = str(plan), _read(Path(plan))
    else:
        name, document = "capacity_plan", plan.document()
    answer = document.get("answer")
    found = answer.get("plan") if isinstance(answer, dict) else None
    if document.get("schema") != "specsim.serving" or not isinstance(found, dict):
        raise InvalidArgumentError(f"{name} is no plan: write one with specsim plan --format json")
    if not found.get("met"):
        raise InvalidArgumentError(f"{name} meets no level, so that it has no schedule to serve")
    return _checked(name, found.get("schedule"))


def _read(path: Path) -> dict[str, Any]:
    import msgspec

    content = read_regular(path, "capacity_plan", InvalidArgumentError)
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgumentError(
            f"capacity_plan {path} cannot be read: {reason_of(error)}"
        ) from None
    return document if isinstance(document, dict) else {}


def _checked(name: str, schedule: Any) -> Schedule:
    """Ranges of batches from 1 on without a gap, each with its draft length."""
    import msgspec

    try:
        found = msgspec.convert(schedule, type=list[tuple[int, int, int]])
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(f"{name}: schedule: {error}") from None
    expected = 1
    for at, (first, last, gamma) in enumerate(found):
        if first != expected or last < first or gamma < 0:
            raise InvalidArgumentError(
                f"{name}: schedule[{at}] must be (first batch, last batch, draft length) and begin "
                f"with batch {expected}, got ({first}, {last}, {gamma})"
            )
        expected = last + 1
    if not found:
        raise InvalidArgumentError(f"{name}: schedule is empty")
    return found
