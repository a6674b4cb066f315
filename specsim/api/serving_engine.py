"""The engine that serves: as it is named, on the cards and in the memory of a deployment."""

from __future__ import annotations

from specsim.api.serving_costs import ServingCosts
from specsim.batching.cost import LoadCost
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.source import Source
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.deployment.deployment import Deployment, draft_parallelism
from specsim.deployment.drafters import Drafter, Eagle, Parallel
from specsim.deployment.heads import draft_shapes
from specsim.deployment.memory import BLOCK_TOKENS, CardMemory, card_memory
from specsim.engines import ENGINES, method_named
from specsim.serving.engines.kv_groups import KvGroup, kv_pool
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.engines.sglang import SglangEngine
from specsim.serving.words import EngineDefaults, engine_of


def place_of(source: Source, cost: LoadCost) -> Deployment | None:
    """What serves: as named, or as a profile was timed on, where that is known."""
    if isinstance(cost, MeasuredLoadCost) and cost.deployed is not None:
        return cost.deployed.deployment
    return source.deployment


def serving_engine(
    engine: ServingEngine | str,
    deployment: Deployment | None,
    costs: ServingCosts,
    gamma: int | None,
    context: int,
) -> ServingEngine:
    """The engine that is meant; a deployment tells its card, how many blocks its memory has, and
    how large its CUDA graphs are.
    """
    if not isinstance(engine, str):
        return engine
    defaults = EngineDefaults(longest=costs.longest)
    if deployment is not None:
        if deployment.parallel.data > 1:
            raise UnsupportedError(
                "data_parallel has no meaning for one replica: give tensor_parallel, and replicas"
            )
        blocks = memory_blocks(deployment, costs.drafter, context, gamma or 0)
        groups, group_tokens = memory_groups(deployment, costs.drafter, context, gamma or 0)
        defaults = EngineDefaults(
            cache_tokens=blocks * BLOCK_TOKENS,
            kv_groups=groups,
            group_tokens=group_tokens,
            longest=costs.longest,
            card=deployment.card,
            tensor_parallel=deployment.parallel.tensor,
            graph_tokens=deployment.efficiency.graph_tokens,
            gamma_max=gamma or 0,
        )
    return engine_of(engine, defaults)


def takes_schedules(
    engine: ServingEngine,
    place: Deployment | None,
    drafter: Drafter | None,
    method: str | None,
) -> bool:
    """Whether it takes a draft length for each batch there of what drafts; where that is not known,
    too.

    method : as engines call it, where no drafter is known
    """
    own = ENGINES["sglang" if isinstance(engine, SglangEngine) else "vllm"]
    if place is not None and not own.by_batch(place.parallel):
        return False
    if isinstance(drafter, Eagle) and drafter.topk > 1:
        return False  # a tree has one size
    known = drafter.kind if isinstance(drafter, Parallel) else method
    if known is None:
        return drafter is None or own is ENGINES["vllm"]
    method_known = method_named(known)
    return method_known in own.methods and own.methods[method_known].by_batch


def memory_blocks(deployment: Deployment, drafter: Drafter | None, context: int, gamma: int) -> int:
    """KV blocks of 16 tokens that the memory of the cards holds beside the weights.

    context : tokens of a request, where what it keeps is not in proportion to them
    """
    memory = card_memory(deployment, drafter, context, gamma)
    per_request = -(-(context + gamma + 1) // BLOCK_TOKENS)
    return int(_left(memory, deployment, context) / memory.request * per_request)


def memory_groups(
    deployment: Deployment, drafter: Drafter | None, context: int, gamma: int
) -> tuple[tuple[KvGroup, ...], int | None]:
    """Groups of layers that have blocks of their own in vLLM, and the tokens that all blocks hold
    of one group; none where all layers have theirs together.
    """
    models = [(deployment.shape, deployment.parallel)]
    shapes = None if drafter is None else draft_shapes(drafter, deployment.shape, gamma)
    if drafter is not None and shapes is not None:
        models.append((shapes.loaded, draft_parallelism(deployment, drafter)))
    pool = kv_pool(models)
    if pool is None:
        return (), None
    left = _left(card_memory(deployment, drafter, context, gamma), deployment, context)
    return pool.groups, int(left / pool.token_bytes)


def _left(memory: CardMemory, deployment: Deployment, context: int) -> float:
    """Bytes beside the weights; InvalidArgumentError where not one request fits."""
    left = memory.usable - memory.target - memory.draft
    if left < memory.request:
        raise InvalidArgumentError(
            f"{deployment.name} leaves no room for a request of {context:,} tokens on "
            f"{deployment.card.name}; it may fit on more cards, or in another dtype"
        )
    return left
