"""How many tokens are drafted in a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.checks import Ints, InvalidArgumentError, integer
from specsim.engines.schedule import Schedule, in_words, largest
from specsim.serving.adaptive_steps import AdaptiveSteps


@dataclass(frozen=True)
class DraftPolicy:
    """The draft length by the number of requests in the step that drafts, prefills included; in
    SGLang by that of the requests that decode, which have steps of their own.

    schedule : (first, last, gamma) from 1 on without a gap; the last gamma holds beyond.  Empty:
        there is no drafter.  A gamma of 0 with a drafter is not the same: the drafter keeps its
        cache in step, and blocks are kept ready for the longest draft.
    drops_last_cached_block : an EAGLE or MTP head lacks the features at the end of a cached
        prefix, so that vLLM computes its last block again
    looks_one_further : DFlash has blocks kept ready in vLLM for one token more than it drafts
    slots_for_drafting : that each request takes in a step of vLLM beside its tokens: one with a
        draft model (vllm/config/speculative.py, max_num_new_slots_for_drafting)
    keeps_no_cache : n-gram, suffix and Medusa drafts come from no model that keeps a cache: vLLM
        has no blocks ready for them and, unless it is told to, makes no step before the one in
        front of it is over (vllm/config/vllm.py, num_lookahead_tokens and async_scheduling)
    adaptive : how the lengths of ``schedule`` change with what is accepted; None: they do not
    """

    schedule: tuple[tuple[int, int, int], ...] = ()
    drops_last_cached_block: bool = False
    looks_one_further: bool = False
    slots_for_drafting: int = 0
    keeps_no_cache: bool = False
    adaptive: AdaptiveSteps | None = None

    def __post_init__(self) -> None:
        wanted = 1
        for first, last, gamma in self.schedule:
            integer("gamma", gamma, high=1000)
            if first != wanted or last < first:
                raise InvalidArgumentError(
                    f"schedule must go from batch 1 on without a gap, got {first}-{last} where "
                    f"{wanted} comes next"
                )
            wanted = last + 1

    @staticmethod
    def off() -> DraftPolicy:
        """Plain decoding, without a drafter."""
        return DraftPolicy()

    @staticmethod
    def fixed(gamma: int, *, drops_last_cached_block: bool = False) -> DraftPolicy:
        """Always so many drafts; 0 with a drafter that is loaded and idle."""
        return DraftPolicy(((1, 1, integer("gamma", gamma)),), drops_last_cached_block)

    @staticmethod
    def by_batch(schedule: Schedule, *, drops_last_cached_block: bool = False) -> DraftPolicy:
        """By the number of scheduled requests."""
        if not schedule:
            raise InvalidArgumentError("schedule is empty, expected at least one range of batches")
        return DraftPolicy(tuple(schedule), drops_last_cached_block)

    @property
    def gamma_max(self) -> int:
        """The longest draft; 0 without a drafter."""
        if self.adaptive is not None:
            return self.adaptive.gamma_max
        return largest(list(self.schedule)) if self.schedule else 0

    @property
    def lookahead(self) -> int:
        """Tokens behind those of a step for which blocks are kept ready."""
        return self.gamma_max + (self.looks_one_further and bool(self.schedule))

    @property
    def words(self) -> str:
        """``off``, ``3`` or ``1-16: 5, 17-64: 3``."""
        if not self.schedule:
            return "off"
        if self.adaptive is not None:
            return self.adaptive.words
        alone = len({gamma for _, _, gamma in self.schedule}) == 1
        return str(self.gamma_max) if alone else in_words(list(self.schedule))

    def gammas(self, batch_max: int) -> Ints:
        """The draft length of every batch from 0 to ``batch_max``; (batch_max + 1,)."""
        found = np.zeros(batch_max + 1, dtype=np.int64)
        for first, _, gamma in self.schedule:
            found[first:] = gamma
        return found
