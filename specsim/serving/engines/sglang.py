"""SGLang's scheduler, by the names of its own arguments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.checks import (
    Ints,
    InvalidArgumentError,
    UnsupportedError,
    check_choice,
    integer,
    number,
)
from specsim.hardware.accelerators import Accelerator
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.kv_groups import KvGroup
from specsim.serving.engines.settings import SGLANG, EngineSettings

SGLANG_VERSIONS = ("0.5.23",)

# environ.py: SGLANG_INIT_NEW_TOKEN_RATIO, SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR,
# SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS.
_INITIAL_RATIO, _LEAST_SHARE, _DECAY_STEPS = 0.7, 0.14, 600
_NO_LIMIT = 2**31 - 1
# Of one graph; each takes memory, and there is one for every few decodes.
_LARGEST_GRAPH = 2**16
_GIB = 2.0**30
# By memory in GiB up to which cards have them: chunked_prefill_size, and cuda_graph_max_bs_decode
# on fewer than four GPUs and on more.
_LIMITS = (
    (20, 2048, 8, 8),
    (35, 4096, 48, 160),
    (60, 4096, 32, 160),
    (160, 8192, 256, 512),
)
_LARGEST_CARDS = (16384, 512, 512)


def limits_on(card: Accelerator, tensor_parallel: int) -> dict[str, int]:
    """Limits of a step that a server sets by the memory of its card where nothing is said:
    srt/arg_groups/memory_hook.py, handle_gpu_memory_settings.
    """
    found = (limits for gib, *limits in _LIMITS if card.memory < gib * _GIB)
    chunk, few, many = next(found, _LARGEST_CARDS)
    graphs = few if tensor_parallel < 4 else many
    return {"chunked_prefill_size": chunk, "cuda_graph_max_bs_decode": graphs}


@dataclass(frozen=True)
class SglangEngine:
    """One replica of SGLang; names, meanings and defaults are SGLang's, those of
    ``chunked_prefill_size`` and ``cuda_graph_max_bs_decode`` on one to three cards of 60 to 160 GiB
    (``limits_on``).

    max_total_num_tokens : tokens that the KV cache holds, as the log prints them
    max_running_requests : None: 48 with a drafter, else 512 for each request of context_length that
        the cache holds, from 2,048 to 4,096; at most one for two tokens of the cache
        (kv_cache_configurator.py, resolve_max_num_reqs)
    chunked_prefill_size : tokens of a prefill step; -1: prompts are never cut
    context_length : the longest prompt and output together
    schedule_policy : ``fcfs``, or ``lpm``, the longest cached prefix first
    disable_radix_cache : prompts share nothing
    disable_overlap_schedule : the host's work is not hidden, and no step is in flight
    cuda_graph_bs_decode : decodes for which there are graphs; None: those that SGLang makes up to
        cuda_graph_max_bs_decode, closer ones with a drafter

    ``enable_mixed_chunk`` is not modelled: a step reads prompts or decodes.
    """

    version: str
    max_total_num_tokens: int
    max_running_requests: int | None = None
    chunked_prefill_size: int = 8192
    max_prefill_tokens: int = 16384
    page_size: int = 1
    context_length: int | None = None
    schedule_conservativeness: float = 1.0
    schedule_policy: str = "fcfs"
    disable_radix_cache: bool = False
    disable_overlap_schedule: bool = False
    disable_decode_cuda_graph: bool = False
    cuda_graph_max_bs_decode: int = 256
    cuda_graph_bs_decode: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.version not in SGLANG_VERSIONS:
            raise UnsupportedError(
                f"the scheduler of SGLang {self.version} is not known here (known: "
                f"{', '.join(SGLANG_VERSIONS)}); take the nearest that is"
            )
        for name in ("max_total_num_tokens", "max_prefill_tokens", "page_size"):
            integer(name, getattr(self, name), low=1, high=_NO_LIMIT)
        most = self.cuda_graph_max_bs_decode
        integer("cuda_graph_max_bs_decode", most, low=1, high=_LARGEST_GRAPH)
        if self.max_running_requests is not None:
            integer("max_running_requests", self.max_running_requests, low=1, high=_NO_LIMIT)
        if self.chunked_prefill_size != -1:
            integer("chunked_prefill_size", self.chunked_prefill_size, low=1, high=_NO_LIMIT)
            if self.chunked_prefill_size % self.page_size:
                raise InvalidArgumentError(
                    f"chunked_prefill_size must be a multiple of page_size, {self.page_size}, got "
                    f"{self.chunked_prefill_size}"
                )
        if self.context_length is not None:
            integer("context_length", self.context_length, low=2, high=_NO_LIMIT)
        number("schedule_conservativeness", self.schedule_conservativeness, low=0.0)
        check_choice("schedule_policy", self.schedule_policy, ("fcfs", "lpm"))
        sizes = self.cuda_graph_bs_decode
        if sizes is not None:
            if not sizes or sizes[0] < 1 or (np.diff(sizes) <= 0).any():
                raise InvalidArgumentError(
                    "cuda_graph_bs_decode must rise from 1 or more; for no graphs set "
                    "disable_decode_cuda_graph"
                )
            integer("cuda_graph_bs_decode", sizes[-1], low=1, high=_LARGEST_GRAPH)

    @property
    def limit(self) -> str:
        """What it calls the most requests that run together."""
        return "max_running_requests"

    @property
    def longest(self) -> int:
        """The most tokens of prompt and output together."""
        return _NO_LIMIT if self.context_length is None else self.context_length

    @property
    def kv_groups(self) -> tuple[KvGroup, ...]:
        """None: layers that see a window have a pool of their own there, which is not simulated."""
        return ()

    def settings(self, drafts: DraftPolicy) -> EngineSettings:
        """What the scheduler goes by, with so many drafts."""
        ratio = min(_INITIAL_RATIO * self.schedule_conservativeness, 1.0)
        least = ratio * _LEAST_SHARE
        return EngineSettings(
            kind=SGLANG,
            budget=self.max_prefill_tokens,
            draft_slots=0,
            chunk=max(self.chunked_prefill_size, 0),
            chunks_alone=True,
            max_seqs=self._most_requests(drafts),
            block_size=self.page_size,
            blocks=self.max_total_num_tokens // self.page_size,
            max_model_len=self.longest,
            chunked=True,
            caching=not self.disable_radix_cache,
            full_isl=True,
            watermark_blocks=0,
            asynchronous=not self.disable_overlap_schedule,
            lookahead=drafts.gamma_max,
            admission_lookahead=0,
            drafts=drafts.gamma_max,
            drop_last=drafts.drops_last_cached_block,
            new_token_ratio=ratio,
            least_new_token_ratio=least,
            new_token_ratio_decay=(ratio - least) / _DECAY_STEPS,
            longest_prefix_first=self.schedule_policy == "lpm",
        )

    def _most_requests(self, drafts: DraftPolicy) -> int:
        usual = 512 * self.max_total_num_tokens // self.longest
        unsaid = 48 if drafts.gamma_max else min(max(usual, 2048), 4096)
        return max(min(self.max_running_requests or unsaid, self.max_total_num_tokens // 2), 1)

    def capture_sizes(self, drafts: DraftPolicy) -> Ints:
        """Numbers of tokens that graphs of decodes were made for, rising; none: all is eager.

        srt/arg_groups/cuda_graph_hook.py, generate_decode_cuda_graph_batch_sizes.
        """
        if self.disable_decode_cuda_graph:
            return np.zeros(0, dtype=np.int64)
        sizes = self.cuda_graph_bs_decode
        if sizes is None:
            most = self._largest_graph
            if drafts.gamma_max:
                made = [*range(1, 8), *range(8, 32, 2), 32, *range(40, 64, 4), *range(64, 256, 8)]
                made += range(256, most, 16)
            else:
                made = [1, 2, 4, 8, 12, *range(16, 256, 8), *range(256, 512, 16)]
                made += range(512, most, 32)
            sizes = (*(each for each in made if each < most), most)
        return np.array(sizes, dtype=np.int64) * (1 + drafts.gamma_max)

    @property
    def _largest_graph(self) -> int:
        return min(self.cuda_graph_max_bs_decode, self.max_running_requests or _NO_LIMIT)
