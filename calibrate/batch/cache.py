"""What a batch keeps of every token, how it is attended to, and which models can be read so."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, DynamicCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from calibrate.models.cache_argument import cache_argument
from specsim.checks import UnsupportedError

# Slots are read in such pieces.  A multiple of 8, as the fused kernels of CUDA ask of a mask.
BUCKET = 64


class Destination:
    """Where this run's tokens go, the same in every layer.

    at : positions, (B, n)
    bucket : slots that attention reads
    """

    at: torch.Tensor
    bucket: int


class RaggedLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers has no types
    """Keys and values of one layer, (B, H, slots, D) each; a new token's go to its position."""

    is_sliding = False

    def __init__(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        batch: int,
        slots: int,
        destination: Destination,
    ) -> None:
        super().__init__()
        heads, size = keys.shape[1], keys.shape[3]
        self.keys = keys.new_zeros((batch, heads, slots, size))
        self.values = values.new_zeros((batch, heads, slots, size))
        self.destination, self.slots = destination, slots
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing is left to be done."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        where = self.destination.at[:, None, :, None].expand_as(key_states)
        self.keys.scatter_(2, where, key_states)
        self.values.scatter_(2, where, value_states)
        return self.keys[:, :, : self.destination.bucket], self.values[
            :, :, : self.destination.bucket
        ]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.destination.bucket, 0

    def get_seq_length(self) -> int:
        # The rows have no common length; models are told all positions.
        return 0

    def get_max_length(self) -> int:
        return self.slots


def _grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of query (B, G H, n, D) to key and value (B, H, S, D) under a mask (B, 1, n, S).

    The G heads that share a key are read as G n queries of it.  Under a mask transformers would
    write every key and value G times over instead, at every run.
    """
    for name in ("softcap", "s_aux", "position_bias"):
        if others.get(name) is not None:
            raise UnsupportedError(f"attention with {name} cannot be read in a batch")
    if (others.get("sliding_window") or key.shape[2]) < key.shape[2]:
        raise UnsupportedError("attention with a sliding window cannot be read in a batch")
    batch, heads, width, size = query.shape
    groups = heads // key.shape[1]
    if groups > 1:
        query = query.reshape(batch, key.shape[1], groups * width, size)
        attention_mask = attention_mask.repeat(1, 1, groups, 1)
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling
    )
    return output.reshape(batch, heads, width, -1).transpose(1, 2).contiguous(), None


_GROUPED = "specsim_grouped"
AttentionInterface.register(_GROUPED, _grouped_attention)


@contextmanager
def grouped(model: Any) -> Iterator[None]:
    """The model with the attention above; others may use the same model with its own."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = _GROUPED
    try:
        yield
    finally:
        config._attn_implementation = before


def ordinary_layers(model: Any) -> list[Any]:
    """The layers of an ordinary cache after a run over one token, which show what is kept."""
    one = torch.zeros((1, 1), dtype=torch.long, device=next(model.parameters()).device)
    cache = DynamicCache(config=model.config)
    with grouped(model):
        mask = torch.ones((1, 1, 1, 1), dtype=torch.bool, device=one.device)
        kept = {cache_argument(model): cache}
        model(input_ids=one, position_ids=one, attention_mask=mask, **kept)
    for layer in cache.layers:
        shapes = tuple(layer.keys.shape), tuple(layer.values.shape)
        if shapes[0] != shapes[1]:
            raise UnsupportedError(
                f"{_name(model)} keeps keys {shapes[0]} and values {shapes[1]} of a token, as "
                "latent attention does; a batch needs keys and values of one shape"
            )
    layers: list[Any] = cache.layers
    return layers


def check_model(model: Any, slots: int) -> None:
    """Refuse what the caches above cannot hold, or what rows of a batch would not share."""
    config = model.config.get_text_config()
    name = _name(model)
    told = inspect.signature(model.forward).parameters
    if (
        getattr(model.config, "is_encoder_decoder", False)
        or not getattr(model, "_supports_attention_backend", False)
        or "position_ids" not in told
        or "logits_to_keep" not in told
    ):
        raise UnsupportedError(
            f"{name} cannot be read in a batch: it must be a decoder that is told positions and "
            "attends through the interface of transformers"
        )
    for layer in DynamicCache(config=model.config).layers:
        if isinstance(layer, DynamicSlidingWindowLayer) and layer.sliding_window < round_up(slots):
            raise UnsupportedError(
                f"{name} has a sliding window of {layer.sliding_window} tokens, which a batch can "
                f"hold only where it hides nothing: slots, rounded up to a multiple of {BUCKET}, "
                f"must be no more than that, got {slots}"
            )
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise UnsupportedError(
                f"{name} has a cache of kind {type(layer).__name__}, which a batch cannot hold"
            )
    turning = getattr(config, "rope_parameters", None) or {}
    first = turning.get("original_max_position_embeddings") or slots
    if turning.get("rope_type") in ("dynamic", "longrope") and slots > first:
        raise UnsupportedError(
            f"{name} turns its positions by the longest text of a batch beyond {first} tokens; "
            f"slots must be no more than that, got {slots}"
        )


def _name(model: Any) -> str:
    return type(model).__name__


def round_up(slots: int) -> int:
    return -(-slots // BUCKET) * BUCKET
