"""What of a simulated server lies beyond what was timed, or was said and is not used."""

from __future__ import annotations

from specsim.batching.cost import LoadCost
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.source import Source
from specsim.batching.step_cost import StepLoadCost
from specsim.deployment.deployment import Deployment
from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.requests import Requests
from specsim.serving.routing import Routing
from specsim.serving.service import SetUp


def beyond_timed(cost: LoadCost, context: int, most: int) -> list[str]:
    """Whether steps that were timed are taken for requests much longer, or shorter, or for more of
    them.
    """
    if isinstance(cost, MeasuredLoadCost):
        return _beyond_grid(cost, context, most)
    if isinstance(cost, StepLoadCost):
        return _beyond_steps(cost, context, most)
    return []


def routing_doubts(routing: Routing, replicas: int, requests: Requests) -> tuple[str, ...]:
    """Whether requests are routed by prefixes of which nothing is known."""
    if routing != "prefix-aware" or replicas <= 1 or requests.prefix is not None:
        return ()
    return (
        "nothing is known of what prompts share, so that prefix-aware routing is least-outstanding "
        "here: give a file with hashes or token ids",
    )


def undrafted(source: Source, acceptance: RoundAcceptance | None) -> tuple[str, ...]:
    """Whether drafts are described, where nobody says how many are made.

    acceptance : what rounds emit, in place of the source's
    """
    drafters = source.deployment is not None and source.deployment.drafters
    if source.alpha is None and acceptance is None and not drafters:
        return ()
    return (
        "nothing is drafted, so that drafter and acceptance are not used: say how much (--gamma N, "
        "or --gamma table)",
    )


def beyond_graphs(setup: SetUp, deployment: Deployment | None, batch: float) -> tuple[str, ...]:
    """Whether steps in which so many requests decode are wider than the engine's largest CUDA graph
    and are priced as if they were not.

    deployment : what the steps are priced by; None: they were timed, or given
    """
    if deployment is None or setup.step_model.eager_s:
        return ()
    decodes = max(round(batch), 1)
    tokens = decodes * (1 + int(setup.drafts.gammas(decodes)[decodes]))
    largest = int(max(setup.engine.capture_sizes(setup.drafts), default=0))
    if tokens <= largest:
        return ()
    return (
        f"steps of {tokens:,} tokens, of {decodes:,} requests that decode, are wider than the "
        f"engine's largest CUDA graph, {largest:,}, and cost nothing more here: --eager-layer-us "
        "says what its host needs for a layer of them",
    )


def _beyond_grid(cost: MeasuredLoadCost, context: int, most: int) -> list[str]:
    widest, largest = cost.target.widest, cost.batches[-1]
    found = [
        "no run over a prompt was timed: prompts are priced by the law that was fitted to runs of "
        f"{widest:,} tokens a request at most, {widest * largest:,} in all"
    ]
    if most > largest:
        found.append(
            f"runs were timed up to {largest:,} requests; with more, up to {most:,}, they are "
            "priced by the law that was fitted"
        )
    shortest, longest = cost.contexts[0], cost.contexts[-1]
    if not shortest <= context <= longest:
        timed = f"{shortest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
        found.append(
            f"runs were timed at contexts of {timed} tokens, and are priced by the law that was "
            f"fitted here, at {context:,} in the mean"
        )
    return found


def _moved(cost: StepLoadCost) -> str:
    """What is made of another context."""
    if any(cost.context_token_s(gamma) for gamma in cost.steps.gammas):
        return "are priced by what a token in the caches added"
    return "are taken to cost the same"


def _beyond_steps(cost: StepLoadCost, context: int, most: int) -> list[str]:
    found = []
    largest = cost.batches[-1]
    if cost.contexts != (0,) and not cost.covers(1, context):
        found.append(
            f"steps were timed at contexts of about {cost.contexts[0]:,} tokens and up to "
            f"{largest:,} requests, and {_moved(cost)} here, at {context:,} tokens in the mean"
        )
    if most > largest:
        grows = "they cost the same"
        if cost.half < largest:
            grows = f"each adds what it adds from {cost.half:,} to {largest:,}, at least nothing"
        found.append(
            f"steps were timed up to {largest:,} requests; with more, up to {most:,}, {grows}"
        )
    return found
