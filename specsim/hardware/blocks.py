"""The parts that families of models differ in: what follows attention, which layers see a window.

A block counts the weights of one layer behind its attention, from the config and the layer's
index; a window rule says whether that layer's attention sees the last tokens only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from specsim.hardware.fields import Config, count, entries_of
from specsim.hardware.shapes import Layer

# --- what follows attention in a layer ---------------------------------------------------------


def gated(hidden: int, inner: int, bias: bool = False) -> int:
    """Weights of a gated block: gate, up and down."""
    return 3 * hidden * inner + bias * (2 * inner + hidden)


def dense(config: Config, index: int) -> Layer:
    """One gated block for all tokens."""
    hidden, inner = count(config, "hidden_size"), count(config, "intermediate_size")
    return Layer(gated(hidden, inner, bool(config.get("mlp_bias"))), attentions=())


def mixtral_block(config: Config, index: int) -> Layer:
    """Routed experts in every layer."""
    return _experts(config, inner=count(config, "intermediate_size"))


def gpt_oss_block(config: Config, index: int) -> Layer:
    """Routed experts in every layer; experts and router have biases."""
    hidden, inner = count(config, "hidden_size"), count(config, "intermediate_size")
    block = _experts(config, inner)
    return replace(
        block,
        weights=block.weights + block.experts,
        expert_weights=gated(hidden, inner, bias=True),
    )


def qwen_moe_block(config: Config, index: int) -> Layer:
    """Routed experts in every ``decoder_sparse_step``-th layer but ``mlp_only_layers``.

    Qwen2's have a shared expert behind a gate of its own.
    """
    experts = count(config, "num_experts", "num_local_experts", low=0)
    every = count(config, "decoder_sparse_step", default=1)
    if index in entries_of(config, "mlp_only_layers") or not experts or (index + 1) % every:
        return dense(config, index)
    shared = count(config, "shared_expert_intermediate_size", default=0)
    hidden = count(config, "hidden_size")
    extra = gated(hidden, shared) + hidden if shared else 0
    return _experts(config, count(config, "moe_intermediate_size"), extra)


def deepseek_block(config: Config, index: int) -> Layer:
    """Routed and shared experts behind ``first_k_dense_replace`` dense layers."""
    if index < count(config, "first_k_dense_replace", default=0, low=0):
        return dense(config, index)
    hidden, inner = count(config, "hidden_size"), count(config, "moe_intermediate_size")
    shared = inner * count(config, "n_shared_experts", default=0, low=0)
    return _experts(config, inner, gated(hidden, shared, bool(config.get("mlp_bias"))))


def bailing_block(config: Config, index: int) -> Layer:
    """Ling 2.0: as DeepSeek's, the experts under other names."""
    return deepseek_block({"n_shared_experts": config.get("num_shared_experts"), **config}, index)


def llama4_block(config: Config, index: int) -> Layer:
    """A routed and a shared expert in every ``interleave_moe_layer_step``-th layer."""
    every = count(config, "interleave_moe_layer_step", default=1)
    named = config.get("moe_layers") is not None
    routes = index in entries_of(config, "moe_layers") if named else (index + 1) % every == 0
    hidden, inner = count(config, "hidden_size"), count(config, "intermediate_size")
    if not routes:
        return Layer(gated(hidden, count(config, "intermediate_size_mlp")), attentions=())
    return _experts(config, inner, gated(hidden, inner))


def _experts(config: Config, inner: int, extra: int = 0) -> Layer:
    hidden = count(config, "hidden_size")
    experts = count(config, "num_local_experts", "num_experts", "n_routed_experts")
    return Layer(
        weights=hidden * experts + extra,
        whole=hidden * experts,
        attentions=(),
        experts=experts,
        experts_per_token=count(config, "num_experts_per_tok"),
        expert_weights=gated(hidden, inner),
    )


# --- which layers see a window -----------------------------------------------------------------


def every_layer(config: Config, index: int) -> bool:
    """Mistral."""
    return True


def if_switched_on(config: Config, index: int) -> bool:
    """Qwen3-MoE."""
    return bool(config.get("use_sliding_window"))


def upper_layers(config: Config, index: int) -> bool:
    """Qwen2 and Qwen3: from ``max_window_layers`` on."""
    return if_switched_on(config, index) and index >= count(
        config, "max_window_layers", default=28, low=0
    )


def lower_even_layers(config: Config, index: int) -> bool:
    """Qwen2-MoE: every other layer below ``max_window_layers``."""
    below = index < count(config, "max_window_layers", default=28, low=0)
    return if_switched_on(config, index) and below and index % 2 == 0


def all_but_every(default: int) -> Callable[[Config, int], bool]:
    """Gemma and gpt-oss: all but every ``sliding_window_pattern``-th layer."""

    def rule(config: Config, index: int) -> bool:
        return bool((index + 1) % count(config, "sliding_window_pattern", default=default))

    return rule


def with_rotary_positions(config: Config, index: int) -> bool:
    """Llama 4: layers that rotate queries and keys, all but every fourth unless the config says."""
    rotates = entries_of(config, "no_rope_layers", count(config, "num_hidden_layers"))
    if rotates:
        return bool(rotates[index])
    return bool((index + 1) % count(config, "no_rope_layer_interval", default=4))
