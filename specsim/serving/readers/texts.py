"""Datasets of texts, which a model's tokenizer counts: ShareGPT's conversations, and prompts.

Of a conversation the first turn is the prompt and the second one the output, and those that are
too short or too long are left out, as ``vllm bench serve --dataset-name sharegpt`` does
(vllm/benchmarks/datasets/datasets.py, ShareGPTDataset and is_valid_sequence).  A prompt has its
number of output tokens beside it, or the text of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specsim.serving.prefixes import blocks_of_tokens
from specsim.serving.readers import token_counts
from specsim.serving.readers.records import (
    Record,
    RecordedRequests,
    clock_notes,
    from_the_first,
)
from specsim.serving.requests import WorkloadError

# Token ids of each text, as the model reads it.
Tokenize = Callable[[Sequence[str]], list[list[int]]]

_CONVERSATION, _PROMPT = "conversations", "prompt"
_COMPLETION = ("completion", "output", "response")
# Tokens: the least of prompt and output, the most of a prompt, and of both together.
_LEAST, _LONGEST_PROMPT, _LONGEST = 4, 1024, 2048


@dataclass(frozen=True)
class _Request:
    """output : its text, or how many tokens it has"""

    record: Record
    prompt: str
    output: str | int


def read(records: Sequence[Record], tokenize: Tokenize) -> RecordedRequests:
    """All requests; what prompts share is known, in blocks of 16 tokens."""
    talks = _CONVERSATION in records[0].values
    found = [each for each in map(_turns if talks else _prompt, records) if each is not None]
    prompts = tokenize([each.prompt for each in found])
    texts = [each.output for each in found if isinstance(each.output, str)]
    counted = iter(tokenize(texts))
    outputs = [len(next(counted)) if isinstance(e.output, str) else e.output for e in found]
    kept = [
        at
        for at, (ids, output) in enumerate(zip(prompts, outputs, strict=True))
        if not talks or _is_taken(len(ids), output)
    ]
    if not kept:
        raise WorkloadError("none of its conversations is as long as a request is to be")
    for at in kept:
        if not (prompts[at] and outputs[at]):
            raise WorkloadError(f"{found[at].record.place}: prompt or output has no token")
    own = [found[at].record for at in kept]
    arrival = next((key for key in token_counts.ARRIVAL if key in own[0].values), None)
    return RecordedRequests(
        format="texts",
        prompt_tokens=np.array([len(prompts[at]) for at in kept]),
        output_tokens=np.array([outputs[at] for at in kept]),
        arrival_s=None if arrival is None else from_the_first(own, arrival),
        prefix=blocks_of_tokens([prompts[at] for at in kept]),
        notes=(
            *_left_out(len(records) - len(kept), len(records)),
            *(() if arrival is None else clock_notes(own, arrival)),
        ),
    )


def _is_taken(prompt: int, output: int) -> bool:
    short = min(prompt, output) < _LEAST
    return not (short or prompt > _LONGEST_PROMPT or prompt + output > _LONGEST)


def _left_out(count: int, of: int) -> tuple[str, ...]:
    if not count:
        return ()
    return (
        f"{count} of {of} conversations are left out, as vllm bench serve does: fewer than two "
        f"turns, fewer than {_LEAST} tokens in one, more than {_LONGEST_PROMPT:,} in the first or "
        f"{_LONGEST:,} in both",
    )


def _turns(record: Record) -> _Request | None:
    """The first two of a conversation; None of a shorter one."""
    turns = record.values.get(_CONVERSATION)
    if not isinstance(turns, list):
        raise WorkloadError(f"{record.place}: {_CONVERSATION} must be a list of turns")
    if len(turns) < 2:
        return None
    texts = [turn.get("value") if isinstance(turn, dict) else None for turn in turns[:2]]
    first, second = (_text(record, f"value of {_CONVERSATION}", text) for text in texts)
    return _Request(record, first, second)


def _prompt(record: Record) -> _Request:
    if _PROMPT not in record.values:
        raise WorkloadError(
            f"{record.place}: no text to count: neither {_CONVERSATION} nor {_PROMPT}"
        )
    prompt = _text(record, _PROMPT, record.values[_PROMPT])
    completion = next((key for key in _COMPLETION if key in record.values), None)
    for key in token_counts.OUTPUT:
        if key in record.values and not (completion and key == token_counts.LIMIT):
            return _Request(record, prompt, record.tokens(key))
    if completion is not None:
        return _Request(record, prompt, _text(record, completion, record.values[completion]))
    raise WorkloadError(
        f"{record.place}: no output beside the prompt (looked for "
        f"{', '.join((*token_counts.OUTPUT, *_COMPLETION))})"
    )


def _text(record: Record, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise WorkloadError(f"{record.place}: {key} must be a text, got {str(value)[:40]}")
    return value
