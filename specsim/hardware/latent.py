"""Latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), dense or over picked tokens."""

from __future__ import annotations

from dataclasses import replace

from specsim.hardware import assembly, blocks
from specsim.hardware.fields import Config, count, layer_count
from specsim.hardware.shapes import Attention, Shape


def latent_decoder(config: Config) -> Shape:
    """DeepSeek-V2, V3 and V3.2, Kimi K2: latent attention and shared experts.

    Modules that predict further tokens are not counted, nor does transformers load them.
    """
    hidden, heads = count(config, "hidden_size"), count(config, "num_attention_heads")
    latent, rotary = count(config, "kv_lora_rank"), count(config, "qk_rope_head_dim")
    plain, value = count(config, "qk_nope_head_dim"), count(config, "v_head_dim")
    bias = bool(config.get("attention_bias"))
    queries = heads * (plain + rotary)
    # Every card has the projections to latents whole, as each of its heads starts from all of them.
    whole = (hidden + bias) * (latent + rotary)
    if config.get("q_lora_rank") is None:
        query_weights = hidden * queries
    else:
        rank = count(config, "q_lora_rank")
        query_weights = (hidden + bias) * rank + rank + rank * queries
        whole += (hidden + bias) * rank
    weights = (
        query_weights
        + (hidden + bias) * (latent + rotary)
        + latent
        + latent * heads * (plain + value)
        + (heads * value + bias) * hidden
        + 2 * hidden
    )
    attention = Attention(
        kv_width=latent + rotary,
        pair_width=heads * (2 * latent + rotary),
        heads=heads,
        expanded_width=heads * (plain + rotary + value),
        expansion=latent * heads * (plain + value),
    )
    attentions: tuple[Attention, ...] = (attention,)
    if config["model_type"] == "deepseek_v32":
        index_weights, indexer = _indexer(config)
        weights += index_weights
        whole += index_weights
        selected = count(config, "index_topk", default=2048)
        # Each token attends to others of its own, of which no two share what is expanded.
        attentions = (
            replace(attention, selected=selected, expanded_width=None, expansion=0),
            indexer,
        )
    layers = [
        assembly.layer(blocks.deepseek_block(config, index), weights, *attentions, whole=whole)
        for index in range(layer_count(config, "num_hidden_layers"))
    ]
    return assembly.decoder(config, config, layers, bool(config.get("tie_word_embeddings")))


def _indexer(config: Config) -> tuple[int, Attention]:
    """The weights that score all tokens for attention to pick from, and what scoring reads.

    One key for all heads and no values (DeepSeek-V3.2, arXiv 2512.02556, equation 1).  Engines
    keep its keys in fp8 whatever the cache is in; here they are in the cache's numbers.
    """
    hidden, rank = count(config, "hidden_size"), count(config, "q_lora_rank")
    heads = count(config, "index_n_heads", default=64)
    width = count(config, "index_head_dim", default=128)
    # Queries from the latent one, a key with its norm, and the weight of each head's score.
    weights = rank * heads * width + hidden * width + 2 * width + hidden * heads
    return weights, Attention(kv_width=width, pair_width=heads * (width + 1), heads=heads)
