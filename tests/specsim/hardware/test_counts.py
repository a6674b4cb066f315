"""The roofline against transformers' own models, and published counts.

transformers builds each model (on the meta device where it is large) and says how many parameters
it has, what its cache stores and how many FLOPs its runs take; specsim.hardware must find the same
from the config alone.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from specsim import hardware
from tests.support.shapes import (
    ROOMY,
    SIZES,
    SMALL,
    T5,
    VARIANTS,
    kv_bytes,
    transformers_config,
    transformers_model,
)

CONFIGS = {**{name: hardware.read_config(name) for name in hardware.known_shapes()}, **VARIANTS}


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters(name: str) -> None:
    config = CONFIGS[name]
    counted = transformers_model(config).num_parameters()
    assert hardware.shape_from_config(config).parameters == counted


def test_every_model_type_is_held_to_transformers() -> None:
    tested = {config["model_type"] for config in VARIANTS.values()} | {"gemma3", "llama4"}
    assert tested == set(hardware.known_model_types())


# Model cards, to the last parameter.
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3.1-8b", 8_030_261_248),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen3-30b-a3b", 30_532_122_624),
    ],
)
def test_published_parameters(name: str, parameters: int) -> None:
    assert hardware.shape(name).parameters == parameters


# Model cards: Qwen3-30B-A3B 3.3 billion activated, Mixtral-8x7B 12.9, DeepSeek-V3 37; the first
# two are counted with the table of embeddings.
@pytest.mark.parametrize(
    ("name", "billions", "with_table"),
    [("qwen3-30b-a3b", 3.3, True), ("mixtral-8x7b", 12.9, True), ("deepseek-v3", 37.0, False)],
)
def test_published_active_parameters(name: str, billions: float, with_table: bool) -> None:
    shape = hardware.shape(name)
    active = shape.active_parameters + with_table * shape.idle
    assert active / 1e9 == pytest.approx(billions, rel=0.02)


def test_the_language_model_of_a_model_with_vision() -> None:
    text = VARIANTS["gemma3_text, defaults"]
    nested = {"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": text}
    shape = hardware.shape_from_config(nested)
    alone = hardware.shape_from_config(text)
    assert (shape.parameters, shape.layers) == (alone.parameters, alone.layers)
    assert shape.precision.dtype == "bfloat16"


_WINDOWED = ("sliding_attention", "chunked_attention")


@pytest.mark.parametrize("name", [name for name in VARIANTS if "t5" not in name])
def test_windows(name: str) -> None:
    config = VARIANTS[name]
    known = transformers_config(config)
    kinds = getattr(known, "layer_types", None)
    chunk = getattr(known, "attention_chunk_size", None)
    window = chunk or getattr(known, "sliding_window", None) or None
    shape = hardware.shape_from_config(config)
    expected = [
        window if kinds is None or kinds[index] in _WINDOWED else None
        for index in range(len(shape.layers))
    ]
    assert all(layer.attentions[0].chunked == (chunk is not None) for layer in shape.layers)
    assert [layer.attentions[0].window for layer in shape.layers] == expected


@pytest.mark.parametrize("name", [name for name in VARIANTS if "t5" not in name])
def test_the_cache_that_transformers_keeps(name: str) -> None:
    config, tokens = VARIANTS[name], 3  # fewer than any window
    with torch.no_grad():
        out = transformers_model(config, "cpu")(torch.arange(tokens)[None], use_cache=True)
    layers = out.past_key_values.layers
    stored = sum(
        part.numel()
        for layer in layers
        for part in (getattr(layer, name, None) for name in ("keys", "values", "indexer_keys"))
        if part is not None
    )
    shape = hardware.shape_from_config(config)
    # A config without a dtype is kept in float32.
    assert stored * 4 == kv_bytes(shape, tokens)
    kernel = config.get("linear_conv_kernel_dim", 0)
    states = sum(
        layer.recurrent_states[0].numel() + layer.conv_states[0][..., 1 - kernel :].numel()
        for layer in layers
        if hasattr(layer, "recurrent_states")
    )
    assert states == sum(part.state for layer in shape.layers for part in layer.attentions)


# Latent attention is counted as engines run it, absorbed, and transformers runs it expanded; its
# masks make windows cost as much as no window.  So neither is here.
@pytest.mark.parametrize(
    "name",
    [
        "llama",
        "llama, biases",
        "qwen2",
        "qwen3",
        "gpt2",
        "mixtral",
        "qwen3_moe",
        "qwen2_moe",
        "glm4_moe",
        "glm4_moe, biases and norms",
        "bailing_moe_v2",
    ],
)
def test_flops_as_torch_counts_them(name: str) -> None:
    config, context = {**VARIANTS[name], "use_sliding_window": False}, 23
    model = transformers_model(config, "cpu")
    # The other ways to run experts use a product that torch's counter does not know.
    model.set_experts_implementation("eager")
    with torch.no_grad():
        cache = model(torch.arange(context)[None], use_cache=True).past_key_values
        with FlopCounterMode(display=False) as counter:
            model(torch.tensor([[5]]), past_key_values=cache)
    # Norms and biases, which torch leaves out and we count as matrices.
    vectors = sum(part.numel() for part in model.parameters() if part.ndim == 1)
    shape = hardware.shape_from_config(config)
    assert shape.flops(1, context) == counter.get_total_flops() + 2 * vectors


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2"])
def test_flops_of_latent_attention(name: str) -> None:
    config = VARIANTS[name]
    model = transformers_model(config, "cpu")
    model.set_experts_implementation("eager")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.tensor([[5]]))
    vectors = sum(part.numel() for part in model.parameters() if part.ndim == 1)
    counted = counter.get_total_flops() + 2 * vectors
    # Absorbing the projections moves the products of a pair into the latent space and leaves those
    # with weights alone.
    rotary, latent = config["qk_rope_head_dim"], config["kv_lora_rank"]
    expanded = config["qk_nope_head_dim"] + rotary + config["v_head_dim"]
    heads = config["num_attention_heads"] * config["num_hidden_layers"]
    absorbed = 2 * heads * (2 * latent + rotary)
    shape = hardware.shape_from_config(config)
    if name == "deepseek_v32":
        assert shape.flops(1, 0) == counted + absorbed - 2 * heads * expanded
        return
    # A prompt is read as transformers does; a token with many in the cache is absorbed.
    assert shape.flops(1, 0) == counted
    assert shape.flops(1, 1000) - shape.flops(1, 999) == absorbed
    assert shape.flops(1000, 0) < 1000 * shape.flops(1, 500)


@pytest.mark.parametrize("name", ["t5", "t5, gated"])
def test_flops_of_a_decoder_behind_an_encoder(name: str) -> None:
    config, context, encoder_context = VARIANTS[name], 5, 17
    model = transformers_model(config, "cpu")
    with torch.no_grad():
        first = model(
            input_ids=torch.arange(encoder_context)[None],
            decoder_input_ids=torch.arange(context)[None],
            use_cache=True,
        )
        with FlopCounterMode(display=False) as counter:
            model(
                encoder_outputs=(first.encoder_last_hidden_state,),
                decoder_input_ids=torch.tensor([[5]]),
                past_key_values=first.past_key_values,
            )
    # Norms, and the table of relative positions.
    vectors = sum(part.numel() for part in model.decoder.parameters() if part.ndim == 1)
    vectors += 32 * config["num_heads"]
    flops = hardware.shape_from_config(config).flops(1, context, encoder_context)
    assert flops == counter.get_total_flops() + 2 * vectors


# "Insights into DeepSeek-V3" (arXiv 2505.09343), table 1: KV cache per token in bf16, 70.272 KB
# for DeepSeek-V3, 327.680 KB for Qwen-2.5 72B, 516.096 KB for Llama-3.1 405B.
def test_published_cache_per_token() -> None:
    qwen = {**SIZES, "num_hidden_layers": 80, "num_attention_heads": 64, "head_dim": 128}
    qwen["num_key_value_heads"] = 8
    llama = {**qwen, "num_hidden_layers": 126}
    assert kv_bytes(hardware.shape("deepseek-v3"), 1) == 70_272
    for config, published in ((qwen, 327_680), (llama, 516_096)):
        shape = hardware.shape_from_config({"model_type": "llama", "dtype": "bfloat16", **config})
        assert kv_bytes(shape, 1) == published


# --- attention ---------------------------------------------------------------------------------


@given(
    context=st.integers(0, 40), new_tokens=st.integers(1, 20), window=st.none() | st.integers(1, 30)
)
def test_pairs_count_a_mask(context: int, new_tokens: int, window: int | None) -> None:
    attention = hardware.Attention(kv_width=1, pair_width=1, window=window)
    query = context + np.arange(new_tokens)[:, None]
    key = np.arange(context + new_tokens)[None, :]
    seen = (key <= query) & (key > query - (window or key.size))
    assert attention.pairs(context, new_tokens) == seen.sum()
    assert attention.read(context) == seen[:, :context].any(axis=0).sum()


@given(context=st.integers(0, 40), new_tokens=st.integers(1, 20), chunk=st.integers(1, 30))
def test_pairs_count_a_mask_of_chunks(context: int, new_tokens: int, chunk: int) -> None:
    attention = hardware.Attention(kv_width=1, pair_width=1, window=chunk, chunked=True)
    query = context + np.arange(new_tokens)[:, None]
    key = np.arange(context + new_tokens)[None, :]
    seen = (key <= query) & (key // chunk == query // chunk)
    assert attention.pairs(context, new_tokens) == seen.sum()
    assert attention.read(context) == seen[0, :context].sum()


@given(context=st.integers(0, 40), new_tokens=st.integers(1, 20), selected=st.integers(1, 30))
def test_pairs_with_picked_tokens(context: int, new_tokens: int, selected: int) -> None:
    attention = hardware.Attention(kv_width=1, pair_width=1, selected=selected)
    visible = context + 1 + np.arange(new_tokens)
    assert attention.pairs(context, new_tokens) == np.minimum(visible, selected).sum()
    assert attention.read(context, new_tokens) == min(context, new_tokens * selected)
    assert attention.stored(context) == context


# One token of a gated delta network, written out (arXiv 2412.06464, equation 10): the state decays
# (one operation a number), is read with the key, added to and read with the query (two each).
def test_flops_and_bytes_of_a_constant_state() -> None:
    config = VARIANTS["qwen3_next"]
    shape = hardware.shape_from_config(config)
    heads, key, value = 6, 9, 11
    operations = 0
    for _ in range(heads):
        operations += key * value  # decay
        operations += 2 * key * value  # what the state holds for this key
        operations += 2 * key * value  # the correction is written
        operations += 2 * key * value  # the query reads
    pairs = 2 * config["num_attention_heads"] * config["head_dim"]
    linear = 3
    assert shape.flops(1, 0) == 2 * shape.active_parameters + linear * operations + 2 * pairs
    # Of four layers one stores tokens; the others' states are as large at any context.
    stored = linear * (heads * key * value + 2 * (2 * 2 * key + heads * value)) * 4
    assert kv_bytes(shape, 7) == 7 * 2 * config["num_key_value_heads"] * config["head_dim"] * 4
    weights = shape.parameters * 4
    assert hardware.memory_needed_bytes(shape, batch=3) == weights + 3 * stored
    near, far = (hardware.roofline(shape, ROOMY, 1, context=n) for n in (0, 50))
    assert far.flops - near.flops == 2 * 50 * pairs
    one, two = (hardware.roofline(shape, ROOMY, 1, batch=n) for n in (1, 2))
    experts = hardware.expected_experts(6, 2, 2) - 2
    touched = experts * 4 * 3 * config["hidden_size"] * config["moe_intermediate_size"] * 4
    assert two.bytes - one.bytes == pytest.approx(2 * stored + kv_bytes(shape, 1) + touched)


@given(new_tokens=st.integers(1, 9), logits=st.integers(0, 9))
def test_logits_of_some_tokens(new_tokens: int, logits: int) -> None:
    shape = SMALL[0]
    logits = min(logits, new_tokens)
    spared = shape.flops(new_tokens, 5) - shape.flops(new_tokens, 5, logits=logits)
    assert spared == 2 * shape.head * (new_tokens - logits)


def test_the_encoder_is_read_and_not_extended() -> None:
    gpu = hardware.accelerator("A100-80GB-SXM")
    shape = hardware.shape_from_config(VARIANTS["t5"])
    near, far = (hardware.roofline(shape, gpu, 2, 3, encoder_context=n) for n in (0, 50))
    width = 2 * T5["num_heads"] * T5["d_kv"] * T5["num_decoder_layers"]
    # Three sequences, float32; every one of two new tokens meets each of 50 tokens.
    assert far.bytes - near.bytes == 3 * 50 * width * 4
    assert far.flops - near.flops == 2 * 3 * 2 * 50 * width


# --- experts -----------------------------------------------------------------------------------


def test_expected_experts_by_drawing_them() -> None:
    experts, chosen, tokens, draws = 12, 3, 4, 20_000
    generator = np.random.default_rng(11)
    order = generator.random((draws, tokens, experts)).argsort(axis=-1)[..., :chosen]
    touched = np.zeros((draws, experts), dtype=bool)
    np.put_along_axis(touched, order.reshape(draws, -1), True, axis=1)
    counts = touched.sum(axis=1)
    error = counts.std() / np.sqrt(draws)
    # 4.4 standard errors: a false alarm in 1e5 such tests, were the seed not fixed.
    assert abs(counts.mean() - hardware.expected_experts(experts, chosen, tokens)) < 4.4 * error


@given(experts=st.integers(1, 300), share=st.floats(0, 1), tokens=st.integers(1, 5000))
def test_expected_experts_stay_in_their_bounds(experts: int, share: float, tokens: int) -> None:
    chosen = max(1, round(share * experts))
    touched = hardware.expected_experts(experts, chosen, tokens)
    assert chosen * (1 - 1e-9) <= touched <= experts * (1 + 1e-9)
    assert touched <= chosen * tokens * (1 + 1e-9)
    assert hardware.expected_experts(experts, chosen, 1) == pytest.approx(chosen)


def test_more_tokens_touch_more_experts_so_verifying_is_dearer() -> None:
    gpu = hardware.accelerator("H200")
    ratios = []
    for name in ("llama-3.1-8b", "qwen3-30b-a3b"):
        runs = (hardware.roofline(hardware.shape(name), gpu, n, context=512) for n in (1, 5))
        one, five = (run.seconds for run in runs)
        ratios.append(five / one)
    assert ratios[0] == pytest.approx(1.0, abs=1e-3)
    assert ratios[1] > 2.0
