"""Prompts: from a file, or windows of the held-out modules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibrate.train import corpus
from specsim.checks import SpecsimError
from specsim.files import read_regular


class PromptError(SpecsimError):
    """The prompts cannot be used; the message says which file and why."""


def find_prompts(
    path: Path | None, tokenizer: Any, tokens: int, count: int, skip: int = 0
) -> list[list[int]]:
    """``count`` prompts (fewer where the file has fewer), after the first ``skip``."""
    if path is None:
        return held_out_prompts(tokenizer, tokens, count, skip)
    return read_prompts(path, tokenizer, tokens)[skip : skip + count]


def read_prompts(path: Path, tokenizer: Any, tokens: int) -> list[list[int]]:
    """Token ids of every prompt in a file, each cut to its last ``tokens`` tokens.

    Where the tokenizer puts a BOS token before a text, that is one of them and stays the first:
    nobody serves text without it.

    ``.jsonl``: one object a line with the key ``prompt``.  Any other name: one prompt a line.
    """
    content = read_regular(path, "prompt file", PromptError)
    try:
        # Not splitlines: JSON strings may hold the other line ends that Unicode knows.
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise PromptError(f"prompt file {path} cannot be read ({error})") from None
    texts = [_text(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not texts:
        raise PromptError(f"prompt file {path} is empty, expected one prompt a line")
    prompts = [_cut(_tokens(text, tokenizer), tokens, tokenizer) for text in texts]
    if not all(prompts):
        number = next(number for number, prompt in enumerate(prompts, 1) if not prompt)
        raise PromptError(f"prompt file {path}: prompt {number} has no token")
    return prompts


def _tokens(text: str, tokenizer: Any) -> list[int]:
    """Of a whole text.  One that a chat template made begins with the BOS token as it is written,
    and gets no other.
    """
    begun = bool(tokenizer.bos_token) and text.startswith(tokenizer.bos_token)
    ids: list[int] = tokenizer(_whole(text), add_special_tokens=not begun)["input_ids"]
    return ids


def _cut(ids: list[int], tokens: int, tokenizer: Any) -> list[int]:
    if len(ids) <= tokens:
        return ids
    first = _beginning(ids, tokenizer)
    # Counted from the front: of one token nothing is left behind a BOS token, and ids[-0:] is all.
    return [*first, *ids[len(ids) - tokens + len(first) :]]


def _beginning(ids: list[int], tokenizer: Any) -> list[int]:
    """The BOS token that these tokens of a text begin with, or nothing."""
    return [each for each in ids[:1] if each == tokenizer.bos_token_id]


def _whole(text: str) -> str:
    """With U+FFFD, as decoders have it, for half of a surrogate pair: scraped JSON is full of
    them, and no tokenizer takes one.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _text(path: Path, number: int, line: str) -> str:
    if path.suffix != ".jsonl":
        return line.removesuffix("\r")  # of a line that ends as Windows ends lines
    try:
        prompt = json.loads(line)["prompt"]
    except (ValueError, KeyError, TypeError, RecursionError):
        prompt = None
    if not isinstance(prompt, str) or not prompt:
        raise PromptError(f'prompt file {path}, line {number}: expected {{"prompt": "text"}}')
    return prompt


def held_out_prompts(tokenizer: Any, tokens: int, count: int, skip: int = 0) -> list[list[int]]:
    """``count`` windows of ``tokens`` tokens, module by module in turn, after ``skip`` of them.

    Windows of one module start four times their length apart.  Where the tokenizer puts a BOS token
    before a text, every window begins with it, as if it were a text.
    """
    streams = [
        _windows(tokenizer(text, verbose=False)["input_ids"], tokens, tokenizer)
        for text in corpus.held_out_texts().values()
    ]
    found: list[list[int]] = []
    while streams and len(found) < skip + count:
        for stream in list(streams):
            window = next(stream, None)
            if window is None:
                streams.remove(stream)
            else:
                found.append(window)
    if len(found) < skip + count:
        raise PromptError(
            f"the held-out modules give {len(found)} prompts of {tokens} tokens, "
            f"{skip + count} are needed; ask for fewer requests or shorter prompts"
        )
    return found[skip : skip + count]


def _windows(ids: list[int], tokens: int, tokenizer: Any) -> Iterator[list[int]]:
    first = _beginning(ids, tokenizer)
    for start in range(len(first), len(ids) - tokens + len(first) + 1, 4 * tokens):
        yield [*first, *ids[start : start + tokens - len(first)]]
