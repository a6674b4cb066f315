"""vLLM's V1 engine, by the names of its own arguments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.checks import Ints, InvalidArgumentError, UnsupportedError, integer, number
from specsim.engines.vllm import LARGEST_CAPTURE, largest_capture
from specsim.hardware.accelerators import Accelerator
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.kv_groups import KvGroup
from specsim.serving.engines.settings import VLLM, EngineSettings

_NO_LIMIT = 2**31 - 1
# Tokens of one graph that a setting may ask for; each takes memory, and there is one for every few
# tokens.
MOST_GRAPH_TOKENS = 2**20


@dataclass(frozen=True)
class _Version:
    """What a version does where nothing is said.

    full_isl : admits a prompt only where all of it fits
    asynchronous : schedules a step while the one before still runs
    appends_decode_sizes : what so many requests decode, and the most tokens of a step, become
        further graph sizes; before, sizes were rounded up to multiples of 1 + gamma
    tells_largest_cards : has limits of its own for cards of 160 GiB and more
    admits_with_lookahead : admits a request only where blocks for its drafts are free, too
        (v1/core/sched/scheduler.py, effective_lookahead_tokens)
    counts_slots_for_drafting : in what a step may hold (v1/core/sched/scheduler.py, draft_slots);
        of versions before 0.32.0 this was not read
    larger_on_blackwell : the largest graph; of versions before 0.32.0 this was not read
    v2_model_runner : is the default on GPUs; of versions before 0.32.0 this was not read
    spares_lone_prompts : long_prefill_token_threshold does not cut the prompt of a request that is
        alone (v1/core/sched/scheduler.py); of versions before 0.32.0 this was not read
    """

    full_isl: bool
    asynchronous: bool
    appends_decode_sizes: bool
    tells_largest_cards: bool
    admits_with_lookahead: bool
    counts_slots_for_drafting: bool
    larger_on_blackwell: bool
    v2_model_runner: bool
    spares_lone_prompts: bool


VLLM_VERSIONS = {
    "0.19.0": _Version(True, True, False, False, False, False, False, False, False),
    "0.28.0": _Version(True, True, False, True, True, False, False, False, False),
    "0.32.0": _Version(True, True, True, True, True, True, True, True, True),
    "0.33.0": _Version(True, True, True, True, True, True, True, True, True),
}
_GIB = 2.0**30
_LEAST_LIMITS = {"max_num_batched_tokens": 2048, "max_num_seqs": 256}


def limits_on(card: Accelerator | None, version: str) -> dict[str, int]:
    """Limits of a step that the API server of a known version sets by the card where nothing is
    said: vllm/engine/arg_utils.py, get_batch_defaults.  Those of a card that is not known are of
    small ones.  The platform of TPUs tells it neither their memory nor the names that it knows
    (tpu_inference/platforms/tpu_platform.py, 0.32.0).
    """
    if card is None or card.name.casefold().startswith("tpu"):
        return _LEAST_LIMITS
    if card.memory >= 160 * _GIB and VLLM_VERSIONS[version].tells_largest_cards:
        return {"max_num_batched_tokens": 16384, "max_num_seqs": 1024}
    if card.memory >= 70 * _GIB and "a100" not in card.name.casefold():
        return {"max_num_batched_tokens": 8192, "max_num_seqs": 1024}
    return _LEAST_LIMITS


def largest_graph_on(card: Accelerator | None, version: str) -> int:
    """Tokens of the largest CUDA graph that a known version makes by itself: vllm/config/vllm.py,
    _set_cudagraph_sizes.  That of a card that is not known is most cards' one.
    """
    if card is None or not VLLM_VERSIONS[version].larger_on_blackwell:
        return LARGEST_CAPTURE
    return largest_capture(card.name)


def _steps_up(largest: int) -> list[int]:
    """1, 2, 4, from 8 by 8 and from 256 by 16."""
    every = (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16))
    return [each for each in every if each <= largest]


@dataclass(frozen=True)
class VllmEngine:
    """One replica of vLLM with the FCFS policy; names, meanings and defaults are vLLM's, those of
    ``max_num_batched_tokens`` and ``max_num_seqs`` on TPUs and cards of less than 70 GiB
    (``limits_on``).

    num_gpu_blocks : KV blocks as the engine's log prints them.  One of them is the null block,
        which holds nothing.  Read it, never guess it: with a drafter there are fewer.
    scheduler_reserve_full_isl, async_scheduling : None: what the version does by itself
    cudagraph_capture_sizes : of these those that a step may hold; None: those that the version
        makes of the other numbers
    max_cudagraph_capture_size : None: min(2 max_num_seqs (1 + gamma), largest_graph,
        max_num_batched_tokens)
    watermark : share of the blocks kept free when a waiting request is admitted
    kv_groups : of layers with blocks of their own, where some see a window (``kv_pool``), which
        is no argument of vLLM's; prompts that share what they begin with then find nothing of it
    largest_graph : tokens of the largest that the version makes by itself, which is none either:
        512, and 1,024 on cards of compute capability 10.x (``largest_graph_on``)
    """

    version: str
    num_gpu_blocks: int
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    block_size: int = 16
    max_model_len: int | None = None
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    enable_prefix_caching: bool = True
    scheduler_reserve_full_isl: bool | None = None
    watermark: float = 0.0
    async_scheduling: bool | None = None
    enforce_eager: bool = False
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    max_cudagraph_capture_size: int | None = None
    kv_groups: tuple[KvGroup, ...] = ()
    largest_graph: int = LARGEST_CAPTURE

    def __post_init__(self) -> None:
        if self.version not in VLLM_VERSIONS:
            raise UnsupportedError(
                f"the scheduler of vLLM {self.version} is not known here (known: "
                f"{', '.join(VLLM_VERSIONS)}); take the nearest that is"
            )
        integer("num_gpu_blocks", self.num_gpu_blocks, low=2, high=_NO_LIMIT)
        for name in ("max_num_batched_tokens", "max_num_seqs", "block_size"):
            integer(name, getattr(self, name), low=1, high=_NO_LIMIT)
        integer("long_prefill_token_threshold", self.long_prefill_token_threshold)
        number("watermark", self.watermark, low=0.0, high=0.999)
        if self.max_model_len is not None:
            integer("max_model_len", self.max_model_len, low=2, high=_NO_LIMIT)
            if not self.enable_chunked_prefill and self.max_model_len > self.max_num_batched_tokens:
                raise InvalidArgumentError(
                    f"max_num_batched_tokens must be >= max_model_len, {self.max_model_len}, "
                    f"without chunked prefill, got {self.max_num_batched_tokens}"
                )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise InvalidArgumentError(
                f"max_num_batched_tokens must be >= max_num_seqs, {self.max_num_seqs}, got "
                f"{self.max_num_batched_tokens}"
            )
        self._check_graphs()

    def _check_graphs(self) -> None:
        integer("largest_graph", self.largest_graph, low=1, high=MOST_GRAPH_TOKENS)
        sizes, largest = self.cudagraph_capture_sizes, self.max_cudagraph_capture_size
        if sizes is not None:
            if not sizes or sizes[0] < 1 or (np.diff(sizes) <= 0).any():
                raise InvalidArgumentError(
                    "cudagraph_capture_sizes must rise from 1 or more; for no graphs set "
                    "enforce_eager"
                )
            integer("cudagraph_capture_sizes", sizes[-1], low=1, high=MOST_GRAPH_TOKENS)
        if largest is None:
            return
        integer("max_cudagraph_capture_size", largest, low=1, high=MOST_GRAPH_TOKENS)
        last = max(self._held_sizes, default=0)
        if sizes is not None and last != largest:
            raise InvalidArgumentError(
                "max_cudagraph_capture_size must be the last of cudagraph_capture_sizes that a "
                f"step may hold, {last}, got {largest}"
            )

    @property
    def _held_sizes(self) -> list[int]:
        """Of ``cudagraph_capture_sizes`` those that a step may hold."""
        sizes = self.cudagraph_capture_sizes or ()
        return [each for each in sizes if each <= self.max_num_batched_tokens]

    @property
    def limit(self) -> str:
        """What it calls the most requests that run together."""
        return "max_num_seqs"

    @property
    def longest(self) -> int:
        """The most tokens of prompt and output together."""
        return _NO_LIMIT if self.max_model_len is None else self.max_model_len

    @property
    def has_v2_model_runner(self) -> bool:
        """Whether it takes that on GPUs unless it is told otherwise."""
        return VLLM_VERSIONS[self.version].v2_model_runner

    def settings(self, drafts: DraftPolicy) -> EngineSettings:
        """What the scheduler goes by, with so many drafts."""
        usual = VLLM_VERSIONS[self.version]
        reserves, overlaps = self.scheduler_reserve_full_isl, self.async_scheduling
        lookahead = 0 if drafts.keeps_no_cache else drafts.lookahead
        return EngineSettings(
            kind=VLLM,
            budget=self.max_num_batched_tokens,
            draft_slots=drafts.slots_for_drafting if usual.counts_slots_for_drafting else 0,
            chunk=self.long_prefill_token_threshold,
            chunks_alone=not usual.spares_lone_prompts,
            max_seqs=self.max_num_seqs,
            block_size=self.block_size,
            blocks=self.num_gpu_blocks - 1,
            max_model_len=self.longest,
            chunked=self.enable_chunked_prefill,
            caching=self.enable_prefix_caching and not self.kv_groups,
            full_isl=usual.full_isl if reserves is None else reserves,
            watermark_blocks=int(self.watermark * self.num_gpu_blocks),
            asynchronous=(
                usual.asynchronous and not drafts.keeps_no_cache if overlaps is None else overlaps
            ),
            lookahead=lookahead,
            admission_lookahead=lookahead if usual.admits_with_lookahead else 0,
            drafts=drafts.gamma_max,
            drop_last=drafts.drops_last_cached_block,
            new_token_ratio=0.0,
            least_new_token_ratio=0.0,
            new_token_ratio_decay=0.0,
            longest_prefix_first=False,
        )

    def capture_sizes(self, drafts: DraftPolicy) -> Ints:
        """Numbers of tokens that graphs were made for, rising; none: every step is eager.

        By default 1, 2, 4, 8 and so on by 8, from 256 by 16, up to max_cudagraph_capture_size
        (vllm/config/vllm.py, _set_cudagraph_sizes).
        """
        if self.enforce_eager:
            return np.zeros(0, dtype=np.int64)
        if self.cudagraph_capture_sizes is not None:
            return np.array(self._held_sizes, dtype=np.int64)
        width, budget = 1 + drafts.gamma_max, self.max_num_batched_tokens
        usual = min(2 * self.max_num_seqs * width, self.largest_graph)
        asked = self.max_cudagraph_capture_size or usual
        largest = min(asked, budget)
        sizes = _steps_up(largest)
        if VLLM_VERSIONS[self.version].appends_decode_sizes:
            sizes += [budget] if budget <= asked else []
            sizes += [each for each in self._decode_sizes(drafts, asked) if each <= largest]
        elif width > 1:
            rounded = [-(-each // width) * width for each in sizes]
            sizes = [each for each in rounded if each <= largest]
        return np.unique(np.array(sizes, dtype=np.int64))

    def _decode_sizes(self, drafts: DraftPolicy, largest: int) -> list[int]:
        """Tokens of steps in which 1, 2, 4, 8 and so on requests decode; none where
        max_cudagraph_capture_size is given.
        """
        if self.max_cudagraph_capture_size is not None:
            return []
        if not drafts.gamma_max:
            return [self.max_num_seqs] if self.max_num_seqs <= largest else []
        gammas = drafts.gammas(self.max_num_seqs)
        # By tokens of a request, the most requests that have as many.
        most = {1 + int(gamma): batch for batch, gamma in enumerate(gammas[1:], start=1)}
        return [
            width * requests
            for width, batch in most.items()
            for counted in [min(batch, self.largest_graph)]
            for requests in (*_steps_up(counted), counted)
            if width * requests <= largest
        ]
