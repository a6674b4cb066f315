"""Mooncake's traces in JSONL: timestamp (ms), input_length, output_length, hash_ids.

kvcache-ai/Mooncake, ``FAST25-release/traces``: each hash id stands for a block of 512 tokens and
all before it; the last block of a prompt need not be full.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsim.serving.prefixes import blocks_of_names
from specsim.serving.readers.records import Record, RecordedRequests, in_order

_BLOCK_TOKENS = 512


def recognises(first: Record) -> bool:
    """By the names of the lengths."""
    return {"input_length", "output_length"} <= set(first.values)


def read(records: Sequence[Record]) -> RecordedRequests:
    """All requests; without hash ids nothing is shared, without timestamps there are no times."""
    prompts = np.array([each.tokens("input_length") for each in records])
    times = prefix = None
    if "timestamp" in records[0].values:
        times = np.array([each.seconds("timestamp", 1e-3) for each in records])
    if "hash_ids" in records[0].values:
        prefix = blocks_of_names([each.ids("hash_ids") for each in records], prompts, _BLOCK_TOKENS)
    return RecordedRequests(
        format="mooncake",
        prompt_tokens=prompts,
        output_tokens=np.array([each.tokens("output_length") for each in records]),
        arrival_s=None if times is None else in_order(records, times),
        prefix=prefix,
    )
