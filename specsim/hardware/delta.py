"""Gated delta networks (arXiv 2412.06464): attention with a state instead of stored tokens."""

from __future__ import annotations

from specsim.checks import UnsupportedError
from specsim.hardware import assembly, blocks
from specsim.hardware.fields import Config, count, entries_of, layer_count
from specsim.hardware.shapes import Attention, Shape


def qwen3_next(config: Config) -> Shape:
    """Qwen3-Next: three layers of gated delta networks, then one of gated full attention."""
    layers = []
    for index in range(layer_count(config, "num_hidden_layers")):
        attends = _is_full(config, index)
        weights, attention = (_gated_attention if attends else _gated_delta)(config)
        norms = 2 * count(config, "hidden_size")
        layers.append(
            assembly.layer(blocks.qwen_moe_block(config, index), weights + norms, attention)
        )
    return assembly.decoder(config, config, layers, bool(config.get("tie_word_embeddings")))


def _is_full(config: Config, index: int) -> bool:
    kinds = entries_of(config, "layer_types", count(config, "num_hidden_layers"))
    if not kinds:
        return (index + 1) % count(config, "full_attention_interval", default=4) == 0
    kind = kinds[index]
    if kind not in ("full_attention", "linear_attention"):
        raise UnsupportedError(
            f"layer type {kind!r} is not known (known: full_attention, linear_attention)"
        )
    return bool(kind == "full_attention")


def _gated_attention(config: Config) -> tuple[int, Attention]:
    """Queries come with a gate for the output, and are normalised per head as keys are."""
    hidden, heads = count(config, "hidden_size"), count(config, "num_attention_heads")
    kv_heads, width = count(config, "num_key_value_heads"), count(config, "head_dim", default=256)
    bias = bool(config.get("attention_bias"))
    inputs = 2 * (heads + kv_heads) * width
    weights = (hidden + bias) * inputs + (heads * width + bias) * hidden + 2 * width
    return weights, Attention(2 * kv_heads * width, 2 * heads * width, heads, kv_heads)


def _gated_delta(config: Config) -> tuple[int, Attention]:
    """S_t = S_{t-1} g_t (1 - b_t k_t k_t^T) + b_t v_t k_t^T, o_t = S_t q_t (equation 10).

    A token multiplies the state of each value head with its key, adds to it and multiplies it with
    its query: three multiply-adds a number, and half of one for the decay.  The state is heads key
    value numbers, and the inputs of the last steps that the short convolution still needs.
    """
    hidden, kernel = (
        count(config, "hidden_size"),
        count(config, "linear_conv_kernel_dim", default=4),
    )
    key_heads = count(config, "linear_num_key_heads", default=16)
    heads = count(config, "linear_num_value_heads", default=32)
    key_width = count(config, "linear_key_head_dim", default=128)
    value_width = count(config, "linear_value_head_dim", default=128)
    keys, values = key_heads * key_width, heads * value_width
    convolved = 2 * keys + values
    weights = (
        hidden * (convolved + values)  # queries, keys, values and the output's gate
        + hidden * 2 * heads  # decay and writing strength
        + convolved * kernel
        + 2 * heads
        + value_width
        + values * hidden
    )
    matrix = heads * key_width * value_width
    attention = Attention(
        kv_width=0,
        pair_width=0,
        heads=heads,
        kv_heads=key_heads,
        state=matrix + convolved * (kernel - 1),
        state_width=matrix * 7 // 2,
    )
    return weights, attention
