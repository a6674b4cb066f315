"""Datasets of benchmarks with the number of tokens, or the token ids, of each prompt and output.

JSONL or JSON whose objects name both, as rewritten ShareGPT and the datasets of
``vllm bench serve`` do, and CSV with such columns.  How many tokens a text has only the model's
tokenizer knows: see ``texts``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsim.serving.prefixes import blocks_of_tokens
from specsim.serving.readers.records import (
    Record,
    RecordedRequests,
    clock_notes,
    from_the_first,
)
from specsim.serving.requests import WorkloadError

# The first that is there counts; lists of token ids are as long as they are, and ``LIMIT`` only
# says how long an output may be.
LIMIT = "max_tokens"
PROMPT = (
    *("prompt_token_ids", "input_ids"),
    *("prompt_len", "prompt_tokens", "input_len", "input_tokens", "num_prompt_tokens"),
)
OUTPUT = (
    *("output_len", "output_tokens", "expected_output_len", "completion_tokens"),
    *("num_output_tokens", "generated_token_ids", "output_ids", LIMIT),
)
ARRIVAL = ("arrival_s", "arrival_time", "timestamp")
_TEXT = ("conversations", "prompt", "messages", "turns")


def recognises(first: Record) -> bool:
    """By a number of prompt tokens, or by a text that should have one."""
    return any(key in first.values for key in (*PROMPT, *_TEXT))


def read(records: Sequence[Record]) -> RecordedRequests:
    """All requests; token ids of prompts tell what they share, in blocks of 16."""
    first = records[0]
    prompt, output = _key(first, PROMPT, "prompt"), _key(first, OUTPUT, "output")
    arrival = next((key for key in ARRIVAL if key in first.values), None)
    times = None
    if arrival is not None:
        times = from_the_first(records, arrival)
    ids = next((key for key in PROMPT if isinstance(first.values.get(key), list)), None)
    prompts = np.array([each.tokens(prompt) for each in records])
    prefix = None
    if ids is not None:
        prefix = blocks_of_tokens([each.ids(ids) for each in records])
    return RecordedRequests(
        format="token-counts",
        prompt_tokens=prompts,
        output_tokens=np.array([each.tokens(output) for each in records]),
        arrival_s=times,
        prefix=prefix,
        notes=() if arrival is None else clock_notes(records, arrival),
    )


def _key(first: Record, keys: tuple[str, ...], what: str) -> str:
    for key in keys:
        if key in first.values:
            return key
    raise WorkloadError(
        f"{first.place}: no number of {what} tokens (looked for {', '.join(keys)}); texts are "
        "counted where a tokenizer can be named (serve, plan, workload: --tokenizer MODEL)"
    )
