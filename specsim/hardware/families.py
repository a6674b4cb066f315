"""How each family of architectures lays out its weights: one table by ``model_type``.

A field that released configs leave out takes the default of transformers' configuration class.
The tests hold every family to transformers' own parameter count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specsim.checks import UnsupportedError
from specsim.hardware import assembly, blocks
from specsim.hardware.delta import qwen3_next
from specsim.hardware.fields import (
    Config,
    count,
    entries_of,
    head_width,
    kv_head_count,
    layer_count,
    text_part,
)
from specsim.hardware.latent import latent_decoder
from specsim.hardware.quantisation import precision_from_config
from specsim.hardware.shapes import Attention, Layer, Shape


@dataclass(frozen=True)
class Decoder:
    """Llama and its relatives: grouped-query attention, then a block, in every layer.

    block : what follows attention, from the config and the index of the layer
    norms : norm vectors in a layer
    head_norms : whether queries and keys are normalised per head; None: ``use_qk_norm`` says
    input_bias, output_bias : of the attention; None: ``bias_field`` says
    bias_field : what the config calls the biases of the attention's inputs
    sinks : whether each head has a learned logit for seeing nothing
    head_dim : where the config has none; None: hidden_size / heads
    tied : whether embeddings are tied where the config does not say
    windowed : which layers see a window, unless ``layer_types`` says
    window_field : what the config calls its size
    window : its size where the config does not name it; None: no window
    chunked : whether windows stand side by side
    defaults : fields that released configs leave out
    """

    block: Callable[[Config, int], Layer] = blocks.dense
    norms: int = 2
    head_norms: bool | None = False
    input_bias: bool | None = False
    output_bias: bool | None = False
    bias_field: str = "attention_bias"
    sinks: bool = False
    head_dim: int | None = None
    tied: bool = False
    windowed: Callable[[Config, int], bool] | None = None
    window_field: str = "sliding_window"
    window: int | None = None
    chunked: bool = False
    defaults: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, config: Config) -> Shape:
        text = {**self.defaults, **text_part(config)}
        hidden, heads = count(text, "hidden_size"), count(text, "num_attention_heads")
        width = head_width(text, hidden, heads, self.head_dim)
        kv_heads = kv_head_count(text, heads)
        inputs = (heads + 2 * kv_heads) * width
        named_bias = bool(text.get(self.bias_field))
        input_bias = named_bias if self.input_bias is None else self.input_bias
        output_bias = named_bias if self.output_bias is None else self.output_bias
        head_norms = self.head_norms
        if head_norms is None:
            head_norms = bool(text.get("use_qk_norm"))
        weights = (
            (hidden + input_bias) * inputs
            + (heads * width + output_bias) * hidden
            + self.norms * hidden
            + head_norms * 2 * width
            + self.sinks * heads
        )
        layers, kinds = [], entries_of(text, "layer_types", layer_count(text, "num_hidden_layers"))
        for index in range(layer_count(text, "num_hidden_layers")):
            attention = Attention(
                kv_width=2 * kv_heads * width,
                pair_width=2 * heads * width,
                heads=heads,
                kv_heads=kv_heads,
                window=self._window(text, kinds, index),
                chunked=self.chunked,
            )
            layers.append(assembly.layer(self.block(text, index), weights, attention))
        tied = bool(text.get("tie_word_embeddings", self.tied))
        return assembly.decoder(config, text, layers, tied)

    def _window(self, text: Config, kinds: Sequence[Any], index: int) -> int | None:
        if self.windowed is None:
            return None
        if kinds:
            kind = kinds[index]
            window = "chunked_attention" if self.chunked else "sliding_attention"
            if kind not in ("full_attention", window):
                raise UnsupportedError(
                    f"layer type {kind!r} is not known (known: full_attention, {window})"
                )
            slides = kind == window
        else:
            slides = self.windowed(text, index)
        size = text.get(self.window_field, self.window)
        return count(text, self.window_field, default=self.window) if slides and size else None


def gpt2(config: Config) -> Shape:
    """GPT-2: biases everywhere, learned positions, tied embeddings."""
    hidden = count(config, "n_embd")
    inner = count(config, "n_inner", default=4 * hidden)
    norm = 2 * hidden
    weights = (hidden + 1) * 3 * hidden + (hidden + 1) * hidden + 2 * norm
    block = (hidden + 1) * inner + (inner + 1) * hidden
    heads = count(config, "n_head")
    attention = Attention(2 * hidden, 2 * hidden, heads, heads)
    table = count(config, "vocab_size") * hidden
    tied = bool(config.get("tie_word_embeddings", True))
    return Shape(
        model_type=config["model_type"],
        layers=(Layer(weights + block, (attention,)),) * layer_count(config, "n_layer"),
        hidden=hidden,
        head=table + norm,
        idle=count(config, "n_positions") * hidden + (0 if tied else table),
        precision=precision_from_config(config),
    )


def t5(config: Config) -> Shape:
    """T5: a run of the decoder reads the encoder's keys and values, made once per request.

    So the encoder and the projections to those keys and values are idle.  Embeddings are tied
    whatever the config says, as in transformers 5.
    """
    hidden, heads = count(config, "d_model"), count(config, "num_heads")
    width = heads * count(config, "d_kv")
    gates = 2 if str(config.get("feed_forward_proj", "relu")).startswith("gated") else 1
    block = (gates + 1) * hidden * count(config, "d_ff") + hidden
    own = 4 * hidden * width + hidden
    encoder_layers = layer_count(config, "num_layers")
    decoder_layers = layer_count(config, "num_decoder_layers", default=encoder_layers)
    across_read = 2 * hidden * width + hidden
    parts = (
        Attention(2 * width, 2 * width, heads, heads),
        Attention(2 * width, 2 * width, heads, heads, of_encoder=True),
    )
    buckets = count(config, "relative_attention_num_buckets", default=32) * heads
    first = Layer(own + across_read + block + buckets, parts)
    others = Layer(own + across_read + block, parts)
    return Shape(
        model_type=config["model_type"],
        layers=(first,) + (others,) * (decoder_layers - 1),
        hidden=hidden,
        head=count(config, "vocab_size") * hidden + hidden,
        idle=encoder_layers * (own + block)
        + buckets
        + hidden
        + decoder_layers * 2 * hidden * width,
        precision=precision_from_config(config),
    )


_QWEN2 = Decoder(input_bias=True, windowed=blocks.upper_layers, window=4096)
_QWEN3 = Decoder(
    head_norms=True,
    input_bias=None,
    output_bias=None,
    head_dim=128,
    windowed=blocks.upper_layers,
    window=4096,
)
_GEMMA2 = Decoder(
    norms=4,
    input_bias=None,
    output_bias=None,
    head_dim=256,
    tied=True,
    windowed=blocks.all_but_every(2),
    window=4096,
)
# Google's own configs of Gemma 3 name only what differs from transformers' defaults.
_GEMMA3 = replace(
    _GEMMA2,
    head_norms=True,
    windowed=blocks.all_but_every(6),
    defaults={"vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4},
)

_LLAMA4 = Decoder(
    block=blocks.llama4_block,
    input_bias=None,
    output_bias=None,
    head_dim=128,
    windowed=blocks.with_rotary_positions,
    window_field="attention_chunk_size",
    window=8192,
    chunked=True,
)

_BAILING = Decoder(
    block=blocks.bailing_block, head_norms=None, input_bias=None, bias_field="use_qkv_bias"
)

FAMILIES: Mapping[str, Callable[[Config], Shape]] = {
    # Ling-flash-2.0 was first published under the name of its predecessor.
    "bailing_moe": _BAILING,
    "bailing_moe_v2": _BAILING,
    "deepseek_v2": latent_decoder,
    "deepseek_v3": latent_decoder,
    "deepseek_v32": latent_decoder,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "glm4_moe": Decoder(block=blocks.deepseek_block, head_norms=None, input_bias=None),
    "gpt2": gpt2,
    "gpt_oss": Decoder(
        block=blocks.gpt_oss_block,
        input_bias=True,
        output_bias=True,
        sinks=True,
        head_dim=64,
        windowed=blocks.all_but_every(2),
        window=128,
    ),
    "kimi_k2": latent_decoder,
    "llama": Decoder(input_bias=None, output_bias=None),
    "llama4": _LLAMA4,
    "llama4_text": _LLAMA4,
    "mistral": Decoder(windowed=blocks.every_layer, window=4096),
    "mixtral": Decoder(block=blocks.mixtral_block, windowed=blocks.every_layer),
    "phi3": Decoder(windowed=blocks.every_layer),
    "qwen2": _QWEN2,
    "qwen2_moe": replace(_QWEN2, block=blocks.qwen_moe_block, windowed=blocks.lower_even_layers),
    "qwen3": _QWEN3,
    "qwen3_moe": replace(
        _QWEN3, block=blocks.qwen_moe_block, head_dim=None, windowed=blocks.if_switched_on
    ),
    "qwen3_next": qwen3_next,
    "t5": t5,
}
