"""What the decoders share: a model with its cache, run counts, and the result of a request.

Invariant between blocks: a cache holds every token of the request but the last one, which the
next run reads first.  The reading of the prompt's other tokens (``prefill``) is not decoding.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache

from specsim.checks import SpecsimError


class DecodingError(SpecsimError):
    """A request that cannot be decoded; the message says why."""


@dataclass
class Runs:
    """Decoding runs of one model: how many, by width, and how long the model took."""

    widths: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def count(self) -> int:
        return self.widths.total()


class CachedModel:
    """A causal model with the key-value cache of one request.

    Counts every decoding run.  On an accelerator each run is waited for only when ``timed``,
    since waiting costs time itself.  ``vocabulary`` cuts the logits to the tokens that target and
    draft share: models of one tokenizer may be padded to different sizes.
    """

    def __init__(self, model: Any, vocabulary: int | None = None, timed: bool = True) -> None:
        self.model, self.timed = model, timed
        self.vocabulary: int = vocabulary or model.config.get_text_config().vocab_size
        self.device = next(model.parameters()).device
        self.context: int = model.config.get_text_config().max_position_embeddings
        self.reset()

    def reset(self) -> None:
        """Forget the request and the counts."""
        self.cache = DynamicCache(config=self.model.config)
        self.runs = Runs()

    def prefill(self, prompt: Sequence[int]) -> None:
        """Read all but the last token of the prompt; not counted."""
        self.reset()
        if len(prompt) > 1:
            ids = torch.tensor([list(prompt[:-1])], device=self.device)
            self._forward(ids, keep=1)
            wait(self.device)

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        """One decoding run over new tokens of shape (1, n); logits of shape (n, V)."""
        start = time.perf_counter()
        logits = self._forward(ids, keep=0)
        if self.timed:
            wait(self.device)
        self.runs.seconds += time.perf_counter() - start
        self.runs.widths[ids.shape[1]] += 1
        return logits[0, :, : self.vocabulary]

    def forget(self, tokens: int) -> None:
        """Drop the last ``tokens`` tokens from the cache."""
        if tokens:
            self.cache.crop(-tokens)

    def _forward(self, ids: torch.Tensor, keep: int) -> torch.Tensor:
        output = self.model(
            input_ids=ids, past_key_values=self.cache, use_cache=True, logits_to_keep=keep
        )
        logits: torch.Tensor = output.logits
        return logits


def wait(device: torch.device) -> None:
    """Until everything queued on the device is done."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@dataclass(frozen=True)
class Decoded:
    """One request, decoded.

    tokens : emitted tokens, at most as many as asked for, end-of-text included
    accepted : draft tokens accepted in each block, before the request's end cuts it
    drafted : draft tokens proposed in each block
    target, draft : decoding runs of each model
    seconds : wall-clock from the first run to the last token, prefill excluded
    """

    tokens: list[int]
    accepted: list[int]
    drafted: list[int]
    target: Runs
    draft: Runs
    seconds: float

    @property
    def calls(self) -> int:
        """Target calls."""
        return self.target.count

    @property
    def overhead_s(self) -> float:
        """Host seconds outside the model runs."""
        return self.seconds - self.target.seconds - self.draft.seconds


def cut(tokens: list[int], limit: int, end_of_text: int | None) -> tuple[list[int], bool]:
    """``tokens`` up to ``limit`` and through the first end-of-text, and whether that ends it."""
    tokens = tokens[:limit]
    if end_of_text in tokens:
        return tokens[: tokens.index(end_of_text) + 1], True
    return tokens, len(tokens) == limit


def check_request(prompt: Sequence[int], max_new_tokens: int, *models: CachedModel) -> None:
    """A request must have a prompt and fit the models' contexts, each with a cache of its own."""
    if len({id(model) for model in models}) < len(models):
        raise DecodingError("each model needs a cache of its own: wrap it in its own CachedModel")
    if not prompt:
        raise DecodingError("prompt is empty, expected at least one token")
    if max_new_tokens < 0:
        raise DecodingError(f"max_new_tokens must be >= 0, got {max_new_tokens}")
    context = min(model.context for model in models)
    if len(prompt) + max_new_tokens > context:
        raise DecodingError(
            f"prompt ({len(prompt)} tokens) and max_new_tokens ({max_new_tokens}) exceed the "
            f"context of the models ({context})"
        )
