"""Costs by load: made up, and by roofline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specsim import deploy
from specsim.batching.cost import RunByRun
from specsim.batching.point import BatchPoint, best_of_cell
from specsim.deployment.cost import DeployedCost


@dataclass(frozen=True)
class Priced(RunByRun):
    """A cost that depends on the batch alone."""

    target: Callable[[int, int], float]  # of tokens and batch
    draft: float = 0.1
    host_s: float = 0.0
    longest: int = 99

    def run_s(
        self, model: str, tokens: int, batch: int, context: float, follows: str = "draft"
    ) -> float:
        return self.target(tokens, batch) if model == "target" else self.draft

    def overhead_s(self, gamma: int, batch: int) -> float:
        return self.host_s if gamma else 0.0


LLAMAS = deploy("llama-3.1-8b", "H100-SXM", "draft_model:llama-3.2-1b")


def roofline(longest: int = 9) -> DeployedCost:
    return DeployedCost(LLAMAS, LLAMAS.drafters[0], longest)


def best_points(
    acceptance: Any, cost: Any, batches: Any, contexts: Any, gamma_max: int, margin: float = 0.0
) -> list[BatchPoint]:
    """``best_of_cell`` at every context and batch, batches running fastest."""
    return [
        best_of_cell(acceptance, cost, batch, context, gamma_max, margin)
        for context in contexts
        for batch in batches
    ]
