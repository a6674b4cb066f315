"""What steps cost at any load and what is accepted, from a deployment, a profile or step times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from specsim.acceptance import AlphaLike, acceptance_of
from specsim.api.serving_acceptance import profile_trace, trace_behind
from specsim.batching.cost import LoadCost
from specsim.batching.deployed import of_what_drafts, target_doubts
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.source import Source
from specsim.batching.workload import BatchWorkload
from specsim.checks import Floats, InvalidArgumentError
from specsim.counts.file import is_acceptance
from specsim.deployment.cost import DeployedCost
from specsim.deployment.deployment import Deployment
from specsim.deployment.drafters import Drafter, DraftModel, Ngram
from specsim.profiles import read_profile
from specsim.serving.acceptance import RoundAcceptance


@dataclass(frozen=True, eq=False)
class ServingCosts:
    """What steps cost at any load, what is accepted, and the words for both.

    method : where drafts come from, as engines call it; None: not known
    longest : tokens of one request that the models take; None: not known
    """

    cost: LoadCost
    basis: str
    survival: Callable[[int], Floats] | None
    trace: RoundAcceptance | None = None
    workload: BatchWorkload | None = None
    drafter: Drafter | None = None
    method: str | None = None
    longest: int | None = None
    warnings: tuple[str, ...] = ()


def plain_costs(source: Source) -> ServingCosts:
    """Costs of plain decoding, whatever is known of drafts."""
    source.check()
    if source.deployment is not None:
        deployment = replace(source.deployment, drafters=())
        return ServingCosts(
            DeployedCost(deployment, None, 1),
            _basis_of(deployment),
            None,
            longest=deployment.shape.longest_context or None,
            warnings=tuple(target_doubts(deployment)),
        )
    if source.alpha is None and source.profile and _is_of_costs_alone(Path(source.profile)):
        source = replace(source, alpha=0.0)  # nothing is drafted, whatever would be accepted
    workload = _one(source, None)
    return ServingCosts(
        workload.cost,
        workload.basis.of_times,
        None,
        longest=workload.context,
        warnings=workload.doubts,
    )


def _is_of_costs_alone(path: Path) -> bool:
    return not is_acceptance(path) and not read_profile(path).acceptance


def costs_with_drafts(source: Source, gamma_max: int | None) -> ServingCosts:
    """Costs and acceptance of the one setting that is meant, with drafts up to that length."""
    workload = _one(source, gamma_max)
    drafter = source.deployment.drafters[0] if source.deployment is not None else None
    trace: RoundAcceptance | None = None
    doubts: tuple[str, ...] = ()
    survival: Callable[[int], Floats] | None = None
    alpha = source.alpha
    if alpha is None and drafter is not None:
        alpha = drafter.alpha
    if alpha is not None:
        told = alpha if drafter is None else of_what_drafts(alpha, drafter)
        survival = acceptance_of(told).survival
    elif source.profile is not None:
        path = Path(source.profile)
        if is_acceptance(path):
            from specsim.extrapolation.from_file import counted_acceptance

            file: AlphaLike = counted_acceptance(path, source.temperature)
            counted = acceptance_of(file if drafter is None else of_what_drafts(file, drafter))
            survival = counted.survival
            trace, doubts = trace_behind(path)
        else:
            trace = profile_trace(path, workload.temperature, source.acceptance_law)
    if isinstance(drafter, Ngram) and survival is not None:
        survival = _found(drafter, survival)
    method: str | None = workload.method if drafter is None else drafter.method
    if method is None and source.profile is not None and not is_acceptance(Path(source.profile)):
        method = DraftModel.method  # a profile is of two models
    if isinstance(workload.cost, MeasuredLoadCost) and workload.cost.deployed is not None:
        drafter = workload.cost.deployed.drafter
    return ServingCosts(
        workload.cost,
        workload.basis.of_times,
        survival,
        trace,
        workload,
        drafter,
        method,
        workload.context,
        (*workload.doubts, *doubts),
    )


def _one(source: Source, gamma_max: int | None) -> BatchWorkload:
    found = source.workloads(gamma_max)
    if len(found) > 1:
        names = "; ".join(each.name for each in found)
        raise InvalidArgumentError(
            f"one setting is served, and here are {len(found)}: {names}; name one drafter, or one "
            "temperature"
        )
    return found[0]


def _found(drafter: Ngram, survival: Callable[[int], Floats]) -> Callable[[int], Floats]:
    """Drafts that must be found: in a round that has none, none stands."""

    def curve(gamma: int) -> Floats:
        found = survival(gamma).copy()
        found[1:] *= drafter.match * drafter.lengths(gamma)
        return found

    return curve


def _basis_of(deployment: Deployment) -> str:
    return f"step times at {deployment.words}" if deployment.is_bound else deployment.words


def law_rows(survival: Callable[[int], Floats], longest: int) -> Floats:
    """(K, K) P(the first j drafts stand) by draft length and j, from curves S_0..S_gamma."""
    rows = np.zeros((longest, longest))
    for gamma in range(1, longest + 1):
        rows[gamma - 1, :gamma] = survival(gamma)[1:]
    return rows
