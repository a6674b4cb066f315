"""Traces in JSONL whose hash ids tell what prompts share: input_length, output_length, hash_ids.

kvcache-ai/Mooncake, ``FAST25-release/traces``: each hash id stands for a block of 512 tokens and
all before it; the last block of a prompt need not be full.  ``timestamp`` is in milliseconds.

alibaba-edu/qwen-bailian-usagetraces-anon (README.md) has the same names and ``parent_chat_id``:
each id stands for a block of 16 tokens, and ``timestamp`` is in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsim.serving.prefixes import blocks_of_names
from specsim.serving.readers.records import Record, RecordedRequests, in_order
from specsim.serving.requests import WorkloadError

# Tokens of a block, and seconds of a unit of time.
_MOONCAKE, _QWEN_BAILIAN = (512, 1e-3), (16, 1.0)


def recognises(first: Record) -> bool:
    """By the names of the lengths."""
    return {"input_length", "output_length"} <= set(first.values)


def read(records: Sequence[Record]) -> RecordedRequests:
    """All requests; without hash ids nothing is shared, without timestamps there are no times."""
    is_qwen = "parent_chat_id" in records[0].values
    block_tokens, unit_s = _QWEN_BAILIAN if is_qwen else _MOONCAKE
    prompts = np.array([each.tokens("input_length") for each in records])
    times = prefix = None
    if "timestamp" in records[0].values:
        times = np.array([each.seconds("timestamp", unit_s) for each in records])
    if "hash_ids" in records[0].values:
        names = [each.ids("hash_ids") for each in records]
        for record, ids, tokens in zip(records, names, prompts.tolist(), strict=True):
            _check_blocks(record, len(ids), tokens, block_tokens)
        prefix = blocks_of_names(names, prompts, block_tokens)
    return RecordedRequests(
        format="qwen-bailian" if is_qwen else "mooncake",
        prompt_tokens=prompts,
        output_tokens=np.array([each.tokens("output_length") for each in records]),
        arrival_s=None if times is None else in_order(records, times),
        prefix=prefix,
    )


def _check_blocks(record: Record, ids: int, tokens: int, block_tokens: int) -> None:
    """Refuse ids of blocks of another size, of which the times are in another unit, too."""
    full, rest = divmod(tokens, block_tokens)
    if ids not in (full, full + (rest > 0)):
        raise WorkloadError(
            f"{record.place}: hash_ids has {ids} ids for a prompt of {tokens} tokens, and a trace "
            f"of this kind has one for each {block_tokens}; leave hash_ids out, or put the ids of "
            f"{block_tokens} tokens together"
        )
