"""The roofline against transformers' own models, published numbers, and what must hold of any.

transformers builds each model (on the meta device where it is large) and says how many parameters
it has, what its cache stores and how many FLOPs its runs take; specsim.hardware must find the same
from the config alone.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim import hardware
from specsim.acceptance import ConstantAcceptance
from specsim.checks import SpecsimError
from specsim.predict.renewal import speedup
from specsim.schemes.speculative import SpeculativeDecoding

CONFIGS = Path(hardware.__file__).parents[1] / "configs"

# Small, but no two sizes alike, so that no mistake cancels.
_SIZES = {
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
_T5 = {
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
    "llama": {"model_type": "llama", **_SIZES},
    "llama, tied": {"model_type": "llama", **_SIZES, "tie_word_embeddings": True},
    "llama, biases": {
        "model_type": "llama",
        **_SIZES,
        "attention_bias": True,
        "mlp_bias": True,
        "head_dim": 10,
    },
    "mistral": {"model_type": "mistral", **_SIZES, "sliding_window": 7},
    "mistral, window not named": {"model_type": "mistral", **_SIZES},
    "mistral, no window": {"model_type": "mistral", **_SIZES, "sliding_window": None},
    "phi3": {"model_type": "phi3", **_SIZES, "pad_token_id": 0, "sliding_window": 9},
    "qwen2": {"model_type": "qwen2", **_SIZES},
    "qwen2, window": {"model_type": "qwen2", **_SIZES, **_SLIDING},
    "qwen3": {"model_type": "qwen3", **_SIZES},
    "qwen3, layer types": {
        "model_type": "qwen3",
        **_SIZES,
        **_SLIDING,
        "head_dim": 10,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gemma2": {"model_type": "gemma2", **_SIZES, "head_dim": 10},
    "gemma3_text": {"model_type": "gemma3_text", **_SIZES, "sliding_window": 5},
    "gemma3_text, pattern": {"model_type": "gemma3_text", **_SIZES, "sliding_window_pattern": 2},
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
    "mixtral": {
        "model_type": "mixtral",
        **_SIZES,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
    },
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        **_SIZES,
        **_EXPERTS,
        **_SLIDING,
        "num_experts": 6,
        "shared_expert_intermediate_size": 28,
    },
    "qwen3_moe": {"model_type": "qwen3_moe", **_SIZES, **_EXPERTS, "num_experts": 6},
    "qwen3_moe, dense layers": {
        "model_type": "qwen3_moe",
        **_SIZES,
        **_EXPERTS,
        "num_experts": 6,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
        "use_sliding_window": True,
        "sliding_window": 7,
    },
    "gpt_oss": {
        "model_type": "gpt_oss",
        **_SIZES,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "head_dim": 8,
    },
    "deepseek_v2": {
        "model_type": "deepseek_v2",
        **_SIZES,
        **_LATENT,
        "q_lora_rank": None,
        "n_shared_experts": 2,
    },
    "deepseek_v3": {
        "model_type": "deepseek_v3",
        **_SIZES,
        **_LATENT,
        "q_lora_rank": 18,
        "n_shared_experts": 1,
        "attention_bias": True,
    },
    "t5": {"model_type": "t5", **_T5},
    "t5, gated": {"model_type": "t5", **_T5, "feed_forward_proj": "gated-gelu"},
}


def transformers_config(config: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    fields = {key: value for key, value in config.items() if key != "quantization_config"}
    return AutoConfig.for_model(**fields)


def transformers_model(config: dict[str, Any], device: str = "meta") -> Any:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    kind = AutoModelForSeq2SeqLM if config["model_type"] == "t5" else AutoModelForCausalLM
    torch.manual_seed(0)
    with torch.device(device):
        return kind.from_config(transformers_config(config), attn_implementation="eager").eval()


def shipped_config(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    return config


# --- counts, against transformers --------------------------------------------------------------


@pytest.mark.parametrize("name", hardware.known_shapes())
def test_parameters_of_shipped_shapes(name: str) -> None:
    model = transformers_model(shipped_config(name))
    assert hardware.shape(name).parameters == model.num_parameters()


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_of_variants(name: str) -> None:
    config = VARIANTS[name]
    assert hardware.shape_from_config(config).parameters == (
        transformers_model(config).num_parameters()
    )


def test_every_model_type_is_held_to_transformers() -> None:
    tested = {config["model_type"] for config in VARIANTS.values()} | {"gemma3"}
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


@pytest.mark.parametrize("name", [name for name in VARIANTS if "t5" not in name])
def test_windows(name: str) -> None:
    config = VARIANTS[name]
    known = transformers_config(config)
    kinds = getattr(known, "layer_types", None)
    window = getattr(known, "sliding_window", None) or None
    shape = hardware.shape_from_config(config)
    expected = [
        window if kinds is None or kinds[index] == "sliding_attention" else None
        for index in range(len(shape.layers))
    ]
    assert [layer.attentions[0].window for layer in shape.layers] == expected


@pytest.mark.parametrize("name", [name for name in VARIANTS if "t5" not in name])
def test_the_cache_that_transformers_keeps(name: str) -> None:
    import torch

    config, tokens = VARIANTS[name], 3  # fewer than any window
    with torch.no_grad():
        out = transformers_model(config, "cpu")(torch.arange(tokens)[None], use_cache=True)
    stored = sum(
        part.numel() for layer in out.past_key_values.layers for part in (layer.keys, layer.values)
    )
    shape = hardware.shape_from_config(config)
    # A config without a dtype is kept in float32.
    assert stored * 4 == shape.kv_bytes_per_token * tokens


# Latent attention is counted as engines run it, absorbed, and transformers runs it expanded; its
# masks make windows cost as much as no window.  So neither is here.
@pytest.mark.parametrize(
    "name",
    ["llama", "llama, biases", "qwen2", "qwen3", "gpt2", "mixtral", "qwen3_moe", "qwen2_moe"],
)
def test_flops_as_torch_counts_them(name: str) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

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
    assert shape.flops_per_token(context) == counter.get_total_flops() + 2 * vectors


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3"])
def test_flops_of_latent_attention(name: str) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    config = VARIANTS[name]
    model = transformers_model(config, "cpu")
    model.set_experts_implementation("eager")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.tensor([[5]]))
    vectors = sum(part.numel() for part in model.parameters() if part.ndim == 1)
    # Absorbing the projections moves the products of a pair into the latent space and leaves those
    # with weights alone.
    rotary, latent = config["qk_rope_head_dim"], config["kv_lora_rank"]
    expanded = config["qk_nope_head_dim"] + rotary + config["v_head_dim"]
    heads = config["num_attention_heads"] * config["num_hidden_layers"]
    absorbed = counter.get_total_flops() + 2 * heads * (2 * latent + rotary - expanded)
    assert hardware.shape_from_config(config).flops_per_token() == absorbed + 2 * vectors


@pytest.mark.parametrize("name", ["t5", "t5, gated"])
def test_flops_of_a_decoder_behind_an_encoder(name: str) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

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
    flops = hardware.shape_from_config(config).flops_per_token(context, encoder_context)
    assert flops == counter.get_total_flops() + 2 * vectors


# "Insights into DeepSeek-V3" (arXiv 2505.09343), table 1: KV cache per token in bf16, 70.272 KB
# for DeepSeek-V3, 327.680 KB for Qwen-2.5 72B, 516.096 KB for Llama-3.1 405B.
def test_published_cache_per_token() -> None:
    qwen = {**_SIZES, "num_hidden_layers": 80, "num_key_value_heads": 8, "head_dim": 128}
    llama = {**qwen, "num_hidden_layers": 126}
    assert hardware.shape("deepseek-v3").kv_bytes_per_token == 70_272
    for config, published in ((qwen, 327_680), (llama, 516_096)):
        shape = hardware.shape_from_config({"model_type": "llama", "dtype": "bfloat16", **config})
        assert shape.kv_bytes_per_token == published


# --- attention ---------------------------------------------------------------------------------


@given(
    context=st.integers(0, 40),
    new_tokens=st.integers(1, 20),
    window=st.none() | st.integers(1, 30),
)
def test_pairs_count_a_mask(context: int, new_tokens: int, window: int | None) -> None:
    attention = hardware.Attention(kv_width=1, pair_width=1, window=window)
    query = context + np.arange(new_tokens)[:, None]
    key = np.arange(context + new_tokens)[None, :]
    seen = (key <= query) & (key > query - (window or key.size))
    assert attention.pairs(context, new_tokens) == seen.sum()
    assert attention.read(context) == seen[:, :context].any(axis=0).sum()


def test_the_encoder_is_read_and_not_extended() -> None:
    gpu = hardware.accelerator("A100-80GB-SXM")
    shape = hardware.shape_from_config(VARIANTS["t5"])
    near, far = (hardware.roofline(shape, gpu, 2, 3, encoder_context=n) for n in (0, 50))
    width = 2 * _T5["num_heads"] * _T5["d_kv"] * _T5["num_decoder_layers"]
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


@given(
    experts=st.integers(1, 300),
    share=st.floats(0, 1),
    tokens=st.integers(1, 5000),
)
def test_expected_experts_stay_in_their_bounds(experts: int, share: float, tokens: int) -> None:
    chosen = max(1, round(share * experts))
    touched = hardware.expected_experts(experts, chosen, tokens)
    assert chosen * (1 - 1e-9) <= touched <= experts * (1 + 1e-9)
    assert touched <= chosen * tokens * (1 + 1e-9)
    assert hardware.expected_experts(experts, chosen, 1) == pytest.approx(chosen)


def test_more_tokens_touch_more_experts_so_verifying_is_dearer() -> None:
    gpu = hardware.accelerator("H200")
    dense, mixture = (
        hardware.roofline_cost(hardware.shape(name), {}, gpu, longest=5, context=512)
        for name in ("llama-3.1-8b", "qwen3-30b-a3b")
    )
    assert float(dense.verify(5)) == pytest.approx(1.0, abs=1e-3)
    assert float(mixture.verify(5)) > 2.0


# --- run times ---------------------------------------------------------------------------------

ROOMY = dataclasses.replace(hardware.accelerator("H100-SXM"), memory=1e15)
SMALL = [hardware.shape_from_config(config) for config in VARIANTS.values()]


@given(
    shape=st.sampled_from(SMALL),
    new_tokens=st.integers(1, 400),
    batch=st.integers(1, 400),
    context=st.integers(0, 20_000),
    more=st.integers(1, 1000),
)
def test_a_run_never_gets_cheaper(
    shape: hardware.Shape, new_tokens: int, batch: int, context: int, more: int
) -> None:
    peak = dataclasses.replace(shape.precision, compute="bfloat16")
    sizes = {"new_tokens": new_tokens, "batch": batch, "context": context}
    at = hardware.roofline(shape.at(peak), ROOMY, **sizes)
    for name in sizes:
        longer = hardware.roofline(shape.at(peak), ROOMY, **{**sizes, name: sizes[name] + more})
        assert longer.seconds >= at.seconds
        assert longer.flops >= at.flops
        assert longer.bytes >= at.bytes


@pytest.mark.parametrize("card", hardware.known_accelerators())
@pytest.mark.parametrize("name", hardware.known_shapes())
def test_one_sequence_decodes_memory_bound_everywhere(card: str, name: str) -> None:
    gpu, shape = hardware.accelerator(card), hardware.shape(name)
    if name == "deepseek-v3":
        # Its weights are larger than any card; a roomy one with the same rates is enough here.
        gpu = dataclasses.replace(gpu, memory=1e15)
    for number_type in gpu.peak_flops:
        dtype = number_type if number_type not in ("fp8", "int8") else "bfloat16"
        at = shape.at(hardware.Precision(dtype, compute=number_type))
        if hardware.memory_needed_bytes(at, context=4096 + 1) <= gpu.memory:
            assert hardware.roofline(at, gpu, context=4096).memory_bound


# https://jax-ml.github.io/scaling-book/roofline: on TPU v5e a matrix product in bf16 turns
# compute-bound at 197e12 / 8.19e11 = 240 tokens.
def test_published_bend_of_tpu_v5e() -> None:
    tpu, shape = hardware.accelerator("TPU-v5e"), hardware.shape("llama-3.2-1b")
    assert hardware.roofline(shape, tpu, batch=235).memory_bound
    assert not hardware.roofline(shape, tpu, batch=250).memory_bound


# Slow twin of the formula for a model that can be written down: 2 P FLOPs and 2 P bytes.
def test_a_run_by_hand() -> None:
    shape, gpu = hardware.shape("llama-3.1-8b"), hardware.accelerator("A100-80GB-SXM")
    weights = 8_030_261_248 - 128_256 * 4096
    new_tokens, batch, context = 4, 3, 1000
    pairs = batch * sum(context + i for i in range(1, new_tokens + 1))
    flops = 2 * weights * batch * new_tokens + pairs * 4 * 32 * 128 * 32
    traffic = 2 * weights + batch * (context + new_tokens) * 131_072
    run = hardware.roofline(shape, gpu, new_tokens, batch, context)
    assert (run.flops, run.bytes) == (flops, traffic)
    assert run.seconds == pytest.approx(traffic / 2.039e12)
    slow = hardware.Efficiency(compute=0.5, memory=0.8, layer_s=1e-5)
    assert hardware.roofline(shape, gpu, new_tokens, batch, context, efficiency=slow).seconds == (
        pytest.approx(traffic / 2.039e12 / 0.8 + 32e-5)
    )


# Tokens per second of plain decoding in public logs.  llama.cpp issue 3649: V100-PCIe-16GB,
# OpenLLaMA 7B v2 in f16, 52.5.  The bound must not be slower than a measured run.
def test_the_bound_holds_on_a_measured_run() -> None:
    llama_7b = {
        "model_type": "llama",
        "dtype": "float16",
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    }
    shape = hardware.shape_from_config(llama_7b)
    assert shape.parameters == 6_738_415_616
    bound = hardware.roofline(shape, hardware.accelerator("V100-PCIe-16GB"), context=64).seconds
    # 78 % of the bandwidth on the data sheet.
    assert bound * 52.5 == pytest.approx(0.78, abs=0.01)


def test_quantised_weights_are_read_faster_and_multiplied_as_before() -> None:
    gpu, config = hardware.accelerator("L4"), shipped_config("llama-3.1-8b")
    method = {"quant_method": "awq", "bits": 4, "group_size": 128}
    plain = hardware.shape_from_config(config)
    quantised = hardware.shape_from_config({**config, "quantization_config": method})
    before, after = (hardware.roofline(shape, gpu) for shape in (plain, quantised))
    assert before.flops == after.flops
    head = plain.head * 2
    # 4 bits, and 16 + 4 of scale and zero point per 128 weights; the head stays in bf16.
    written = plain.kv_bytes_per_token
    assert after.bytes - head - written == pytest.approx(
        (before.bytes - head - written) * (4 + 20 / 128) / 16
    )


@pytest.mark.parametrize(
    ("method", "bits", "expert_bits", "compute"),
    [
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8.0, None, "bfloat16"),
        ({"quant_method": "fp8"}, 8.0, None, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8.0, None, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5, None, "bfloat16"),
        # QLoRA, section 3: double quantisation brings 0.5 bits down to 0.127.
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "bnb_4bit_use_double_quant": True,
            },
            4.127,
            None,
            "bfloat16",
        ),
        ({"quant_method": "mxfp4"}, None, 4.25, "bfloat16"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "int"},
                        "input_activations": {"num_bits": 8, "type": "int"},
                    }
                },
            },
            8.0,
            None,
            "int8",
        ),
    ],
)
def test_quantisation_methods(
    method: dict[str, Any], bits: float | None, expert_bits: float | None, compute: str
) -> None:
    config = {**shipped_config("mixtral-8x7b"), "quantization_config": method}
    precision = hardware.shape_from_config(config).precision
    assert precision.weight_bits == pytest.approx(bits, abs=5e-4)
    assert precision.expert_bits == expert_bits
    assert precision.multiplies_in == compute


def test_a_roofline_cost_feeds_the_predictor() -> None:
    target, draft = hardware.shape("llama-3.1-8b"), hardware.shape("llama-3.2-1b")
    gpu = hardware.accelerator("H100-SXM")
    cost = {
        batch: hardware.roofline_cost(
            target, {"draft": draft}, gpu, longest=5, batch=batch, context=256
        )
        for batch in (1, 512)
    }
    assert cost[1].drafts["draft"] == pytest.approx(
        draft.active_parameters / target.active_parameters, rel=0.01
    )
    law = SpeculativeDecoding(ConstantAcceptance(0.8), gamma=4).law()
    # Alone it pays; with the arithmetic units busy it does not.
    assert speedup(law, cost[1]) > 1.8
    assert speedup(law, cost[512]) < 1.0


# --- refusals ----------------------------------------------------------------------------------


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    llama = VARIANTS["llama"]
    unknown = {"quant_method": "hqq"}
    for call, known in (
        (lambda: hardware.accelerator("H1000"), hardware.known_accelerators()),
        (lambda: hardware.shape("llama-9"), hardware.known_shapes()),
        (
            lambda: hardware.shape_from_config({**llama, "model_type": "mamba"}),
            hardware.known_model_types(),
        ),
        (
            lambda: hardware.shape_from_config({**llama, "quantization_config": unknown}),
            hardware.known_quantisations(),
        ),
        (
            lambda: hardware.roofline(SMALL[0], hardware.accelerator("TPU-v4")).seconds,
            list(hardware.accelerator("TPU-v4").peak_flops),
        ),
        (lambda: hardware.Precision("float8"), ["float32", "bfloat16", "float16"]),
    ):
        with pytest.raises(SpecsimError) as refusal:
            call()
        message = str(refusal.value)
        assert "\n" not in message
        assert all(name in message for name in known)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "the config of llama has no field hidden_size"),
        ({"hidden_size": "wide"}, "config field hidden_size must be a number, got 'wide'"),
        ({"num_attention_heads": 0}, "config field num_attention_heads must be a whole number"),
        ({"torch_dtype": "float64"}, "dtype 'float64' is not known"),
    ],
)
def test_broken_configs_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecsimError, match=message):
        hardware.shape_from_config({**VARIANTS["llama"], **change})


def test_layers_of_unknown_kinds_are_refused() -> None:
    config = {**VARIANTS["qwen3"], "layer_types": ["linear_attention"] * 4}
    with pytest.raises(SpecsimError, match="layer type 'linear_attention' is not known"):
        hardware.shape_from_config(config)


def test_a_model_that_does_not_fit_is_refused() -> None:
    shape = hardware.shape("qwen3-32b")
    with pytest.raises(SpecsimError, match=r"needs 65\.5 GB, L4 has 24 GB"):
        hardware.roofline(shape, hardware.accelerator("L4"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"new_tokens": 0}, "new tokens must be a whole number >= 1, got 0"),
        ({"batch": 0}, "batch must be a whole number >= 1, got 0"),
        ({"context": -1}, "context must be a whole number >= 0, got -1"),
        ({"encoder_context": 5}, "encoder_context must be 0 for llama"),
    ],
)
def test_arguments_of_a_run(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(SpecsimError, match=message):
        hardware.roofline(hardware.shape("llama-3.2-1b"), hardware.accelerator("H200"), **arguments)


def test_efficiency_is_a_share() -> None:
    for share in (0.0, 1.1, float("nan")):
        with pytest.raises(SpecsimError, match="memory efficiency must be"):
            hardware.Efficiency(memory=share)


def test_files(tmp_path: Path) -> None:
    text = (CONFIGS / "qwen3-0.6b.json").read_text(encoding="utf-8")
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    shape = hardware.shape("qwen3-0.6b")
    assert hardware.load_shape(tmp_path) == shape == hardware.load_shape(tmp_path / "config.json")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    for name, message in (
        ("list.json", "must hold a JSON object"),
        ("broken.json", "is not JSON"),
        ("none.json", "cannot be read"),
    ):
        with pytest.raises(SpecsimError, match=message):
            hardware.load_shape(tmp_path / name)


# --- the table ---------------------------------------------------------------------------------


# Vendors' data sheets, dense TFLOP/s and GB/s, written down apart from the table.
@pytest.mark.parametrize(
    ("name", "number_type", "tera", "giga"),
    [
        ("P100-PCIe-16GB", "float16", 18.7, 732),
        ("P100-PCIe-16GB", "float32", 9.3, 732),
        ("A100-80GB-SXM", "bfloat16", 312, 2039),
        ("H100-SXM", "bfloat16", 989.4, 3350),
        ("H200", "bfloat16", 989.4, 4800),
        ("L40S", "bfloat16", 362, 864),
        ("MI300X", "bfloat16", 1307.4, 5300),
        ("TPU-v4", "bfloat16", 275, 1200),
        ("TPU-v5e", "bfloat16", 197, 819),
    ],
)
def test_data_sheets(name: str, number_type: str, tera: float, giga: float) -> None:
    row = hardware.accelerator(name)
    assert row.peak(number_type) == pytest.approx(tera * 1e12)
    assert row.bandwidth == pytest.approx(giga * 1e9)


def test_rows_are_complete() -> None:
    for name, row in hardware.ACCELERATORS.items():
        assert name == row.name
        assert row.source.startswith("https://")
        assert set(row.peak_flops) <= set(hardware.NUMBER_BYTES)
        # Bytes and FLOPs per second are of the same kind on every card: a slip by 1000 shows.
        assert 8e9 < row.memory < 3e11
        # The P100 alone has no tensor units: 18.7 TFLOP/s for 732 GB/s.
        least = 25 if name == "P100-PCIe-16GB" else 50
        assert least < max(row.peak_flops.values()) / row.bandwidth < 1000
