"""What vLLM is asked under load: draft lengths, rates, requests, caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specsim.engines.schedule import Schedule
from specsim.serving import DraftPolicy, VllmEngine

# Of the embedded family: the draft is read from its name, as in a profile.
TARGET, DRAFT = "embedded/target", "embedded/small"
VERSION = "0.32.0"
CONTEXT = 512
# What vLLM decodes together, and reads in a step.
MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS = 16, 2048
# The CPU build wants multiples of 32.
BLOCK_TOKENS = 32
# Twice as many as the requests that run together can fill.
CACHE_BLOCKS = 512
# Of every server, whether its steps are timed or it is under load.  A worker of its own, as the CPU
# build has it, makes the engine's process look out for it in a busy loop, on the core that clients
# and the API need; on one GPU, too, both are one process.  A cache of a GiB, as it comes, is filled
# with zeros: ten of those leave no memory for the files that programs are read from.
ENGINE_ARGS = (
    *("--block-size", str(BLOCK_TOKENS)),
    *("--max-num-batched-tokens", str(MAX_NUM_BATCHED_TOKENS)),
    *("--num-gpu-blocks-override", str(CACHE_BLOCKS)),
    *("--distributed-executor-backend", "vllm.v1.executor.uniproc_executor.UniProcExecutor"),
)
# Tokens of prompts and of outputs, from and up to, evenly.
PROMPTS, OUTPUTS = (16, 128), (8, 96)
# By name, rates as shares of what plain decoding is predicted to serve at most.
RATES: Mapping[str, float] = {"light": 0.3, "half": 0.6, "heavy": 0.85, "saturated": 1.5}
# In each pass steps are timed and then every setting is served once, with texts in another order,
# other lengths of outputs and other arrivals.  A shared machine is another one from minute to
# minute, and the timing of just before tells no more of what comes than all until then do
# (``benchmarks/loaded_steps.py``), so that passes are many and short.  Rates take turns to be
# first, so that none has more of what a place in a pass does than another.  Servers that are timed
# in one pass are under load in the next, so that what one of them has of its own is in half of the
# errors with the other sign.
PASSES = 2 * len(RATES)
# Passes that servers stay up for: each of them grows while it serves.
PASSES_OF_SERVERS = len(RATES)
# Of the timing before a pass, which is of servers under load most of all: sets that are sent at
# once are of the largest batch alone, one a repeat, and of few requests.
REPEATS = 2
TIMED_SETS = 1
TIMED_BATCHES = (MAX_NUM_SEQS,)
TIMED_REQUESTS = MAX_NUM_SEQS
# Requests of a setting in a pass, by its rate: the quicker they come the shorter a load lasts.
REQUESTS: Mapping[str, int] = {"light": 70, "half": 100, "heavy": 100, "saturated": 140}
# Draft lengths that are timed before; the schedule takes each of them at its own batches.
GAMMAS = (1, 2, 4)
SCHEDULE: Schedule = [(1, 2, 4), (3, 8, 2), (9, 16, 1)]
# Blocks of a cache that is too small for as many requests as may run: with so many of each, in the
# mean, about a quarter of them fit.
_SMALL_CACHE = 18


@dataclass(frozen=True)
class Drafting:
    """One way to draft, and so one server.

    name : in file names and tables
    schedule : by batch, as of ``DraftPolicy``; empty without a drafter
    blocks : of the KV cache; None is as many as never run out
    """

    name: str
    schedule: tuple[tuple[int, int, int], ...] = ()
    blocks: int | None = None

    @property
    def policy(self) -> DraftPolicy:
        return DraftPolicy(self.schedule)

    @property
    def words(self) -> str:
        """``0``, ``2`` or ranges of batches."""
        return self.policy.words if self.schedule else "0"

    def speculative(self, draft: str) -> dict[str, Any] | None:
        """What vLLM's ``--speculative-config`` is given; ``draft`` is the model's folder."""
        if not self.schedule:
            return None
        longest = self.policy.gamma_max
        found: dict[str, Any] = {
            "method": "draft_model",
            "model": draft,
            "num_speculative_tokens": longest,
        }
        if len(self.schedule) > 1:
            found["num_speculative_tokens_per_batch_size"] = [list(each) for each in self.schedule]
        return found


@dataclass(frozen=True)
class Setting:
    """A server at a rate.

    rate : its name, a key of RATES
    """

    drafting: Drafting
    rate: str

    @property
    def name(self) -> str:
        return f"{self.drafting.name}-{self.rate}"


def fixed(gamma: int, blocks: int | None = None, name: str = "") -> Drafting:
    """Always so many drafts; 0: plain decoding."""
    schedule = ((1, MAX_NUM_SEQS, gamma),) if gamma else ()
    return Drafting(name or f"k{gamma}", schedule, blocks)


SMALL_CACHE = fixed(2, _SMALL_CACHE, "small-cache")
DRAFTINGS = (
    *(fixed(gamma) for gamma in (0, *GAMMAS)),
    Drafting("schedule", tuple(SCHEDULE)),
    SMALL_CACHE,
)
# Of the small cache those rates at which it is what binds, since preemptions are few.
SETTINGS = (
    *(Setting(each, rate) for each in DRAFTINGS[:-1] for rate in RATES),
    *(Setting(SMALL_CACHE, rate) for rate in ("half", "heavy", "saturated")),
)


def rates_of(number: int) -> list[str]:
    """Names of the rates in the order of the pass of this number."""
    names = list(RATES)
    first = number % len(names)
    return names[first:] + names[:first]


def swapped(number: int) -> bool:
    """Whether the servers of one draft length change places in this pass: those that are timed in
    others are under load, and the other way round.
    """
    return number % 2 == 1


def engine(num_gpu_blocks: int) -> VllmEngine:
    """As ``specsim.serving`` describes what the servers are started as."""
    return VllmEngine(
        VERSION,
        num_gpu_blocks,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        max_num_seqs=MAX_NUM_SEQS,
        block_size=BLOCK_TOKENS,
        max_model_len=CONTEXT,
        enable_prefix_caching=False,
        async_scheduling=False,  # vLLM's CPU platform switches it off
        enforce_eager=True,
    )
