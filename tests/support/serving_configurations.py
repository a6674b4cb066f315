"""Random set-ups of a replica, small enough to be full, and what every run conserves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from specsim.checks import Floats
from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.adaptive_steps import AdaptiveSteps, StepSlot
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.kv_groups import KvGroup
from specsim.serving.engines.settings import VLLM
from specsim.serving.engines.sglang import SglangEngine
from specsim.serving.engines.vllm import VllmEngine
from specsim.serving.requests import PrefixBlocks, Requests
from specsim.serving.result import ServingRun, Steps
from specsim.serving.step_model import StepModel, StepTerm
from tests.support.serving_twin import drawn, uniform

MODEL = StepModel(
    (
        StepTerm("target", [2e-3, 2.5e-3, 9e-3], ("padded_tokens",), ([1, 16, 64],), when="graph"),
        StepTerm("target", [8e-3, 16e-3], ("tokens",), ([1, 64],), when="eager"),
        StepTerm(
            "attention",
            [[1e-5, 2e-5], [4e-5, 9e-5]],
            ("decodes", "mean_decode_context"),
            ([1, 8], [16, 256]),
            per="decodes",
        ),
        StepTerm("attention", 1e-7, per="prefill_pairs"),
        StepTerm(
            "attention",
            [[0.0, 0.0], [1e-3, 5e-3]],
            ("prefill_tokens", "chunk_context"),
            ([0, 32], [0, 64]),
        ),
        StepTerm("draft", 1e-4, per="drafting"),
        StepTerm("draft", [0.0, 2e-4], ("drafting",), ([0, 8],), per="next_draft_runs"),
        StepTerm("host", [1e-3, 4e-3], ("sequences",), ([1, 8],)),
        StepTerm("target", 7e-4, per="arrivals"),
    ),
    frontend_s=3e-3,
    frontend_decode_s=5e-4,
    frontend_prompt_s=1e-3,
    eager_s=9e-3,
)


SCATTERED = replace(MODEL, step_variation=0.3, prompt_step_variation=0.6, frontend_variation=1.5)


@st.composite
def workloads(draw: st.DrawFn, block_size: int) -> Requests:
    n = draw(st.integers(1, 25))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    gap = draw(st.sampled_from([0.0, 2e-3, 2e-2, 0.5]))
    arrivals = np.cumsum(random.exponential(1.0, n) * gap)
    prompts = random.integers(1, draw(st.sampled_from([2, 20, 60])), n)
    outputs = random.integers(1, draw(st.sampled_from([2, 12, 50])), n)
    prefix = None
    if draw(st.booleans()):
        tokens = block_size * draw(st.integers(1, 2))
        families = [list(np.cumsum(random.integers(1, 99, 64))) for _ in range(3)]
        of = [families[random.integers(3)][: int(p) // tokens] for p in prompts]
        starts = np.concatenate([[0], np.cumsum([len(each) for each in of])])
        hashes = np.array([h for each in of for h in each], dtype=np.int64)
        prefix = PrefixBlocks(hashes, starts, tokens)
    return Requests(arrivals, prompts, outputs, prefix)


@st.composite
def vllm_engines(draw: st.DrawFn, blocks: int, block_size: int, slots: int) -> VllmEngine:
    seqs = draw(st.sampled_from([1, 3, 8]))
    chunked = draw(st.sampled_from([True, True, False]))
    groups = draw(kv_groups())
    blocks *= max(sum(each.number for each in groups), 1)
    return VllmEngine(
        draw(st.sampled_from(["0.19.0", "0.33.0"])),
        num_gpu_blocks=blocks + 1 + draw(st.sampled_from([0, 1, 3, 10, 500])),
        max_num_batched_tokens=draw(st.integers(seqs + slots, 40)) if chunked else 200,
        max_num_seqs=seqs,
        block_size=block_size,
        max_model_len=draw(st.sampled_from([None, 150])),
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 7])),
        enable_prefix_caching=draw(st.booleans()),
        scheduler_reserve_full_isl=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.1])),
        async_scheduling=draw(st.booleans()),
        enforce_eager=draw(st.booleans()),
        kv_groups=groups,
    )


@st.composite
def kv_groups(draw: st.DrawFn) -> tuple[KvGroup, ...]:
    """None mostly, or some that see everything beside one or two kinds that see a window."""
    if draw(st.sampled_from([True, True, False])):
        return ()
    windows = draw(st.lists(st.integers(1, 40), min_size=1, max_size=2, unique=True))
    kinds = [*([None] if draw(st.booleans()) else []), *windows]
    return tuple(KvGroup(each, draw(st.integers(1, 2)), draw(st.integers(1, 3))) for each in kinds)


@st.composite
def sglang_engines(draw: st.DrawFn, blocks: int, block_size: int) -> SglangEngine:
    chunk = draw(st.sampled_from([-1, 2, 5]))
    tokens = (blocks + 1 + draw(st.sampled_from([0, 1, 3, 10, 500]))) * block_size
    return SglangEngine(
        "0.5.23",
        max_total_num_tokens=tokens + draw(st.integers(0, block_size - 1)),
        max_running_requests=draw(st.sampled_from([1, 3, 8])),
        chunked_prefill_size=chunk * block_size if chunk > 0 else -1,
        max_prefill_tokens=draw(st.sampled_from([16, 100])),
        page_size=block_size,
        context_length=draw(st.sampled_from([None, 150])),
        schedule_conservativeness=draw(st.sampled_from([0.0, 0.0, 1.0])),
        schedule_policy=draw(st.sampled_from(["fcfs", "lpm"])),
        disable_radix_cache=draw(st.booleans()),
        disable_overlap_schedule=draw(st.booleans()),
        disable_decode_cuda_graph=draw(st.booleans()),
        cuda_graph_max_bs_decode=4,
    )


@st.composite
def adaptive_steps(draw: st.DrawFn) -> AdaptiveSteps:
    """That change often, with all that a slot may say."""
    slots = tuple(
        StepSlot(
            batch,
            tuple(draw(st.sets(st.integers(0, 5), min_size=1, max_size=3))),
            up_hysteresis=draw(st.sampled_from([0.0, -0.5, 0.3])),
            down_hysteresis=draw(st.sampled_from([-0.25, 0.0, 0.5])),
            ceiling_coeff=draw(st.sampled_from([0.0, 0.0, 1.5])),
            ema_alpha=draw(st.sampled_from([0.2, 1.0])),
            update_interval=draw(st.integers(1, 3)),
            warmup_batches=draw(st.integers(0, 4)),
        )
        for batch in draw(st.sampled_from([(1,), (1, 3), (2, 4, 6)]))
    )
    return AdaptiveSteps(slots, draw(st.integers(0, 5)))


def following(steps: AdaptiveSteps, *, drops_last_cached_block: bool = False) -> DraftPolicy:
    """Draft lengths that change as these say."""
    return DraftPolicy(steps.schedule, drops_last_cached_block, adaptive=steps)


@st.composite
def policies(draw: st.DrawFn, engine: str) -> DraftPolicy:
    dropped = draw(st.booleans())
    kinds = ["off", "fixed", "table", *(["adaptive"] * 2 if engine == "sglang" else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "off":
        return DraftPolicy.off()
    if kind == "adaptive":
        return following(draw(adaptive_steps()), drops_last_cached_block=dropped)
    if kind == "fixed":
        return DraftPolicy.fixed(draw(st.integers(0, 5)), drops_last_cached_block=dropped)
    gammas = draw(st.tuples(*[st.integers(0, 5)] * 3))
    ranges = list(zip((1, 2, 5), (1, 4, 9), gammas, strict=True))
    slots = draw(st.integers(0, 2)) if engine == "vllm" else 0
    further = draw(st.booleans())
    without_cache = draw(st.booleans())
    return DraftPolicy(
        tuple(ranges), dropped, further, slots_for_drafting=slots, keeps_no_cache=without_cache
    )


@st.composite
def acceptances(draw: st.DrawFn) -> RoundAcceptance:
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["law", "laws", "trace", "recorded", "synthetic"]))
    if kind == "law":
        return RoundAcceptance.law(np.cumprod(random.uniform(0.3, 1.0, 5)))
    if kind == "laws":
        return RoundAcceptance.law(np.cumprod(random.uniform(0.3, 1.0, (5, 5)), axis=1))
    if kind == "synthetic":
        return RoundAcceptance.synthetic_length(random.uniform(1.0, 6.0), 5)
    starts = np.concatenate([[0], np.cumsum(random.integers(1, 30, 4))])
    if kind == "trace":
        return RoundAcceptance.trace(random.uniform(0.0, 1.0, starts[-1]), starts)
    sources = random.integers(0, 4, 25)
    return RoundAcceptance.recorded(random.integers(1, 8, starts[-1]), starts, sources)


@st.composite
def configurations(draw: st.DrawFn, engine: str) -> dict[str, Any]:
    """Arguments of ``run``, with ``vllm`` or ``sglang``."""
    block_size = draw(st.sampled_from([1, 4, 16]))
    requests = draw(workloads(block_size))
    drafts = draw(policies(engine))
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    blocks = -(-(longest + 3 * drafts.lookahead + 2) // block_size)
    engines = sglang_engines(blocks, block_size)
    if engine == "vllm":
        engines = vllm_engines(blocks, block_size, drafts.slots_for_drafting)
    return {
        "requests": requests,
        "engine": draw(engines),
        "step_model": draw(st.sampled_from([MODEL, SCATTERED])),
        "drafts": drafts,
        "acceptance": draw(acceptances()),
        "concurrency": draw(st.sampled_from([None, None, 1, 4])),
        "seed": draw(st.integers(0, 2**53)),
    }


def assert_conserved(found: ServingRun, model: StepModel = MODEL) -> None:
    """What holds in every run: tokens, blocks, the budget, busy time, and L = lambda W."""
    requests, steps, log = found.requests, found.steps, found.round_log
    assert steps is not None
    assert log is not None
    settings = found.engine.settings(found.drafts)
    n = len(requests)
    # Tokens in = tokens out, for every request.
    emitted = np.bincount(log.request, log.tokens, n)
    np.testing.assert_array_equal(emitted, requests.output_tokens)
    np.testing.assert_array_equal(np.bincount(log.request, minlength=n), found.rounds)
    assert steps.emitted_tokens.sum() == requests.output_tokens.sum()
    # Never above the budget, the sequences or the blocks.
    if settings.kind == VLLM:
        slots = settings.draft_slots * steps.sequences
        assert (steps.prefill_tokens + steps.verified_tokens + slots <= settings.budget).all()
    assert (steps.sequences <= settings.max_seqs).all()
    assert (steps.used_blocks >= 0).all()
    assert (steps.used_blocks <= settings.blocks).all()
    # Steps follow one another, and are busy for their own parts and nothing else: all work of the
    # device, and of the host's what the device waited for.
    assert (steps.seconds > 0).all()
    assert (steps.start_s[1:] >= steps.end_s[:-1] - 1e-12).all()
    host = steps.parts["host"]
    device = sum(seconds for part, seconds in steps.parts.items() if part != "host")
    assert (steps.seconds >= device - 1e-12).all()
    assert (steps.seconds <= device + host + 1e-12).all()
    if not settings.asynchronous:
        np.testing.assert_allclose(found.busy_s, (device + host).sum(), rtol=1e-12)
    assert found.busy_s <= steps.end_s[-1] - found.arrival_s.min() + 1e-9
    assert (found.arrival_s <= found.scheduled_s).all()
    assert (found.scheduled_s < found.first_token_s).all()
    assert (found.first_token_s <= found.last_token_s).all()
    # Blocks in = blocks out: the last request leaves the cache as it was.
    assert found.free_blocks == settings.blocks
    # L = lambda W: the requests that the scheduler has, added up over time, are their times in it.
    if not settings.asynchronous:
        np.testing.assert_allclose(_held_s(found, steps), _stays_s(found, model).sum(), rtol=1e-9)


def _stays_s(found: ServingRun, model: StepModel) -> Floats:
    """Of every request from its arrival to its last token, as the engine sees it; (N,)."""
    steps, log = found.steps, found.round_log
    assert steps is not None
    assert log is not None
    _, first = np.unique(log.request, return_index=True)
    at = log.step[first]
    others = np.bincount(at)[at] - 1
    outside_s = model.frontend_s + model.frontend_decode_s * steps.decodes[at]
    outside_s += model.frontend_prompt_s * others
    luck = [uniform(found.seed, number, 2**62) for number in range(at.size)]
    outside_s *= [drawn(model.frontend_variation, each) for each in luck]
    return found.last_token_s - found.arrival_s - outside_s


def _held_s(found: ServingRun, steps: Steps) -> float:
    """Seconds of requests, from the log of steps: those that run and wait at the begin of a step
    are there to its end, those that arrive in it from then on.
    """
    held = ((steps.running + steps.waiting) * steps.seconds).sum()
    at = np.searchsorted(steps.start_s, found.arrival_s) - 1
    within = (at >= 0) & (found.arrival_s < steps.end_s[at])
    return float(held + (steps.end_s[at] - found.arrival_s)[within].sum())
