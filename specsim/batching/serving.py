"""What a drafter costs beside its rounds: room for requests, and the reading of prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from specsim.batching.cost import LoadCost
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.point import batch_point
from specsim.batching.workload import BatchWorkload
from specsim.checks import InvalidArgumentError, UnsupportedError

# No cache grows with the requests, so that nothing limits them.
_NO_LIMIT = 2**31


@runtime_checkable
class CardCost(LoadCost, Protocol):
    """A cost that knows the memory of the cards, and what reading a prompt takes."""

    def room(self, context: int, gamma: int) -> tuple[int, int]:
        """The largest batch with the drafter and so many drafts beside the target, and without."""
        ...

    def prefill_s(self, prompt: int) -> tuple[float, float]:
        """Seconds of reading a prompt by the target, and with the drafter's own reading of it."""
        ...


@dataclass(frozen=True)
class Room:
    """How many requests of one context fit, and what that makes of a speedup.

    with_drafter, without : largest batches, the first at the draft length that is fastest there
    speedup_equal_cards : most tokens/s with the drafter at its largest batch, over tokens/s of
        plain decoding at its own; None where no request fits beside the drafter
    """

    context: int
    with_drafter: int
    without: int
    speedup_equal_cards: float | None


def room_of(workload: BatchWorkload, context: int, gamma: int | None = None) -> Room | None:
    """None where the cost does not know the memory, or nothing there grows with the requests.

    gamma : the draft length that was asked for; None: the best
    """
    cost, gains = workload.cost, workload.gains
    if not isinstance(cost, CardCost):
        return None
    _, without = cost.room(context, 0)
    if without >= _NO_LIMIT:
        return None
    found = []  # tokens/s and the batch of every draft length
    for length in range(workload.gamma_max + 1) if gamma is None else [gamma]:
        most, _ = cost.room(context, max(length, 1))
        if not most:
            continue
        point = batch_point(gains, cost, length, most, context)
        # Where nothing is drafted the drafter is still there.
        idle = 0.0 if length else cost.loaded_s(most, context)
        found.append((most * point.tokens_per_call / (point.block_s + idle), most))
    if not found:
        return Room(context, 0, without, None)
    plain = batch_point(gains, cost, 0, without, context).plain_tokens_per_s
    fastest, most = max(found)
    return Room(context, most, without, fastest / plain)


def prefill_s(workload: BatchWorkload, prompt: int) -> tuple[float, float]:
    """Seconds of reading a prompt by the target, and with the drafter's own reading of it.

    Raises UnsupportedError where run times were measured and do not reach so far.
    """
    if workload.context is not None and prompt > workload.context:
        raise InvalidArgumentError(
            f"prompt must be <= {workload.context:,}, which is all that the models take, "
            f"got {prompt:,}"
        )
    cost = workload.cost
    if isinstance(cost, CardCost):
        return cost.prefill_s(prompt)
    if isinstance(cost, MeasuredLoadCost) and all(
        times.covers(prompt, 1, 0) for times in (cost.target, cost.first_draft)
    ):
        target = cost.run_s("target", prompt, 1, 0)
        return target, target + cost.run_s("draft", prompt, 1, 0, "target")
    raise UnsupportedError(
        f"prompt {prompt:,} has no price: no run over so many tokens was timed; give a deployment "
        "(target, drafter, accelerator)"
    )
