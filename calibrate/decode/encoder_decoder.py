"""Encoder-decoder models (T5, BART) in the same decoders as causal ones.

A model is told the source text of a request and reads it once; the decoders then see the decoder
alone, as a causal model whose prompt is the token that decoding starts from:

    target.encode(source)
    draft.encode(source)
    speculative(target, draft, target.start, ...)

The cache of a request has two halves.  Self-attention grows with every token read, and is cut
where tokens are rejected.  Cross-attention holds the keys and values of the source, which no
token changes: they come from ``encode`` and are kept over requests until the next source.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache

from calibrate.decode.engine import CachedModel, DecodingError
from specsim.checks import UnsupportedError


class EncoderDecoder(CachedModel):
    """An encoder-decoder model with the source and the key-value cache of one request.

    Runs are those of the decoder.  ``encode`` is not counted, as ``prefill`` is not.  Tokens that
    the model's own generation settings would force or forbid are left as the logits have them.

    context : the longest text of the decoder, and of the source; ``sys.maxsize`` where positions
        are relative, as T5's are: any length can be read, which is not to say read well
    """

    # The encoder's output, and what the decoder's cross-attention keeps of it.
    _encoded: Any = None
    _cross: Any = None

    @property
    def start(self) -> list[int]:
        """The prompt of a request: the token that decoding starts from."""
        token = self.model.generation_config.decoder_start_token_id
        if token is None:
            raise DecodingError("the model's configuration has no decoder_start_token_id")
        return [token]

    @torch.inference_mode()
    def encode(self, source: Sequence[int]) -> None:
        """Read the source of the requests to come, at least one token; not counted."""
        if not 0 < len(source) <= self.context:
            raise DecodingError(
                f"source must have 1 to {self.context} tokens (the model's context), got "
                f"{len(source)}"
            )
        ids = torch.tensor([list(source)], device=self.device)
        self._encoded = self.model.get_encoder()(input_ids=ids)
        # The first token read, whichever it is, fills the cross-attention: now, or the first run
        # that is counted would.
        self._cross = DynamicCache()
        self.reset()
        self._forward(torch.zeros_like(ids[:, :1]), keep=1)
        self.reset()

    def prefill(self, prompt: Sequence[int]) -> None:
        """Read all but the last token of the decoder's prompt; not counted."""
        if self._encoded is None:
            raise DecodingError("no source text: encode one before the request")
        super().prefill(prompt)

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
        output = self.model(
            decoder_input_ids=ids,
            encoder_outputs=self._encoded,
            past_key_values=self.cache,
            use_cache=True,
        )
        logits: torch.Tensor = output.logits
        return logits
