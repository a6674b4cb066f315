"""What SGLang puts into a step (compiled): managers/schedule_policy.py and schedule_batch.py.

A step reads prompts or decodes, never both, and prompts come first.  A request is admitted where
its prompt and all that it may emit, and a page, fit beside a share of what the running ones may
still emit, the new token ratio.  Where decoding runs out of memory after all, requests are
retracted and wait again, and the ratio jumps up; with every decode it falls a little.  With a step
in flight, a request whose last token is surely in it does not decode again.

A decode drafts, verifies, and has the drafter read what was accepted, so that how much is drafted
follows from the requests of the same decode.  A step that reads prompts ends with the drafter's
reading of them (speculative/eagle_worker_v2.py, forward_batch_generation).

Others find a prompt in the cache when the step that read it is over
(managers/scheduler_components/batch_result_processor.py), and a chunk that has not ended when the
next step is planned.  A retracted request keeps its prompt there and nothing that it emitted
(schedule_batch.py, which releases it without a checkpoint).
"""

from __future__ import annotations

from specsim.checks import Ints
from specsim.serving.block_pool import (
    blocks_for,
    cached_blocks,
    free_blocks,
    needed_blocks,
    remember_blocks,
    take_blocks,
)
from specsim.serving.compiled import inner
from specsim.serving.engines.settings import EngineSettings
from specsim.serving.queue import (
    add_to_plan,
    append_waiting,
    count_planned,
    first_scheduled,
    pop_waiting,
)
from specsim.serving.state import PREEMPTED, RUNNING, State

# CLIP_MAX_NEW_TOKENS: what is kept for one request at most.
_MOST_NEW = 4096
# SGLANG_RETRACT_DECODE_STEPS: who is left after a retraction is taken to emit as many more.
_RETRACT_STEPS = 20
# Longer queues are served in the order of arrival.
_MOST_SORTED = 128
_NO_LIMIT = 2**31 - 1


@inner
def sglang_schedule(state: State, settings: EngineSettings, gammas: Ints) -> int:
    """Plan the next step and count its tokens as computed; returns how many were retracted.

    gammas : draft length by the number of requests that decode
    """
    step = state.steps[state.replica[0].turn]
    step.size = 0
    retracted = 0
    _schedule_prefill(state, settings)
    step.reads = step.size > 0
    if step.size == 0:
        retracted = _schedule_decode(state, settings, gammas)
    count_planned(state, settings, 0)  # drafts come with the decode that verifies them
    return retracted


@inner
def _new_tokens(state: State, request: int) -> int:
    """What a request may still emit, as far as it is kept for it."""
    own = state.requests[request]
    kept: int = min(own.output - own.emitted, _MOST_NEW)
    return kept


@inner
def _schedule_prefill(state: State, settings: EngineSettings) -> None:
    """Prompts, or a chunk of one, as far as tokens and requests reach."""
    replica = state.replica[0]
    # A chunk that has not ended leaves the batch as one that is done does.
    if replica.has_shrunk or replica.chunked >= 0 or replica.runners == 0:
        replica.batch_is_full = 0
    replica.has_shrunk = 0
    if (replica.batch_is_full or replica.queued == 0) and replica.chunked < 0:
        return
    page = settings.block_size
    left = float(replica.free_blocks * page)
    for at in range(replica.runners):
        if state.running[at] != replica.chunked:
            left -= _new_tokens(state, state.running[at]) * replica.new_token_ratio
    input_left = settings.budget
    chunk_left = settings.chunk if settings.chunk > 0 else _NO_LIMIT
    if replica.chunked >= 0:
        request = replica.chunked
        own = state.requests[request]
        rest = own.prompt + own.emitted - own.computed
        remember_blocks(state, settings, request, own.computed)
        # It goes on where nothing is left, too, since only its end frees anything.
        tokens = min(rest, chunk_left, int(left) if left >= 1 else chunk_left)
        if needed_blocks(state, settings, request, 0, own.computed + tokens) > replica.free_blocks:
            return
        take_blocks(state, settings, request, 0, own.computed + tokens)
        add_to_plan(state, request, tokens, 0)
        if tokens < rest:
            return
        paged = blocks_for(tokens, settings) * page
        left -= paged + page + min(own.output, _MOST_NEW)
        input_left -= paged
        chunk_left -= paged
        replica.chunked = -1
    if settings.longest_prefix_first and settings.caching and replica.queued <= _MOST_SORTED:
        _sort_by_prefix(state, settings)
    while replica.queued > 0 and input_left > 0 and chunk_left > 0:
        if replica.runners >= settings.max_seqs:
            replica.batch_is_full = 1
            return
        request = state.queue[replica.queue_first]
        own = state.requests[request]
        hits = cached_blocks(state, settings, request) if settings.caching else 0
        cached = hits * page
        rest = own.prompt + own.emitted - cached
        left_beside = left - needed_blocks(state, settings, request, hits, cached) * page
        if rest + _new_tokens(state, request) + page >= left_beside:
            replica.batch_is_full = 1
            return
        paged = blocks_for(rest, settings) * page
        if settings.chunk == 0 and paged >= input_left and state.steps[replica.turn].size > 0:
            return
        tokens = rest
        if paged > chunk_left:
            tokens = chunk_left // page * page
            if tokens == 0:
                return
            paged = tokens
            replica.chunked = request
        pop_waiting(state)
        first_scheduled(state, request, replica.now, cached)
        state.running[replica.runners] = request
        replica.runners += 1
        own.status = RUNNING
        own.computed = cached
        take_blocks(state, settings, request, hits, cached + tokens)
        add_to_plan(state, request, tokens, 0)
        left = left_beside - paged - page
        if replica.chunked != request:
            left -= min(own.output, _MOST_NEW)
        if left <= 0:
            replica.batch_is_full = 1
        if left <= 0 or replica.chunked == request:
            return
        input_left -= paged
        chunk_left -= paged


@inner
def _sort_by_prefix(state: State, settings: EngineSettings) -> None:
    """Those that have most of their prompt in the cache first, else in their order."""
    replica = state.replica[0]
    size, first = state.queue.size, replica.queue_first
    for at in range(1, replica.queued):
        request = state.queue[(first + at) % size]
        hits = cached_blocks(state, settings, request)
        place = at
        while place > 0:
            other = state.queue[(first + place - 1) % size]
            if cached_blocks(state, settings, other) >= hits:
                break
            state.queue[(first + place) % size] = other
            place -= 1
        state.queue[(first + place) % size] = request


@inner
def _decodes(state: State, request: int) -> bool:
    """Whether a running request has a part in the next decode: its prompt is read, and its last
    token is not surely in the step in flight.
    """
    own = state.requests[request]
    ends = own.placeholders > 0 and own.emitted + 1 >= own.output
    return request != state.replica[0].chunked and not ends


@inner
def _decoding(state: State) -> int:
    """How many have a part in the next decode."""
    found = 0
    for at in range(state.replica[0].runners):
        found += _decodes(state, state.running[at])
    return found


@inner
def _draft(state: State, gammas: Ints) -> None:
    """Give all that have a part in the next decode as many drafts as so many requests get."""
    gamma = gammas[_decoding(state)]
    for at in range(state.replica[0].runners):
        if _decodes(state, state.running[at]):
            state.requests[state.running[at]].drafts = gamma


@inner
def _schedule_decode(state: State, settings: EngineSettings, gammas: Ints) -> int:
    """A round of every running request, after retracting those for which there is no room."""
    replica = state.replica[0]
    decoding = _decoding(state)
    _draft(state, gammas)
    ending = replica.runners - (replica.chunked >= 0) - decoding
    if ending > 0:
        replica.batch_is_full = 0
    retracted = 0
    if _needed(state, settings) <= replica.free_blocks:
        if decoding > 0:
            lower = replica.new_token_ratio - settings.new_token_ratio_decay
            replica.new_token_ratio = max(lower, settings.least_new_token_ratio)
    elif ending > 0:
        return 0  # what ends makes room
    else:
        while decoding - retracted > 1:
            if retracted > 0 and _needed(state, settings) <= replica.free_blocks:
                break
            _retract(state, settings)
            _draft(state, gammas)
            retracted += 1
        _raise_ratio(state)
        replica.batch_is_full = 0
    for at in range(replica.runners):
        request = state.running[at]
        if not _decodes(state, request):
            continue
        own = state.requests[request]
        end = own.prompt + own.emitted + own.placeholders + own.drafts
        if needed_blocks(state, settings, request, 0, end) > replica.free_blocks:
            continue
        take_blocks(state, settings, request, 0, end)
        add_to_plan(state, request, end - own.computed, own.drafts)
        own.drafts = 0
    return retracted


@inner
def _needed(state: State, settings: EngineSettings) -> int:
    """Blocks that a round of all takes."""
    needed = 0
    for at in range(state.replica[0].runners):
        request = state.running[at]
        if _decodes(state, request):
            own = state.requests[request]
            end = own.prompt + own.emitted + own.placeholders + own.drafts
            needed += needed_blocks(state, settings, request, 0, end)
    return needed


@inner
def _retract(state: State, settings: EngineSettings) -> None:
    """Who has emitted the fewest tokens, of these has the longest prompt, of these runs last."""
    replica = state.replica[0]
    worst = -1
    for at in range(replica.runners):
        if state.running[at] == replica.chunked:
            continue
        if worst < 0:
            worst = at
            continue
        own, other = state.requests[state.running[at]], state.requests[state.running[worst]]
        if own.emitted < other.emitted or (
            own.emitted == other.emitted and own.prompt >= other.prompt
        ):
            worst = at
    request = state.running[worst]
    for at in range(worst, replica.runners - 1):
        state.running[at] = state.running[at + 1]
    replica.runners -= 1
    free_blocks(state, settings, request)
    own = state.requests[request]
    own.status = PREEMPTED
    own.computed = 0
    own.drafts = 0
    own.preemptions += 1
    append_waiting(state, request)


@inner
def _raise_ratio(state: State) -> None:
    """What those that are left have emitted, and will in a while, over all that they may."""
    replica = state.replica[0]
    emitted = output = 0
    for at in range(replica.runners):
        if _decodes(state, state.running[at]):
            own = state.requests[state.running[at]]
            emitted += own.emitted + _RETRACT_STEPS
            output += own.output
    replica.new_token_ratio = min(emitted / (output + 1), 1.0)
