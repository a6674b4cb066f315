"""Prompt lookup by load, as far as it is measured: one request at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from specsim.batching.acceptance_error import ends_of_replays
from specsim.batching.cost import CellUnavailableError
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.batching.workload import Basis, BatchWorkload
from specsim.checks import Floats, integer
from specsim.optimizers.workload import Workload
from specsim.predict.measured import MeasuredCost
from specsim.predict.replay.fixed_gamma import Replay, drafted_tokens, replay
from specsim.profiles import Profile
from specsim.traces import Trace


def of_lookup(
    profile: Profile, path: Path, temperature: float | None, gamma_max: int | None
) -> list[BatchWorkload]:
    """One setting for each temperature of a profile of prompt lookup."""
    known = profile.gamma_max
    longest = known if gamma_max is None else integer("gamma_max", gamma_max, high=known)
    return [_workload(load, longest) for load in Workload.all_of(profile, path, temperature)]


def _workload(load: Workload, longest: int) -> BatchWorkload:
    replays = replay(load.trace, range(longest + 1))
    gains = TokensPerBlock.of_replays(replays)
    draft, drift = load.profile.draft, 1.96 * load.profile.drift
    cost = LookupCost.of(load.cost, load.trace, replays)
    return BatchWorkload(
        survival=np.array([rate.best for rate in load.measured.survival]),
        replay=lambda: gains,
        cost=cost,
        gamma_max=longest,
        temperature=load.measured.sampling.temperature,
        context=draft.context,
        draft_name=draft.name,
        doubts=tuple(load.profile.warnings),
        # Copied drafts are certain, so all laws accept them with their probability in the target.
        acceptance_law="greedy-drafts",
        method="ngram",
        longest_match=draft.longest_match,
        ends=partial(ends_of_replays, replays, gains),
        basis=Basis(
            "measured run times",
            error=lambda batch, context: drift,
            drawn=lambda: cost.drawn,
        ),
    )


@dataclass(frozen=True)
class LookupCost:
    """From the run times of a profile of prompt lookup, which are of one sequence.

    shares : by draft length 0..K the shares of blocks that draft 0..K tokens, shape (K + 1, K + 1):
        where fewer tokens are found than asked for, the target reads fewer
    """

    measured: MeasuredCost
    shares: Floats

    @staticmethod
    def of(measured: MeasuredCost, trace: Trace, replays: list[Replay]) -> LookupCost:
        """``replays`` of the trace, at draft lengths 0, 1, ..., K."""
        counted = [
            np.bincount(drafted_tokens(trace, each.gamma), each.starts, len(replays))
            for each in replays
        ]
        calls = [[each.total_calls] for each in replays]
        return LookupCost(measured, np.array(counted) / calls)

    @property
    def drawn(self) -> LookupCost | None:
        """The same in draws of the repeats, every price of shape (D,); None without repeats."""
        drawn = self.measured.drawn
        return None if drawn is None else replace(self, measured=drawn)

    @property
    def longest(self) -> int:
        return len(self.shares)

    @property
    def batches(self) -> tuple[int, ...]:
        return (1,)

    @property
    def contexts(self) -> tuple[int, ...]:
        return tuple(self.measured.target.contexts.astype(int).tolist())

    def covers(self, batch: int, context: float) -> bool:
        """Whether the context lies between measured ones."""
        return batch == 1 and self.contexts[0] <= context <= self.contexts[-1]

    def draft_s(self, gamma: int, batch: int, context: float, bonus: float) -> float:
        """Nothing: searching is host time."""
        return 0.0

    def verify_s(self, gamma: int, batch: int, context: float) -> Any:
        """The mean over the blocks of the trace, each as wide as its drafts."""
        _check_alone(batch)
        lines = [self.measured.target.line(n + 1) for n in range(gamma + 1)]
        return self.shares[gamma, : gamma + 1] @ [level + context * slope for level, slope in lines]

    def overhead_s(self, gamma: int, batch: int) -> Any:
        _check_alone(batch)
        return self.measured.overhead(gamma)[()]

    def loaded_s(self, batch: int, context: float) -> float:
        return 0.0


def _check_alone(batch: int) -> None:
    if batch > 1:
        raise CellUnavailableError("prompt lookup is measured at batch 1 only")
