"""What a plan says is to be served, or one that was written as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from specsim.checks import InvalidArgumentError, reason_of
from specsim.engines.schedule import Schedule
from specsim.files import read_regular

if TYPE_CHECKING:
    from specsim.api.plan_result import CapacityPlan
    from specsim.deployment.deployment import Deployment

Told = TypeVar("Told", int, str)


@dataclass(frozen=True)
class PlannedServing:
    """The answer of a plan.

    name : of the file, or of the argument
    schedule : (first, last, gamma) by batch
    max_num_seqs : most requests that are served at a time; None: not told
    target, accelerator, tensor_parallel, drafter : of one replica; None: not told, or none
    engine : whose scheduler was planned with; None: not told
    context : tokens in the cache of a request, in the mean; None: not told
    dtypes : dtype and kv_dtype, of all that was compared; empty: not told
    """

    name: str
    schedule: Schedule
    max_num_seqs: int | None = None
    target: str | None = None
    accelerator: str | None = None
    tensor_parallel: int | None = None
    drafter: str | None = None
    engine: str | None = None
    context: int | None = None
    dtypes: frozenset[tuple[str | None, str | None]] = frozenset()

    def check_same(self, deployment: Deployment | None) -> None:
        """Refuse a deployment that the plan's answer is not of; None: a profile."""
        if deployment is None:
            if self.accelerator is not None:
                raise InvalidArgumentError(
                    f"{self.name} plans for {self.accelerator}: give target, drafter and "
                    "accelerator beside it, and no profile"
                )
            return
        drafter = deployment.drafters[0].label if deployment.drafters else None
        for what, planned, given in (
            ("target", self.target, deployment.name),
            ("accelerator", self.accelerator, deployment.card.name),
            ("tensor_parallel", self.tensor_parallel, deployment.parallel.tensor),
            ("drafter", self.drafter, drafter),
        ):
            if planned and planned != given:
                raise InvalidArgumentError(
                    f"{what} must be {planned}, which {self.name} plans for, got {given}"
                )
        own = deployment.dtype, deployment.kv_dtype
        if self.dtypes and own not in self.dtypes:
            planned = " or ".join(sorted(map(_said, self.dtypes)))
            raise InvalidArgumentError(
                f"dtype and kv_dtype must be {planned}, which {self.name} plans for, got "
                f"{_said(own)}"
            )


def planned_serving(plan: CapacityPlan | str | PathLike[str]) -> PlannedServing:
    """The answer of ``specsim.plan``, or of its JSON.

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
    most, tensor, context = (
        _told(found, key, int) for key in ("max_num_seqs", "tensor_parallel", "context")
    )
    target, card, drafter = (_told(found, key, str) for key in ("target", "accelerator", "drafter"))
    schedule = _checked(name, found.get("schedule"))
    inputs = document.get("inputs")
    engine = _told(inputs, "engine", str) if isinstance(inputs, dict) else None
    engine = engine and engine.partition(":")[0]
    deployed = inputs.get("deployment") if isinstance(inputs, dict) else None
    dtypes = frozenset(
        (_told(each, "dtype", str), _told(each, "kv_dtype", str))
        for each in (deployed if isinstance(deployed, list) else ())
        if isinstance(each, dict)
    )
    return PlannedServing(
        name, schedule, most, target, card, tensor, drafter, engine, context, dtypes
    )


def _said(dtypes: tuple[str | None, str | None]) -> str:
    return " and ".join(each or "as the config says" for each in dtypes)


def _told(plan: Mapping[str, Any], key: str, kind: type[Told]) -> Told | None:
    value = plan.get(key)
    return value if type(value) is kind else None


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
