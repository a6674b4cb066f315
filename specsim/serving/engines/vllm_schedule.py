"""What vLLM V1 puts into a step (compiled): vllm/v1/core/sched/scheduler.py at 00024d3.

There are no phases: every request has tokens to catch up with, its prompt, what it emitted and its
drafts.  Running ones come first in their order, then those that wait, as far as one budget of
tokens, the number of sequences and the blocks reach.
"""

from __future__ import annotations

from specsim.checks import Ints
from specsim.serving.block_pool import (
    cached_blocks,
    free_blocks,
    leave_behind,
    most_blocks,
    needed_blocks,
    remember_blocks,
    take_blocks,
)
from specsim.serving.compiled import inlined, inner
from specsim.serving.engines.settings import EngineSettings
from specsim.serving.queue import (
    add_to_plan,
    count_planned,
    first_scheduled,
    pop_waiting,
    prepend_waiting,
)
from specsim.serving.state import PREEMPTED, RUNNING, State


@inlined
def vllm_schedule(state: State, settings: EngineSettings, gammas: Ints) -> int:
    """Plan the next step and count its tokens as computed; returns how many were preempted.

    gammas : draft length by the number of scheduled requests
    """
    replica = state.replica[0]
    turn = replica.turn
    state.steps[turn].size = 0
    chunk = settings.chunk
    if not settings.chunks_alone and replica.runners + replica.queued == 1:
        chunk = 0  # there is nobody else whom a long prompt would keep waiting
    budget, preempted = _schedule_running(state, settings, chunk)
    if preempted == 0:
        _schedule_waiting(state, settings, chunk, budget)
    count_planned(state, settings, gammas[state.steps[turn].size])
    return preempted


@inlined
def _schedule_running(state: State, settings: EngineSettings, chunk: int) -> tuple[int, int]:
    """The tokens left, and how many were preempted.  Who is not in the step, as where no token is
    left for it, keeps its drafts for the next.
    """
    replica, requests, running = state.replica[0], state.requests, state.running
    # What the next request may take.
    budget, at, preempted = settings.budget - settings.draft_slots, 0, 0
    while at < replica.runners and budget > 0:
        request = running[at]
        own = requests[request]
        computed, placeholders = own.computed, own.placeholders
        known = own.prompt + own.emitted
        tokens = known + own.drafts + placeholders - computed
        if 0 < chunk < tokens:
            tokens = chunk
        tokens = min(tokens, budget, settings.max_model_len - 1 - computed)
        # The step in flight surely emits its last token.
        ends = placeholders > 0 and computed + 2 - placeholders >= own.prompt + own.output
        if ends or tokens <= 0:
            at += 1
            continue
        slots = min(computed + tokens + settings.lookahead, settings.max_model_len)
        room = own.blocks * settings.block_size
        if state.groups.shape[0] > 0:
            leave_behind(state, request, computed - own.in_flight)
            room = own.reserved
        # Mostly there is room in the last block, and nothing to divide.
        if slots > room:
            while at < replica.runners:
                if needed_blocks(state, settings, request, 0, slots) <= replica.free_blocks:
                    break
                replica.runners -= 1
                _preempt(state, settings, running[replica.runners])
                preempted += 1
            if at == replica.runners:
                break  # it was the last, and preempted itself
            take_blocks(state, settings, request, 0, slots)
        remember_blocks(state, settings, request, min(computed + tokens, known))
        drafts = max(tokens + computed - known - placeholders, 0)
        add_to_plan(state, request, tokens, drafts)
        own.drafts = 0
        budget -= tokens + settings.draft_slots
        at += 1
    return budget, preempted


@inner
def _preempt(state: State, settings: EngineSettings, request: int) -> None:
    """All is computed again later, but for what the cache still holds then."""
    own = state.requests[request]
    free_blocks(state, settings, request)
    own.status = PREEMPTED
    own.computed = 0
    own.drafts = 0
    own.preemptions += 1
    prepend_waiting(state, request)


@inlined
def _schedule_waiting(state: State, settings: EngineSettings, chunk: int, budget: int) -> None:
    """In their order, until the first that cannot be scheduled."""
    replica, requests = state.replica[0], state.requests
    while replica.queued > 0 and budget > 0 and replica.runners < settings.max_seqs:
        request = state.queue[replica.queue_first]
        own = requests[request]
        hits = cached_blocks(state, settings, request) if settings.caching else 0
        cached = hits * settings.block_size
        known = own.prompt + own.emitted
        tokens = known - cached
        if 0 < chunk < tokens:
            tokens = chunk
        if not settings.chunked and tokens > budget:
            break
        tokens = min(tokens, budget)
        kept = settings.watermark_blocks if replica.runners > 0 else 0
        free = replica.free_blocks - kept
        if settings.full_isl:
            if state.groups.shape[0] > 0:
                in_flight = settings.budget * (1 + settings.asynchronous)
                whole = most_blocks(state.groups, known, in_flight, settings.max_model_len)
            else:
                whole = needed_blocks(state, settings, request, hits, known)
            if whole > free:
                break
        slots = min(cached + tokens + settings.admission_lookahead, settings.max_model_len)
        if needed_blocks(state, settings, request, hits, slots) > free:
            break
        pop_waiting(state)
        first_scheduled(state, request, replica.now, cached)
        state.running[replica.runners] = request
        replica.runners += 1
        own.status = RUNNING
        own.computed = cached
        take_blocks(state, settings, request, hits, slots)
        remember_blocks(state, settings, request, cached + tokens)
        add_to_plan(state, request, tokens, 0)
        budget -= tokens + settings.draft_slots
