"""The schedule of a plan, or of one that was written as JSON."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.checks import InvalidArgumentError
from specsim.engines.schedule import Schedule

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
    if not found["met"]:
        raise InvalidArgumentError(f"{name} meets no level, so that it has no schedule to serve")
    return [(first, last, gamma) for first, last, gamma in found["schedule"]]


def _read(path: Path) -> dict[str, Any]:
    import msgspec

    try:
        document = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidArgumentError(f"capacity_plan {path} cannot be read: {error}") from None
    return document if isinstance(document, dict) else {}
