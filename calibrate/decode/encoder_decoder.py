"""Encoder-decoder models (T5, BART) in the same decoders as causal ones.

The prompt of a request is the source.  ``prefill`` reads it once; the decoder then goes on behind
it as a causal model goes on behind its prompt, so every decoder of causal models, whatever records
them and whatever times them, has to know nothing of it:

    target, draft = cached_model(t5_large), cached_model(t5_small)
    speculative(target, draft, DecodeRequest(source, ...), gamma)

The text of a request is the source and what was written behind it.  Where a causal model reads the
last token of its prompt first, the decoder reads the token that decoding starts from.

The cache of a request has two halves.  Self-attention grows with every token read, and is cut
where tokens are rejected.  Cross-attention holds the keys and values of the source, which no
token changes: they are kept over requests until the next source.  A run reads both, so its context
is the source and what the decoder has read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache

from calibrate.decode.engine import CachedModel, DecodingError, wait
from specsim.checks import UnsupportedError


def is_encoder_decoder(model: Any) -> bool:
    """Whether the model reads a source before it writes."""
    return bool(getattr(model.config, "is_encoder_decoder", False))


def cached_model(
    model: Any, vocabulary: int | None = None, timed: bool = True, name: str = "draft"
) -> CachedModel:
    """A model of either kind with the cache of one request; arguments as of ``CachedModel``."""
    kind = EncoderDecoder if is_encoder_decoder(model) else CachedModel
    return kind(model, vocabulary, timed, name)


class EncoderDecoder(CachedModel):
    """An encoder-decoder model with the source and the key-value cache of one request.

    Runs are those of the decoder.  Tokens that the model's own generation settings would force or
    forbid are left as the logits have them.  Raises DecodingError where the model's configuration
    does not say what decoding starts from.

    context : the longest source and text behind it, together; ``sys.maxsize`` where positions are
        relative, as T5's are: any length can be read, which is not to say read well
    """

    # The encoder's output, and what the decoder's cross-attention keeps of it.
    _source: list[int] | None = None
    _encoded: Any = None
    _cross: Any = None

    def __init__(
        self, model: Any, vocabulary: int | None = None, timed: bool = True, name: str = "draft"
    ) -> None:
        super().__init__(model, vocabulary, timed, name)
        start = model.generation_config.decoder_start_token_id
        if start is None:
            raise DecodingError(
                f"{type(model).__name__} has no decoder_start_token_id, the token that decoding "
                "starts from: put it into the model's config.json"
            )
        self._start = torch.tensor([[start]], device=self.device)

    def prefill(self, prompt: Sequence[int], written: Sequence[int] = ()) -> None:
        """Read the prompt as the source, unless it is that of the last request, and all but the
        last token of what is written behind it; not counted."""
        if self._source != list(prompt):
            self._encode(list(prompt))
        super().prefill(prompt[-1:], written)

    @torch.inference_mode()
    def _encode(self, source: list[int]) -> None:
        if not 0 < len(source) <= self.context:
            raise DecodingError(
                f"source must have 1 to {self.context} tokens (the model's context), got "
                f"{len(source)}"
            )
        ids = torch.tensor([source], device=self.device)
        self._encoded = self.model.get_encoder()(input_ids=ids)
        # The first run fills the cross-attention: this one, or the first that is counted would.
        self._cross = DynamicCache()
        self.reset()
        self._forward(self._start, keep=1)
        wait(self.device)
        self._source = source

    def _longest_text(self) -> int:
        config = self.model.config.get_text_config()
        if hasattr(config, "max_position_embeddings"):
            return super()._longest_text()
        if hasattr(config, "relative_attention_num_buckets"):
            return sys.maxsize
        raise UnsupportedError(
            f"{type(self.model).__name__} has neither a longest text (max_position_embeddings) "
            "nor relative positions (relative_attention_num_buckets)"
        )

    def _empty_cache(self) -> Any:
        # Of the decoder's own configuration: encoder and decoder may differ in layers.
        own = DynamicCache(config=self.model.get_decoder().config)
        return EncoderDecoderCache(own, DynamicCache() if self._cross is None else self._cross)

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, keep: int, **inputs: torch.Tensor) -> torch.Tensor:
        if inputs:
            raise UnsupportedError(
                f"an encoder-decoder model reads a text in its order, without {', '.join(inputs)}"
            )
        if self.keeps_states:
            raise UnsupportedError("a head reads the states of a causal model, not of a decoder")
        if self._encoded is None:
            raise DecodingError("no source text: prefill it before the first run")
        if not self.cache.get_seq_length():
            ids = torch.cat([self._start, ids[:, 1:]], dim=1)
        output = self.model(
            decoder_input_ids=ids,
            encoder_outputs=self._encoded,
            use_cache=True,
            **{self._cache_argument: self.cache},
        )
        logits: torch.Tensor = output.logits
        return logits
