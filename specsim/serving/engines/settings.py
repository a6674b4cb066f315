"""What the compiled loop reads of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from specsim.checks import Ints
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.kv_groups import KvGroup

VLLM, SGLANG = 0, 1


class EngineSettings(NamedTuple):
    """Numbers that a scheduler goes by; each engine uses those that it knows.

    kind : VLLM or SGLANG
    budget : tokens of a step, or of its prefills
    draft_slots : of the budget, that each request takes beside its tokens
    chunk : the most tokens of one chunk of a prompt; 0: no such limit
    chunks_alone : whether that cuts the prompt of a request that is alone, too
    lookahead, admission_lookahead : tokens behind those of a step that get blocks, too, of a
        request that runs and of one that is admitted
    drafts : the longest that is verified with a request
    """

    kind: int
    budget: int
    draft_slots: int
    chunk: int
    chunks_alone: bool
    max_seqs: int
    block_size: int
    blocks: int
    max_model_len: int
    chunked: bool
    caching: bool
    full_isl: bool
    watermark_blocks: int
    asynchronous: bool
    lookahead: int
    admission_lookahead: int
    drafts: int
    drop_last: bool
    new_token_ratio: float  # SGLang: where it starts
    least_new_token_ratio: float
    new_token_ratio_decay: float
    longest_prefix_first: bool


class ServingEngine(Protocol):
    """A description of an engine."""

    @property
    def limit(self) -> str:
        """What it calls the most requests that run together."""
        ...

    @property
    def longest(self) -> int:
        """The most tokens of prompt and output together."""
        ...

    @property
    def kv_groups(self) -> Sequence[KvGroup]:
        """Of layers that have blocks of their own; none: all have theirs together."""
        ...

    def settings(self, drafts: DraftPolicy) -> EngineSettings:
        """With so many drafts."""
        ...

    def capture_sizes(self, drafts: DraftPolicy) -> Ints:
        """Numbers of tokens that graphs were made for, rising; none: every step is eager."""
        ...
