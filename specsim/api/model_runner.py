"""vLLM's V2 model runner, its default on GPUs, which makes drafts otherwise than schedules ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specsim.batching.cost import LoadCost
from specsim.deployment.cost import DeployedCost
from specsim.deployment.drafters import Drafter, DraftModel, Mtp, Ngram, Parallel
from specsim.engines.vllm import runner_doubts
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.engines.vllm import VllmEngine


@dataclass(frozen=True)
class ModelRunner:
    """What it makes of a drafter (``runner_doubts``).

    drafter : None: one that it serves as asked, another engine, a TPU, or costs that were timed
    modules : that the target has for multi-token prediction
    """

    drafter: Drafter | None
    modules: int = 1

    @staticmethod
    def of(engine: ServingEngine, cost: LoadCost, drafter: Drafter | None) -> ModelRunner:
        """Of an engine with steps of this cost."""
        runs = isinstance(engine, VllmEngine) and engine.has_v2_model_runner
        if not runs or not isinstance(cost, DeployedCost):
            return ModelRunner(None)
        modules = cost.deployment.shape.mtp_modules
        otherwise = (
            isinstance(drafter, DraftModel)
            or (isinstance(drafter, Ngram) and drafter.method == "ngram")
            or (isinstance(drafter, Parallel) and drafter.kind == "dflash")
            or (isinstance(drafter, Mtp) and modules > 1)
        )
        on_gpu = not cost.deployment.card.name.startswith("TPU")
        return ModelRunner(drafter if otherwise and on_gpu else None, modules)

    def always(self, drafts: DraftPolicy) -> int | None:
        """Drafts of every round; None: as many as the scheduler asks for."""
        if self.drafter is None or isinstance(self.drafter, Ngram):
            return None  # looking up more costs nothing
        lengths = {gamma for *_, gamma in drafts.schedule}
        return drafts.gamma_max if len(lengths) > 1 else None

    def doubts(self, drafts: DraftPolicy) -> Sequence[str]:
        """Of such drafts; none where the price has all that differs."""
        drafter, by_batch = self.drafter, self.always(drafts) is not None
        if drafter is None or not drafts.gamma_max:
            return ()
        if isinstance(drafter, DraftModel) and drafter.eager_us is not None and not by_batch:
            return ()
        if isinstance(drafter, Ngram) and drafter.match == 1:
            return ()
        word = "dflash" if isinstance(drafter, Parallel) else drafter.method
        return runner_doubts(word, list(drafts.schedule), self.modules)


def with_all_drafts(cost: LoadCost, always: int | None) -> LoadCost:
    """The same where so many drafts are made in every round; None: as many as are verified."""
    if always is None or not isinstance(cost, DeployedCost):
        return cost
    return replace(cost, always=always)
