"""LLMServingSim's workloads and request logs in JSONL: input_toks, output_toks, times, token ids.

casys-kaist/LLMServingSim: ``arrival_time_ns`` counts from the begin of a workload; ``arrival_time``
of a log is a clock's, in seconds, and then the first request arrives at 0 here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsim.serving.prefixes import blocks_of_tokens
from specsim.serving.readers.records import Record, RecordedRequests, in_order
from specsim.serving.requests import WorkloadError


def recognises(first: Record) -> bool:
    """By the names of the lengths."""
    return {"input_toks", "output_toks"} <= set(first.values)


def read(records: Sequence[Record]) -> RecordedRequests:
    """All requests; prompts share blocks of 16 where their token ids are there."""
    prompts = np.array([each.tokens("input_toks") for each in records])
    first, times, prefix = records[0].values, None, None
    if "arrival_time_ns" in first:
        times = np.array([each.seconds("arrival_time_ns", 1e-9) for each in records])
    elif "arrival_time" in first:
        times = np.array([each.seconds("arrival_time") for each in records])
        times = times - times.min()
    if "input_tok_ids" in first:
        tokens = [each.ids("input_tok_ids") for each in records]
        for record, prompt, length in zip(records, tokens, prompts, strict=True):
            if len(prompt) != length:
                raise WorkloadError(
                    f"{record.place}: input_tok_ids has {len(prompt)} tokens, input_toks is "
                    f"{length}"
                )
        prefix = blocks_of_tokens(tokens)
    return RecordedRequests(
        format="llmservingsim",
        prompt_tokens=prompts,
        output_tokens=np.array([each.tokens("output_toks") for each in records]),
        arrival_s=None if times is None else in_order(records, times),
        prefix=prefix,
    )
