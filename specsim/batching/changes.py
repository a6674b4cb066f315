"""Single changes to how a batch is served, and what each alone would make of a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from specsim.acceptance import AlphaLike
from specsim.batching.cost import TimedLoadCost
from specsim.batching.decision import Decision, decide
from specsim.batching.deployed import alpha_of_others, of_deployment
from specsim.batching.parts import Step
from specsim.batching.point import DEFAULT_MARGIN, BatchPoint
from specsim.batching.workload import BatchWorkload
from specsim.checks import SpecsimError
from specsim.deployment.deployment import Deployment, HostTime
from specsim.deployment.drafters import Drafter, Eagle3, Ngram

# Bytes of a number of a cache that is not quantised yet.
_PLAIN_KV_BYTES = 2


@dataclass(frozen=True)
class Change:
    """One thing done otherwise, everything else as it is.

    what : in words, from what to what
    decision : what a round gives then, against plain decoding under the same change
    assumes : what is taken for granted besides; empty where nothing is
    asked : whether a person named it
    """

    what: str
    decision: Decision
    assumes: str = ""
    asked: bool = False

    @property
    def point(self) -> BatchPoint:
        """What a round gives."""
        return self.decision.point


@dataclass(frozen=True)
class Candidate:
    """A change that may have no price.

    decision : works the change out; raises SpecsimError where there is no room for it, or a degree
        divides nothing
    asked : whether a person named it, and must be told why it has no price
    """

    what: str
    decision: Callable[[], Decision]
    assumes: str = ""
    asked: bool = False


def try_all(
    candidates: Iterable[Candidate], here: BatchPoint
) -> tuple[list[Change], list[tuple[str, str]]]:
    """Those that have a price, the largest speedup first, and of those that were asked for and have
    none what they are and why.

    here : what is changed; changes that yield fewer tokens per second than it come last, however
        large their speedup, which is against plain decoding under the same change
    """
    found, refused = [], []
    for each in candidates:
        try:
            found.append(Change(each.what, each.decision(), each.assumes, each.asked))
        except SpecsimError as reason:
            if each.asked:
                refused.append((each.what, str(reason)))
    least = here.tokens_per_s

    def order(change: Change) -> tuple[bool, float]:
        return change.point.tokens_per_s < least, -change.point.speedup

    return sorted(found, key=order), refused


def of_load(here: BatchPoint, workload: BatchWorkload) -> Iterator[Candidate]:
    """Another draft length, or another batch; whatever prices them."""
    cost, context = workload.cost, here.context
    best = decide(workload, here.batch, context, DEFAULT_MARGIN)
    gamma = best.point.gamma
    if gamma != here.gamma:
        off = "" if gamma else " (no drafts)"
        yield Candidate(f"gamma {here.gamma} -> {gamma}{off}", lambda: best)
    loads = {here.batch // 2: "half as many requests come", 2 * here.batch: "twice as many come"}
    for batch, assumes in loads.items():
        if batch and (not isinstance(cost, TimedLoadCost) or cost.covers(batch, context)):
            yield Candidate(
                f"batch {here.batch:,} -> {batch:,}",
                partial(decide, workload, batch, context, DEFAULT_MARGIN, here.gamma),
                assumes,
            )


def of_deployment_here(
    here: BatchPoint, step: Step, deployment: Deployment, alpha: AlphaLike | None
) -> Iterator[Candidate]:
    """Another drafter, another setting of the engine, or more cards.

    deployment : its first drafter is the one in use; the others are tried in its place, or, where
        there are none, those that every target can have
    alpha : acceptance of drafters that do not say their own
    """
    used, *others = deployment.drafters
    # The configuration of the target is read once.
    alone = replace(deployment, target=deployment.shape, drafters=(used,))

    def at(acceptance: AlphaLike | None = alpha, **changed: Any) -> Decision:
        other = replace(alone, **changed)
        longest = other.drafters[0].longest
        gamma = here.gamma if longest is None else min(here.gamma, longest)
        given = alpha_of_others(other.drafters[0], acceptance)
        (workload,) = of_deployment(other, given, gamma)
        return decide(workload, here.batch, here.context, DEFAULT_MARGIN, gamma)

    for other in others:
        shorter = other.longest is not None and other.longest < here.gamma
        name = f"drafter {other.label}" + (f" at gamma {other.longest}" if shorter else "")
        yield Candidate(name, partial(at, drafters=(other,)), asked=True)
    if not others:
        same = alpha if used.alpha is None else used.alpha
        for other, assumes in _usual(used):
            changed = partial(at, same, drafters=(other,))
            yield Candidate(f"drafter {other.label}", changed, assumes)
    reached, parallel = deployment.efficiency, deployment.parallel
    if step.eager_s and reached.graph_tokens is not None:
        wide = int(step.widest)
        yield Candidate(
            f"graph tokens {reached.graph_tokens:,} -> {wide:,}",
            partial(at, efficiency=replace(reached, graph_tokens=wide)),
        )
    if deployment.host != HostTime():
        hidden = partial(at, host=HostTime())
        yield Candidate("host time -> 0", hidden, "all of it is hidden, a bound")
    yield Candidate(
        f"tensor parallel {parallel.tensor} -> {2 * parallel.tensor}",
        partial(at, parallel=replace(parallel, tensor=2 * parallel.tensor)),
        "needs twice the cards",
    )
    if deployment.shape.precision.kv_bytes >= _PLAIN_KV_BYTES:
        yield Candidate("KV cache -> fp8", partial(at, kv_dtype="fp8"))


def _usual(used: Drafter) -> Iterator[tuple[Drafter, str]]:
    """Drafters that every target can have, and what is assumed of them."""
    if used.method not in ("eagle", "eagle3"):
        yield Eagle3(), "its drafts are accepted as often"
    if not isinstance(used, Ngram):
        yield Ngram(), "its drafts are accepted as often, and every round has some"
