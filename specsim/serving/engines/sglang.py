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
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.settings import SGLANG, EngineSettings

SGLANG_VERSIONS = ("0.5.23",)

# environ.py: SGLANG_INIT_NEW_TOKEN_RATIO, SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR,
# SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS.
_INITIAL_RATIO, _LEAST_SHARE, _DECAY_STEPS = 0.7, 0.14, 600
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class SglangEngine:
    """One replica of SGLang; names and meanings are SGLang's.

    max_total_num_tokens : tokens that the KV cache holds, as the log prints them
    max_running_requests : None: 48 with a drafter, else 512 for each request of context_length that
        the cache holds, from 2,048 to 4,096 (model_runner.py, _resolve_max_num_reqs)
    chunked_prefill_size : tokens of a prefill step; -1: prompts are never cut
    context_length : the longest prompt and output together
    schedule_policy : ``fcfs``, or ``lpm``, the longest cached prefix first
    disable_radix_cache : prompts share nothing
    disable_overlap_schedule : the host's work is not hidden, and no step is in flight
    cuda_graph_bs : decodes for which there are graphs; None: 1, 2, 4, 8 and so on by 8 up to
        cuda_graph_max_bs

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
    disable_cuda_graph: bool = False
    cuda_graph_max_bs: int = 256
    cuda_graph_bs: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.version not in SGLANG_VERSIONS:
            raise UnsupportedError(
                f"the scheduler of SGLang {self.version} is not known here (known: "
                f"{', '.join(SGLANG_VERSIONS)}); take the nearest that is"
            )
        for name in (
            "max_total_num_tokens",
            "max_prefill_tokens",
            "page_size",
            "cuda_graph_max_bs",
        ):
            integer(name, getattr(self, name), low=1, high=_NO_LIMIT)
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
        sizes = self.cuda_graph_bs
        if sizes is not None and (not sizes or sizes[0] < 1 or (np.diff(sizes) <= 0).any()):
            raise InvalidArgumentError(
                "cuda_graph_bs must rise from 1 or more; for no graphs set disable_cuda_graph"
            )

    @property
    def longest(self) -> int:
        """The most tokens of prompt and output together."""
        return _NO_LIMIT if self.context_length is None else self.context_length

    def settings(self, drafts: DraftPolicy) -> EngineSettings:
        """What the scheduler goes by, with so many drafts."""
        ratio = min(_INITIAL_RATIO * self.schedule_conservativeness, 1.0)
        least = ratio * _LEAST_SHARE
        return EngineSettings(
            kind=SGLANG,
            budget=self.max_prefill_tokens,
            chunk=max(self.chunked_prefill_size, 0),
            max_seqs=self.max_running_requests or self._usual_requests(drafts),
            block_size=self.page_size,
            blocks=self.max_total_num_tokens // self.page_size,
            max_model_len=self.longest,
            chunked=True,
            caching=not self.disable_radix_cache,
            full_isl=True,
            watermark_blocks=0,
            asynchronous=not self.disable_overlap_schedule,
            lookahead=drafts.gamma_max,
            drop_last=drafts.drops_last_cached_block,
            new_token_ratio=ratio,
            least_new_token_ratio=least,
            new_token_ratio_decay=(ratio - least) / _DECAY_STEPS,
            longest_prefix_first=self.schedule_policy == "lpm",
        )

    def _usual_requests(self, drafts: DraftPolicy) -> int:
        if drafts.gamma_max:
            return 48
        return min(max(512 * self.max_total_num_tokens // self.longest, 2048), 4096)

    def capture_sizes(self, drafts: DraftPolicy) -> Ints:
        """Numbers of tokens that graphs of decodes were made for, rising; none: all is eager."""
        if self.disable_cuda_graph:
            return np.zeros(0, dtype=np.int64)
        sizes = self.cuda_graph_bs
        if sizes is None:
            sizes = (1, 2, 4, *range(8, self.cuda_graph_max_bs + 1, 8))
            sizes = tuple(each for each in sizes if each <= self.cuda_graph_max_bs)
        return np.array(sizes, dtype=np.int64) * (1 + drafts.gamma_max)
