"""What a server costs that was started with a drafter, which stays loaded whatever is drafted."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.batching.cost import LoadCost


@dataclass(frozen=True)
class WithDrafterLoaded:
    """A cost (a ``LoadCost``) in which draft length 0 is not the server without a drafter.

    cost : of rounds, and of plain decoding without a drafter
    in_step : at draft length 0 the drafter still runs, to keep its cache in step

    Raises CellUnavailableError where a batch has no room beside the drafter, at draft length 0 too.
    """

    cost: LoadCost
    in_step: bool

    @property
    def longest(self) -> int:
        return self.cost.longest

    def draft_s(self, gamma: int, batch: int, context: float, bonus: float) -> float:
        return self.cost.draft_s(gamma, batch, context, bonus)

    def verify_s(self, gamma: int, batch: int, context: float) -> float:
        if gamma:
            return self.cost.verify_s(gamma, batch, context)
        if self.longest > 1:
            self.cost.verify_s(1, batch, context)  # raises where the drafter leaves no room
        return self.cost.verify_s(0, batch, context) + self.loaded_s(batch, context)

    def overhead_s(self, gamma: int, batch: int) -> float:
        return self.cost.overhead_s(gamma, batch)

    def loaded_s(self, batch: int, context: float) -> float:
        return self.cost.loaded_s(batch, context) if self.in_step else 0.0
