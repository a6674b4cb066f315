"""All that a replica keeps between steps, in arrays of records."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from specsim.checks import Ints
from specsim.serving.engines.settings import SGLANG, EngineSettings
from specsim.serving.prefixes import joined_blocks
from specsim.serving.requests import Requests

Ints32 = npt.NDArray[np.int32]
Records = Any  # an array of records, whose fields mypy does not know

WAITING, RUNNING, PREEMPTED, FINISHED = 0, 1, 2, 3

_REQUEST = np.dtype(
    [
        ("arrival", np.float64),
        ("scheduled_s", np.float64),
        ("first_s", np.float64),
        ("last_s", np.float64),
        ("frontend_s", np.float64),  # outside of all steps
        ("number", np.int64),  # in the whole workload: whose random numbers and text it has
        ("prompt", np.int32),
        ("output", np.int32),
        ("computed", np.int32),  # tokens in the cache, drafts that are not judged included
        ("emitted", np.int32),
        ("drafts", np.int32),  # that wait to be verified
        ("placeholders", np.int32),  # tokens that a step still in flight emits at most
        ("blocks", np.int32),
        ("hashed", np.int32),  # leading blocks that others may find
        ("reserved", np.int32),  # tokens that its blocks hold, where layers have groups of them
        ("processed", np.int32),  # tokens of whose windows it has let go what lies behind
        ("in_flight", np.int32),  # tokens of steps that have not ended
        ("slot", np.int32),  # its row of ``table`` while it runs; -1
        ("rounds", np.int32),
        ("preemptions", np.int32),
        ("cached", np.int32),  # tokens that it found in the cache at first
        ("status", np.int32),
    ],
    align=True,
)
_PLAN = np.dtype(
    [
        ("request", np.int32),
        ("tokens", np.int32),
        ("drafts", np.int32),
        ("before", np.int32),  # computed tokens before the step
        ("samples", np.int32),  # 1 where a token comes out
    ],
    align=True,
)
_STEP = np.dtype(
    [
        ("end", np.float64),
        ("size", np.int64),
        ("step", np.int64),
        ("decodes", np.int64),
        ("reads", np.int64),  # of SGLang: 1 where it reads prompts, and nobody decodes
    ],
    align=True,
)
_BLOCK = np.dtype(
    [
        ("content", np.int64),  # number of what it holds; -1
        ("references", np.int32),
        ("before", np.int32),  # of the ring of free blocks
        ("after", np.int32),
    ],
    align=True,
)
_REPLICA = np.dtype(
    [
        ("now", np.float64),
        ("device_free", np.float64),  # when the device has done all that was submitted
        ("new_token_ratio", np.float64),  # of SGLang
        ("chunked", np.int64),  # of SGLang: the request whose prompt is read in chunks; -1
        ("batch_is_full", np.int64),  # of SGLang: nobody is admitted
        ("has_shrunk", np.int64),  # of SGLang: somebody was done since the last plan
        ("arrived", np.int64),
        ("arrived_before", np.int64),  # when the last step was planned
        ("done", np.int64),
        ("runners", np.int64),  # length of ``running``
        ("queue_first", np.int64),  # place of the first that waits
        ("queued", np.int64),  # length of ``queue``
        ("free_blocks", np.int64),
        ("free_slots", np.int64),  # length of ``free_slots``
        ("flying", np.int64),  # steps that are submitted and whose tokens are not yet seen
        ("turn", np.int64),  # which of the two plans is made next
        ("steps", np.int64),
        ("left_behind", np.int64),  # 1 where nothing can be scheduled any more
    ],
    align=True,
)


class State(NamedTuple):
    """N requests, of which R run at most, B blocks that they may ever take.

    requests : (N,), replica : (1,), running : (R,), queue : a ring of N
    plan : (2, R) what each request does in the step that is planned and in the one in flight
    steps : (2,) those two
    pool : (B + 1,) with prefix caching, the last one between the two ends of the free blocks
    table : (R, blocks of the longest request) the blocks of those that run
    first_hash, hashes : numbers of the shared blocks of each request, (N + 1,) and (H,)
    hash_blocks : how many of the engine's blocks one of these is
    first_private : (N,) where the numbers begin of blocks that are a request's own
    holder : the block that holds a content; -1
    groups : (G, 3) of layers that have blocks of their own, as of ``group_table``; none: all have
        theirs together
    """

    requests: Records
    replica: Records
    running: Ints32
    queue: Ints32
    plan: Records
    steps: Records
    pool: Records
    free_slots: Ints32
    table: Ints32
    first_hash: Ints
    hashes: Ints
    hash_blocks: int
    first_private: Ints
    holder: Ints32
    groups: Ints


def fresh_state(
    requests: Requests,
    settings: EngineSettings,
    concurrency: int | None,
    groups: Ints,
    numbers: Ints,
) -> State:
    """Nothing has arrived yet; in a closed loop all but the first arrive when others are done.

    numbers : (N,) of the requests in the workload of which they are a part
    """
    n, most = len(requests), min(settings.max_seqs, len(requests))
    each = np.zeros(n, dtype=_REQUEST)
    each["number"] = numbers
    each["arrival"] = requests.arrival_s
    if concurrency is not None:
        each["arrival"][:concurrency], each["arrival"][concurrency:] = 0.0, np.inf
    each["prompt"], each["output"] = requests.prompt_tokens, requests.output_tokens
    each["slot"] = -1
    for name in ("scheduled_s", "first_s", "last_s"):
        each[name] = np.nan
    replica = np.zeros(1, dtype=_REPLICA)
    replica["free_blocks"] = settings.blocks
    replica["free_slots"] = most if settings.caching else 0
    replica["new_token_ratio"] = settings.new_token_ratio
    replica["chunked"] = -1
    return State(
        requests=each,
        replica=replica,
        running=np.zeros(most, dtype=np.int32),
        queue=np.zeros(n, dtype=np.int32),
        plan=np.zeros((2, most), dtype=_PLAN),
        steps=np.zeros(2, dtype=_STEP),
        groups=groups,
        **_pool(requests, settings, most),
    )


def most_beyond(settings: EngineSettings) -> int:
    """How many tokens behind its last one a request may hold slots for: drafts that are verified
    with it, those looked ahead for, and those of a step in flight.
    """
    if settings.kind == SGLANG:
        return 2 * settings.lookahead + 2
    verified = max(settings.drafts, settings.lookahead)
    return settings.lookahead + (2 if settings.asynchronous else 1) * verified


def _pool(requests: Requests, settings: EngineSettings, most: int) -> dict[str, Any]:
    """Blocks by what they hold, where prompts may share them."""
    own = np.zeros(len(requests), dtype=np.int64)
    if settings.caching:
        lengths = requests.prompt_tokens + requests.output_tokens + most_beyond(settings)
        own = -(-lengths // settings.block_size)
    slots = most if settings.caching else 0
    # Where all requests have room at once none is preempted, so that each takes its blocks once and
    # the rest is never touched.
    blocks = min(settings.blocks, int(own.sum()))
    pool = np.zeros(blocks + 1, dtype=_BLOCK)
    pool["content"] = -1
    ring = np.arange(blocks + 1)
    pool["before"], pool["after"] = np.roll(ring, 1), np.roll(ring, -1)
    numbers, starts, per_hash, different = _dense_hashes(requests, settings)
    return {
        "pool": pool,
        "free_slots": np.arange(slots, dtype=np.int32)[::-1].copy(),
        "table": np.full((slots, int(own.max())), -1, dtype=np.int32),
        "first_hash": starts,
        "hashes": numbers,
        "hash_blocks": per_hash,
        "first_private": different * per_hash + np.cumsum(own) - own,
        "holder": np.full(different * per_hash + int(own.sum()), -1, dtype=np.int32),
    }


def _dense_hashes(requests: Requests, settings: EngineSettings) -> tuple[Ints, Ints, int, int]:
    """Numbers of the shared blocks from 0 on, where those of a request begin, how many of the
    engine's blocks one is, and how many are different.
    """
    prefix = requests.prefix
    if prefix is None or not settings.caching:
        return np.zeros(0, dtype=np.int64), np.zeros(len(requests) + 1, dtype=np.int64), 1, 0
    if settings.block_size > prefix.block_tokens:
        prefix = joined_blocks(prefix, settings.block_size // prefix.block_tokens)
    found, numbers = np.unique(prefix.hashes, return_inverse=True)
    per_hash = prefix.block_tokens // settings.block_size
    return numbers.astype(np.int64), prefix.starts, per_hash, found.size
