"""Where the time of a step goes: its parts, and of a deployment what each of them waits for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from specsim.batching.cost import LoadCost
from specsim.deployment.cost import DeployedCost, Runs
from specsim.deployment.heads import draft_shapes
from specsim.hardware.roofline import Roofline
from specsim.hardware.shapes import Shape

# What the parts are of.  "step" is all of a step that an engine timed as a whole.
Kind = Literal["draft", "target", "communication", "host", "step"]
# What a part waits for most.
PartBound = Literal["compute", "memory", "launch", "communication", "host"]


@dataclass(frozen=True)
class Part:
    """One part of a step; None is what does not apply, or what nobody knows.

    seconds : of all its runs, less the time that their cards take to send each other something,
        which is a part of its own
    runs : of a model that the step waits for, in the mean
    flops, bytes : arithmetic and memory traffic of all its runs, of the busiest card
    compute_s, memory_s : the time of each, of which a run takes the longer one
    tokens : that each run reads in a group of cards, of all requests together, in the mean
    experts, of_experts : routed experts that a run touches in a layer, and how many the layer has
    eager_s : seconds that its runs wait for the host, being wider than the largest CUDA graph
    """

    name: str
    kind: Kind
    seconds: float
    runs: float | None = None
    bound: PartBound | None = None
    flops: float | None = None
    bytes: float | None = None
    compute_s: float | None = None
    memory_s: float | None = None
    tokens: float | None = None
    experts: float | None = None
    of_experts: int | None = None
    eager_s: float = 0.0


@dataclass(frozen=True)
class Step:
    """A round of speculation or a step of plain decoding, taken apart."""

    parts: tuple[Part, ...]

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    def seconds_of(self, kind: Kind) -> float:
        """Of all parts of one kind."""
        return sum(part.seconds for part in self.parts if part.kind == kind)

    @property
    def eager_s(self) -> float:
        """What all parts wait for the host, being wider than the largest CUDA graph."""
        return sum(part.eager_s for part in self.parts)

    @property
    def widest(self) -> float:
        """Tokens of the widest run; 0 where nobody knows."""
        return max((part.tokens or 0.0 for part in self.parts), default=0.0)

    @property
    def target(self) -> Part | None:
        """The target's run; None where an engine timed the step as a whole."""
        return next((part for part in self.parts if part.kind == "target"), None)


def step_of(cost: LoadCost, gamma: int, batch: int, context: float, bonus: float) -> Step:
    """A round with ``gamma`` drafts; 0 is a step of plain decoding.

    bonus : chance that a request comes from a round whose drafts were all accepted
    """
    target = "verification" if gamma else "target run"
    if isinstance(cost, DeployedCost):
        parts = _of_deployment(cost, target, gamma, batch, context)
    elif _is_timed_whole(cost):
        parts = [Part("whole step", "step", cost.verify_s(gamma, batch, context))]
    else:
        parts = []
        drafting = cost.draft_s(gamma, batch, context, bonus) if gamma else 0.0
        if drafting:  # a look-up is the host's
            parts.append(Part("draft runs", "draft", drafting, gamma))
        parts.append(Part(target, "target", cost.verify_s(gamma, batch, context), 1))
        parts.append(Part("host", "host", cost.overhead_s(gamma, batch), bound="host"))
    return Step(tuple(parts))


def _of_deployment(
    cost: DeployedCost, target: str, gamma: int, batch: int, context: float
) -> list[Part]:
    drafting = cost.draft_runs(gamma, batch, context) if gamma else []
    verifying = cost.target_runs(gamma, batch, context)
    names = ("first draft run", "later draft runs")
    draft = None
    if any(runs.run.experts for runs in drafting) and cost.drafter is not None:
        shapes = draft_shapes(cost.drafter, cost.deployment.shape, gamma)
        draft = None if shapes is None else shapes.first
    parts = [
        _part(name, "draft", [runs], draft) for name, runs in zip(names, drafting, strict=False)
    ]
    parts.append(_part(target, "target", verifying, cost.deployment.shape))
    if gamma and (looking := cost.lookup_s(batch)):
        parts.append(Part("look-ups", "draft", looking, bound="host"))
    sent = sum(
        runs.count * runs.turns * runs.run.communication_s for runs in [*drafting, *verifying]
    )
    if sent:
        parts.append(Part("communication", "communication", sent, bound="communication"))
    parts.append(Part("host", "host", cost.overhead_s(gamma, batch), bound="host"))
    return parts


def _part(name: str, kind: Kind, several: Sequence[Runs], shape: Shape | None) -> Part:
    """Runs of one model, without what its cards send each other; ``shape`` tells its experts."""
    counts = [runs.count * runs.turns for runs in several]
    runs = sum(counts)
    of_experts = None
    if shape is not None:
        of_experts = max((layer.experts for layer in shape.layers), default=0) or None

    def total(values: Iterable[float]) -> float:
        return sum(count * value for count, value in zip(counts, values, strict=True))

    alone = [_without_communication(each.run) for each in several]
    by_bound: dict[PartBound, float] = {}
    for count, run in zip(counts, alone, strict=True):
        bound: PartBound = run.bound
        by_bound[bound] = by_bound.get(bound, 0.0) + count * run.seconds
    longest = max(by_bound, key=lambda bound: by_bound[bound])
    return Part(
        name,
        kind,
        total(run.seconds for run in alone),
        runs,
        longest,
        flops=total(run.flops for run in alone),
        bytes=total(run.bytes for run in alone),
        compute_s=total(run.compute_s for run in alone),
        memory_s=total(run.memory_s for run in alone),
        tokens=total(run.tokens for run in alone) / runs,
        experts=total(run.experts for run in alone) / runs if of_experts else None,
        of_experts=of_experts,
        eager_s=total(run.seconds - replace(run, eager_s=0.0).seconds for run in alone),
    )


def _without_communication(run: Roofline) -> Roofline:
    """What is left of a run; the host starts kernels while cards send each other something."""
    eager_s = max(run.eager_s - run.communication_s, 0.0)
    return replace(run, communication_s=0.0, eager_s=eager_s)


def _is_timed_whole(cost: LoadCost) -> bool:
    from specsim.batching.step_cost import StepLoadCost  # loads what engines' counts need

    return isinstance(cost, StepLoadCost)
