"""What vLLM's own scheduler puts into steps, run by the engine's own Python: no model is run.

Reads from its input, as JSON, the cases of ``tests/engine/test_scheduler.py``, and writes of each a
row for every step: the requests in it with their tokens, how many were preempted, wait and run.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

# Any token: nothing reads it.
_TOKEN = 7


def scheduler(asked: dict[str, Any]) -> Scheduler:
    """As ``vllm serve`` makes it of these words."""
    words = dict(asked["engine"])
    blocks = words.pop("num_gpu_blocks")
    config = EngineArgs(
        model=asked["model"],
        speculative_config=asked["speculative"],
        async_scheduling=False,
        enforce_eager=True,
        dtype="float32",
        enable_prefix_caching=False,
        **words,
    ).create_engine_config()
    config.cache_config.num_gpu_blocks = blocks
    # Which the CPU build switches off.
    config.scheduler_config.async_scheduling = asked["asynchronous"]
    cache = KVCacheConfig(
        num_blocks=blocks,
        kv_cache_tensors=[],
        kv_cache_groups=groups_of(asked["groups"] or [[None, 1, 1]], words["block_size"]),
    )
    kind = AsyncScheduler if asked["asynchronous"] else Scheduler
    return kind(
        vllm_config=config,
        kv_cache_config=cache,
        structured_output_manager=StructuredOutputManager(config),
        block_size=max(each.kv_cache_spec.block_size for each in cache.kv_cache_groups),
        log_stats=False,
    )


def groups_of(kinds: list[Any], block_size: int) -> list[KVCacheGroupSpec]:
    """Each with one layer; ``kinds`` are window, blocks in one and number, as of ``KvGroup``."""
    found = []
    for window, spans, count in kinds:
        words = {
            "block_size": spans * block_size,
            "num_kv_heads": 1,
            "head_size": 1,
            "dtype": torch.float32,
        }
        spec = FullAttentionSpec(**words)
        if window:
            spec = SlidingWindowSpec(**words, sliding_window=window)
        found += [KVCacheGroupSpec([f"layer {len(found) + each}"], spec) for each in range(count)]
    return found


def requests_of(asked: dict[str, Any]) -> list[Request]:
    found = []
    for number, (prompt, output) in enumerate(
        zip(asked["prompt_tokens"], asked["output_tokens"], strict=True)
    ):
        sampling = SamplingParams(max_tokens=output, ignore_eos=True, temperature=0.0)
        sampling.update_from_generation_config({}, None)
        found.append(Request(str(number), [_TOKEN] * prompt, sampling, None, arrival_time=0.0))
    return found


@dataclass(frozen=True)
class Planned:
    """A step that runs: what the scheduler said, what each request drafts or None where its prompt
    goes on, and when it ends.
    """

    said: SchedulerOutput
    drafts: dict[str, int | None]
    end_s: float


def steps(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Every step until all requests are done.  A step takes a second, its scheduling no time; where
    it is asynchronous, one is planned while another runs (v1/engine/core.py,
    step_with_batch_queue).
    """
    engine, requests = scheduler(asked), {each.request_id: each for each in requests_of(asked)}
    waiting = deque(zip(asked["arrival_s"], requests.values(), strict=True))
    rows: list[dict[str, Any]] = []
    now = free = 0.0
    flying: deque[Planned] = deque()
    while waiting or flying or engine.has_requests():
        while waiting and waiting[0][0] <= now:
            engine.add_request(waiting.popleft()[1])
        if engine.has_requests():
            before = sum(each.num_preemptions for each in requests.values())
            said = engine.schedule()
            tokens = said.num_scheduled_tokens
            end = now
            if tokens:
                end = free = max(now, free) + 1.0
                running, queued = engine.get_request_counts()
                preempted = sum(each.num_preemptions for each in requests.values()) - before
                rows.append(
                    {
                        "tokens": {int(name): count for name, count in tokens.items()},
                        "preempted": preempted,
                        "running": running,
                        "waiting": queued,
                    }
                )
            drafts = {
                name: None
                if requests[name].is_prefill_chunk
                else len(said.scheduled_spec_decode_tokens.get(name, ()))
                for name in tokens
            }
            flying.append(Planned(said, drafts, end))
            if len(flying) < (2 if asked["asynchronous"] else 1):
                continue
        assert flying, "somebody is always there"
        planned = flying.popleft()
        now = max(now, planned.end_s)
        land(engine, requests, planned, asked)
    return rows


def land(
    engine: Scheduler, requests: dict[str, Request], planned: Planned, asked: dict[str, Any]
) -> None:
    """The end of a step: what each of its requests emits."""
    names = list(planned.drafts)
    sampled = []
    for name, drafts in planned.drafts.items():
        recorded = asked["lengths"][int(name)]
        stands = recorded[len(requests[name].output_token_ids) % len(recorded)]
        sampled.append([] if drafts is None else [_TOKEN] * min(stands, drafts + 1))
    output = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: at for at, name in enumerate(names)},
        sampled_token_ids=sampled,
        prompt_logprobs_dict={},
    )
    engine.update_from_output(planned.said, output)
    if asked["speculative"] and not asked["asynchronous"]:
        gamma = planned.said.num_spec_tokens_to_schedule
        drafted = [[_TOKEN] * gamma if each else [] for each in sampled]
        engine.update_draft_token_ids(DraftTokenIds(names, drafted))


if __name__ == "__main__":
    json.dump([steps(each) for each in json.load(sys.stdin)], sys.stdout)
