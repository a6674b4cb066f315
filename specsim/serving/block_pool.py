"""KV blocks (compiled): counted, or known by what they hold where prompts share them.

With prefix caching every block is somewhere: free blocks form a ring in the order in which they
were freed, and keep what they hold until they are taken for something else, the longest free first.

Where layers have groups of blocks (``engines.kv_groups``) they are counted, too, those behind a
window being free again.
"""

from __future__ import annotations

from specsim.serving.compiled import inlined, inner
from specsim.serving.engines import kv_groups
from specsim.serving.engines.settings import EngineSettings
from specsim.serving.state import State

most_blocks = inner(kv_groups.most_blocks)


@inlined
def blocks_for(tokens: int, settings: EngineSettings) -> int:
    """How many blocks hold so many tokens."""
    return (tokens + settings.block_size - 1) // settings.block_size


@inlined
def content_number(state: State, request: int, block: int) -> int:
    """The number of what a full block of a request holds."""
    first = state.first_hash[request]
    shared = block // state.hash_blocks
    if shared < state.first_hash[request + 1] - first:
        number: int = state.hashes[first + shared] * state.hash_blocks + block % state.hash_blocks
    else:
        number = state.first_private[request] + block
    return number


@inner
def cached_blocks(state: State, settings: EngineSettings, request: int) -> int:
    """Leading blocks of a waiting request that some block holds.

    At least one token has to be computed, for its logits.
    """
    own = state.requests[request]
    tokens = own.prompt + own.emitted
    most = (tokens - 1) // settings.block_size
    found = 0
    while found < most and state.holder[content_number(state, request, found)] >= 0:
        found += 1
    if settings.drop_last and found > 0:
        found -= 1
    return found


@inner
def _held_blocks(state: State, tokens: int, processed: int) -> int:
    """Blocks of all groups that hold ``tokens``, when what is behind the windows of ``processed``
    is let go.
    """
    found = 0
    for at in range(state.groups.shape[0]):
        window, size, count = state.groups[at, 0], state.groups[at, 1], state.groups[at, 2]
        blocks = (tokens + size - 1) // size
        if window > 0 and processed >= window:
            blocks -= min((processed - window + 1) // size, blocks)
        found += count * blocks
    return found


@inlined
def leave_behind(state: State, request: int, processed: int) -> None:
    """Free the blocks of a request that lie behind its windows, of so many tokens that are done."""
    own = state.requests[request]
    if processed > own.processed:
        freed = own.blocks - _held_blocks(state, own.reserved, processed)
        own.blocks -= freed
        state.replica[0].free_blocks += freed
        own.processed = processed


@inlined
def needed_blocks(
    state: State, settings: EngineSettings, request: int, hits: int, tokens: int
) -> int:
    """Free blocks that a request takes to hold ``tokens``, of which it has ``hits`` blocks cached:
    new ones, and those of the cached that nobody uses.
    """
    own = state.requests[request]
    if state.groups.shape[0] > 0:
        more: int = _held_blocks(state, max(tokens, own.reserved), own.processed) - own.blocks
        return more
    needed: int = max(blocks_for(tokens, settings) - own.blocks - hits, 0)
    for block in range(hits):
        if state.pool[state.holder[content_number(state, request, block)]].references == 0:
            needed += 1
    return needed


@inner
def _unlink(state: State, block: int) -> None:
    state.pool[state.pool[block].before].after = state.pool[block].after
    state.pool[state.pool[block].after].before = state.pool[block].before
    state.replica[0].free_blocks -= 1


@inner
def take_blocks(
    state: State, settings: EngineSettings, request: int, hits: int, tokens: int
) -> None:
    """Give a request what it needs; ``needed_blocks`` has said that there are so many."""
    replica = state.replica[0]
    own = state.requests[request]
    if state.groups.shape[0] > 0:
        more = needed_blocks(state, settings, request, 0, tokens)
        own.blocks += more
        own.reserved = max(own.reserved, tokens)
        replica.free_blocks -= more
        return
    wanted = blocks_for(tokens, settings)
    if not settings.caching:
        more = wanted - own.blocks
        if more > 0:
            own.blocks += more
            replica.free_blocks -= more
        return
    if own.slot < 0:
        replica.free_slots -= 1
        own.slot = state.free_slots[replica.free_slots]
    row = own.slot
    for at in range(hits):
        block = state.holder[content_number(state, request, at)]
        if state.pool[block].references == 0:
            _unlink(state, block)
        state.pool[block].references += 1
        state.table[row, at] = block
    if hits > 0:
        own.blocks = hits
        own.hashed = hits
    ring = state.pool.size - 1
    while own.blocks < wanted:
        block = state.pool[ring].after
        _unlink(state, block)
        if state.pool[block].content >= 0:
            state.holder[state.pool[block].content] = -1
            state.pool[block].content = -1
        state.pool[block].references = 1
        state.table[row, own.blocks] = block
        own.blocks += 1


@inlined
def remember_blocks(state: State, settings: EngineSettings, request: int, tokens: int) -> None:
    """Let the full blocks of a request's first ``tokens`` be found by others."""
    own = state.requests[request]
    if not settings.caching or tokens < (own.hashed + 1) * settings.block_size:
        return
    row = own.slot
    full = tokens // settings.block_size
    for at in range(own.hashed, full):
        number = content_number(state, request, at)
        # A second block with the same content is not found; vLLM knows both.
        if state.holder[number] < 0:
            block = state.table[row, at]
            state.holder[number] = block
            state.pool[block].content = number
    if full > own.hashed:
        own.hashed = full


@inner
def free_blocks(state: State, settings: EngineSettings, request: int) -> None:
    """Take all blocks from a request, the last one first."""
    replica = state.replica[0]
    own = state.requests[request]
    if not settings.caching:
        replica.free_blocks += own.blocks
        own.blocks = own.reserved = own.processed = 0
        return
    row = own.slot
    ring = state.pool.size - 1
    for at in range(own.blocks - 1, -1, -1):
        block = state.table[row, at]
        state.pool[block].references -= 1
        if state.pool[block].references == 0:
            last = state.pool[ring].before
            state.pool[last].after = block
            state.pool[block].before = last
            state.pool[block].after = ring
            state.pool[ring].before = block
            replica.free_blocks += 1
    own.blocks = 0
    own.hashed = 0
    if row >= 0:
        state.free_slots[replica.free_slots] = row
        replica.free_slots += 1
        own.slot = -1
