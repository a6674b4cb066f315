"""vLLM's V2 model runner, its default on GPUs, which makes drafts otherwise than schedules ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specsim.batching.cost import LoadCost
from specsim.deployment.cost import DeployedCost
from specsim.deployment.drafters import Drafter, DraftModel, Parallel
from specsim.engines.vllm import runner_doubts
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.engines.vllm import VllmEngine


@dataclass(frozen=True)
class ModelRunner:
    """What it makes of a drafter (``runner_doubts``).

    drafter : None: one that it serves as asked, another engine, a TPU, or costs that were timed
    """

    drafter: Drafter | None

    @staticmethod
    def of(engine: ServingEngine, cost: LoadCost, drafter: Drafter | None) -> ModelRunner:
        """Of an engine with steps of this cost."""
        alone = isinstance(drafter, DraftModel)
        dflash = isinstance(drafter, Parallel) and drafter.kind == "dflash"
        runs = isinstance(engine, VllmEngine) and engine.has_v2_model_runner
        priced = isinstance(cost, DeployedCost) and not cost.deployment.card.name.startswith("TPU")
        return ModelRunner(drafter if runs and priced and (alone or dflash) else None)

    def always(self, drafts: DraftPolicy) -> int | None:
        """Drafts of every round; None: as many as the scheduler asks for."""
        lengths = {gamma for *_, gamma in drafts.schedule}
        return drafts.gamma_max if self.drafter is not None and len(lengths) > 1 else None

    def doubts(self, drafts: DraftPolicy) -> Sequence[str]:
        """Of such drafts; none where ``eager_us`` prices all that differs."""
        drafter, by_batch = self.drafter, self.always(drafts) is not None
        if drafter is None or not drafts.gamma_max:
            return ()
        if isinstance(drafter, DraftModel) and drafter.eager_us is not None and not by_batch:
            return ()
        word = drafter.method if isinstance(drafter, DraftModel) else "dflash"
        return runner_doubts(word, list(drafts.schedule))


def with_all_drafts(cost: LoadCost, always: int | None) -> LoadCost:
    """The same where so many drafts are made in every round; None: as many as are verified."""
    if always is None or not isinstance(cost, DeployedCost):
        return cost
    return replace(cost, always=always)
