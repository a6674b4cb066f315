"""What a deployment's drafter asks of an engine, and whether the engine has it."""

from __future__ import annotations

from specsim.batching.workload import BatchWorkload
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.deployment.deployment import Deployment
from specsim.deployment.drafters import KINDS, Drafter, Eagle, Parallel
from specsim.engines import Drafting, Engine, Method, Tree, method_named


def drafter_of(deployment: Deployment | None) -> Drafter | None:
    """The only one, as an engine is started with one."""
    if deployment is None:
        return None
    if not deployment.drafters:
        raise InvalidArgumentError("drafter is missing: what drafts, as in --drafter eagle3")
    if len(deployment.drafters) > 1:
        names = ", ".join(each.label for each in deployment.drafters)
        raise InvalidArgumentError(
            f"drafter must be one, which an engine is started with, got {names}; compare them with "
            "specsim optimize and export the best"
        )
    return deployment.drafters[0]


def method_of(drafter: Drafter, said: Method | None) -> Method:
    """The drafter's; ``said`` must agree, and tells which kind of a parallel one it is."""
    if isinstance(drafter, Parallel):
        own = drafter.kind or (said if said in KINDS else None)
        if own is None:
            raise InvalidArgumentError(
                f"kind is missing: which of {', '.join(KINDS)} drafts, as in "
                f"--drafter parallel:kind={KINDS[0]}"
            )
        method = method_named(own)
    else:
        method = method_named(drafter.method)
    if said not in (None, method):
        other = f"parallel:kind={said}" if said in KINDS else said
        raise InvalidArgumentError(
            f"method must be {method} with drafter {drafter.label}, got {said}: leave it out, or "
            f"give --drafter {other}"
        )
    return method


def tree_of(chosen: Engine, drafting: Drafting, drafter: Drafter | None) -> Tree | None:
    """The tree that it drafts; None for a chain."""
    if not isinstance(drafter, Eagle) or drafter.slots is None:
        return None
    if drafter.topk == 1:
        raise InvalidArgumentError(
            "slots must be left out with topk 1: engines verify the whole chain, "
            f"got {drafter.slots}"
        )
    if drafting.tree is None:
        raise UnsupportedError(
            f"{chosen.title} verifies chains only with {drafting.word}: topk must be 1, without "
            f"slots, got topk {drafter.topk}"
        )
    return Tree(drafter.topk, drafter.slots)


def check_draft_tensor(
    chosen: Engine, deployment: Deployment | None, drafter: Drafter | None
) -> None:
    """Refuse a drafter over another number of cards than the target is: no engine has that."""
    tensor: int | None = getattr(drafter, "tensor", None)
    target = 1 if deployment is None else deployment.parallel.tensor
    if deployment is not None and tensor not in (None, target):
        raise UnsupportedError(
            f"tensor of the drafter must be {target} with {chosen.title}, which spreads it as the "
            f"target, got {tensor}"
        )


def measured_lookups(
    chosen: Engine,
    method: Method,
    workload: BatchWorkload,
    lookup_max: int | None,
    lookup_min: int | None,
) -> tuple[int | None, int | None]:
    """The longest and the shortest run that ngram looks up: as asked for, else as measured, where
    the engine can be told.
    """
    if method != "ngram" or workload.longest_match is None:
        return lookup_max, lookup_min
    if lookup_max is None and "lookup_max" in chosen.lookups:
        lookup_max = max(workload.longest_match, lookup_min or 1)
    if lookup_min is None and "lookup_min" in chosen.lookups:
        lookup_min = 1
    return lookup_max, lookup_min
