"""Small models of every kind, and what transformers makes of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from specsim import hardware

# Small, but no two sizes alike, so that no mistake cancels.
SIZES = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 20}
_LATENT = {
    "num_key_value_heads": 6,
    "kv_lora_rank": 14,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 10,
    "v_head_dim": 12,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    **_EXPERTS,
}
_SHARED = {**_EXPERTS, "n_shared_experts": 2, "first_k_dense_replace": 2}
_LLAMA4 = {
    **SIZES,
    "num_local_experts": 5,
    "num_experts_per_tok": 1,
    "intermediate_size_mlp": 92,
    "head_dim": 10,
    "attention_chunk_size": 7,
}
_NEXT = {
    **SIZES,
    **_EXPERTS,
    "num_experts": 6,
    "shared_expert_intermediate_size": 28,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 9,
    "linear_value_head_dim": 11,
    "linear_conv_kernel_dim": 3,
}
T5 = {
    "vocab_size": 96,
    "d_model": 48,
    "d_kv": 10,
    "d_ff": 80,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
}
_GPT2 = {"vocab_size": 96, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64}
_SLIDING = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2}

VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SIZES},
    "llama, tied": {"model_type": "llama", **SIZES, "tie_word_embeddings": True},
    "llama, biases": {
        "model_type": "llama",
        **SIZES,
        "attention_bias": True,
        "mlp_bias": True,
        "head_dim": 10,
    },
    "mistral": {"model_type": "mistral", **SIZES, "sliding_window": 7},
    "mistral, window not named": {"model_type": "mistral", **SIZES},
    "mistral, no window": {"model_type": "mistral", **SIZES, "sliding_window": None},
    "phi3": {"model_type": "phi3", **SIZES, "pad_token_id": 0, "sliding_window": 9},
    "qwen2": {"model_type": "qwen2", **SIZES},
    "qwen2, window": {"model_type": "qwen2", **SIZES, **_SLIDING},
    "qwen3": {"model_type": "qwen3", **SIZES},
    "qwen3, layer types": {
        "model_type": "qwen3",
        **SIZES,
        **_SLIDING,
        "head_dim": 10,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gemma2": {"model_type": "gemma2", **SIZES, "head_dim": 10},
    "gemma3_text": {"model_type": "gemma3_text", **SIZES, "sliding_window": 5},
    "gemma3_text, pattern": {"model_type": "gemma3_text", **SIZES, "sliding_window_pattern": 2},
    # The fields that Google's own configs name, and no others.
    "gemma3_text, defaults": {
        "model_type": "gemma3_text",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 7,
        "sliding_window": 5,
    },
    "gpt2": {"model_type": "gpt2", **_GPT2},
    "gpt2, inner width, untied": {
        "model_type": "gpt2",
        **_GPT2,
        "n_inner": 60,
        "tie_word_embeddings": False,
    },
    "mixtral": {"model_type": "mixtral", **SIZES, "num_local_experts": 5, "num_experts_per_tok": 2},
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        **SIZES,
        **_EXPERTS,
        **_SLIDING,
        "num_experts": 6,
        "shared_expert_intermediate_size": 28,
    },
    "qwen3_moe": {"model_type": "qwen3_moe", **SIZES, **_EXPERTS, "num_experts": 6},
    "qwen3_moe, dense layers": {
        "model_type": "qwen3_moe",
        **SIZES,
        **_EXPERTS,
        "num_experts": 6,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
        "use_sliding_window": True,
        "sliding_window": 7,
    },
    "gpt_oss": {
        "model_type": "gpt_oss",
        **SIZES,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "head_dim": 8,
    },
    "deepseek_v2": {
        "model_type": "deepseek_v2",
        **SIZES,
        **_LATENT,
        "q_lora_rank": None,
        "n_shared_experts": 2,
    },
    "deepseek_v3": {
        "model_type": "deepseek_v3",
        **SIZES,
        **_LATENT,
        "q_lora_rank": 18,
        "n_shared_experts": 1,
        "attention_bias": True,
    },
    "deepseek_v32": {
        "model_type": "deepseek_v32",
        **SIZES,
        **_LATENT,
        "q_lora_rank": 18,
        "n_shared_experts": 1,
        "index_topk": 6,
        "index_head_dim": 22,
        "index_n_heads": 3,
    },
    "kimi_k2": {
        "model_type": "kimi_k2",
        **SIZES,
        **_LATENT,
        "q_lora_rank": 18,
        "n_shared_experts": 1,
    },
    "glm4_moe": {"model_type": "glm4_moe", **SIZES, **_SHARED, "n_routed_experts": 8},
    "glm4_moe, biases and norms": {
        "model_type": "glm4_moe",
        **SIZES,
        **_SHARED,
        "n_routed_experts": 8,
        "head_dim": 10,
        "attention_bias": True,
        "use_qk_norm": True,
    },
    "bailing_moe_v2": {
        "model_type": "bailing_moe_v2",
        **SIZES,
        **_EXPERTS,
        "num_experts": 8,
        "num_shared_experts": 2,
        "first_k_dense_replace": 2,
        "head_dim": 10,
        "use_qk_norm": True,
    },
    "bailing_moe": {
        "model_type": "bailing_moe",
        **SIZES,
        **_EXPERTS,
        "num_experts": 8,
        "num_shared_experts": 1,
        "first_k_dense_replace": 0,
    },
    "llama4_text": {"model_type": "llama4_text", **_LLAMA4},
    "llama4_text, every second": {
        "model_type": "llama4_text",
        **_LLAMA4,
        "interleave_moe_layer_step": 2,
        "no_rope_layers": [1, 0, 1, 1],
        "attention_bias": True,
    },
    "qwen3_next": {"model_type": "qwen3_next", **_NEXT},
    "qwen3_next, layer types": {
        "model_type": "qwen3_next",
        **_NEXT,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "mlp_only_layers": [1],
        "attention_bias": True,
    },
    "t5": {"model_type": "t5", **T5},
    "t5, gated": {"model_type": "t5", **T5, "feed_forward_proj": "gated-gelu"},
}


def transformers_config(config: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    fields = {key: value for key, value in config.items() if key != "quantization_config"}
    # Two that transformers lays out alike under another name.
    if config["model_type"] == "kimi_k2":
        fields["model_type"] = "deepseek_v3"
    if config["model_type"].startswith("bailing_moe"):
        names = {"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"}
        fields = {names.get(key, key): value for key, value in fields.items()}
        fields["model_type"] = "glm4_moe"
    return AutoConfig.for_model(**fields)


def transformers_model(config: dict[str, Any], device: str = "meta") -> Any:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    kind = AutoModelForSeq2SeqLM if config["model_type"] == "t5" else AutoModelForCausalLM
    torch.manual_seed(0)
    with torch.device(device):
        return kind.from_config(transformers_config(config), attn_implementation="eager").eval()


# Of every variant, and an accelerator that holds any of them.
SMALL = [hardware.shape_from_config(config) for config in VARIANTS.values()]
ROOMY = dataclasses.replace(hardware.accelerator("H100-SXM"), memory=1e15)


def kv_bytes(shape: hardware.Shape, tokens: int) -> float:
    """Bytes of so many tokens in the KV cache of one sequence."""
    return hardware.memory_needed_bytes(shape, context=tokens) - hardware.memory_needed_bytes(shape)
