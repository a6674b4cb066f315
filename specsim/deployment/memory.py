"""What stands in the memory of a card, and how many requests have room beside it."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.deployment.deployment import Deployment, draft_parallelism
from specsim.deployment.drafters import Drafter
from specsim.deployment.heads import draft_shapes
from specsim.hardware.parallel import Parallelism
from specsim.hardware.roofline import memory_needed_bytes
from specsim.hardware.shapes import Shape

# Engines hand out caches by blocks of so many tokens (vLLM's --block-size).
BLOCK_TOKENS = 16


@dataclass(frozen=True)
class CardMemory:
    """Bytes on the fullest card.

    usable : the share of the memory that the engine takes, without the reserve
    target, draft : weights
    request : caches of one request at the context that was asked for
    groups : groups of cards that have requests of their own
    """

    usable: float
    target: float
    draft: float
    request: float
    groups: int = 1

    @property
    def largest_batch(self) -> int:
        """Requests that fit on all cards together; 0 where not even the weights do."""
        left = self.usable - self.target - self.draft
        if left < 0:
            return 0
        return self.groups * int(left // self.request) if self.request else 2**31


def card_memory(
    deployment: Deployment, drafter: Drafter | None, context: int, gamma: int = 0
) -> CardMemory:
    """With ``context`` tokens in the cache of every request, and room for ``gamma`` drafts and the
    token after them.

    drafter : what is loaded beside the target; None: nothing
    """
    parallel = deployment.parallel
    tokens = -(-(context + gamma + 1) // BLOCK_TOKENS) * BLOCK_TOKENS
    drafts = 0 if drafter is None else gamma
    target, request = _weights_and_request(deployment.shape, parallel, tokens, 1 + drafts)
    draft = 0.0
    shapes = None if drafter is None else draft_shapes(drafter, deployment.shape, gamma)
    if drafter is not None and shapes is not None:
        degree = draft_parallelism(deployment, drafter)
        draft, more = _weights_and_request(shapes.loaded, degree, tokens, 1 + drafts)
        request += more
    return CardMemory(
        usable=deployment.card.memory * deployment.utilisation - deployment.reserve,
        target=target,
        draft=draft,
        request=request,
        groups=parallel.data,
    )


def _weights_and_request(
    shape: Shape, parallel: Parallelism, tokens: int, states: int
) -> tuple[float, float]:
    """Bytes of the weights, and of what one request keeps."""
    weights = memory_needed_bytes(shape, batch=1, parallel=parallel, states=0)
    held = memory_needed_bytes(shape, context=tokens, parallel=parallel, states=states)
    return weights, held - weights
