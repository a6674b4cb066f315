"""Run times by roofline: by hand, published, measured, and what must hold of any."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim import hardware
from tests.support.shapes import ROOMY, SMALL, kv_bytes


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


@pytest.mark.parametrize("name", hardware.known_shapes())
def test_one_sequence_decodes_memory_bound_everywhere(name: str) -> None:
    shape = hardware.shape(name)
    for gpu in hardware.ACCELERATORS.values():
        if name == "deepseek-v3":
            # Its weights are larger than any card; a roomy one with the same rates is enough here.
            gpu = dataclasses.replace(gpu, memory=1e15)
        for number_type in gpu.peak_flops:
            dtype = number_type if number_type not in ("fp8", "int8", "fp4") else "bfloat16"
            at = shape.at(hardware.Precision(dtype, compute=number_type))
            if hardware.memory_needed_bytes(at, context=4096 + 1) <= gpu.memory:
                run = hardware.roofline(at, gpu, context=4096)
                assert run.memory_s >= run.compute_s, gpu.name


# https://jax-ml.github.io/scaling-book/roofline: on TPU v5e a matrix product in bf16 turns
# compute-bound at 197e12 / 8.19e11 = 240 tokens.
def test_published_bend_of_tpu_v5e() -> None:
    tpu, shape = hardware.accelerator("TPU-v5e"), hardware.shape("llama-3.2-1b")
    before, behind = (hardware.roofline(shape, tpu, batch=batch) for batch in (235, 250))
    assert before.memory_s > before.compute_s
    assert behind.memory_s < behind.compute_s


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
    gpu, config = hardware.accelerator("L4"), hardware.read_config("llama-3.1-8b")
    method = {"quant_method": "awq", "bits": 4, "group_size": 128}
    plain = hardware.shape_from_config(config)
    quantised = hardware.shape_from_config({**config, "quantization_config": method})
    before, after = (hardware.roofline(shape, gpu) for shape in (plain, quantised))
    assert before.flops == after.flops
    head = plain.head * 2
    # 4 bits, and 16 + 4 of scale and zero point per 128 weights; the head stays in bf16.
    written = kv_bytes(plain, 1)
    assert after.bytes - head - written == pytest.approx(
        (before.bytes - head - written) * (4 + 20 / 128) / 16
    )


NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True}
INT8 = {"num_bits": 8, "type": "int"}
GROUPS = {"group_0": {"weights": INT8, "input_activations": INT8}}


@pytest.mark.parametrize(
    ("method", "bits", "expert_bits", "compute"),
    [
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8.0, None, "bfloat16"),
        ({"quant_method": "fp8"}, 8.0, None, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8.0, None, "int8"),
        (NF4, 4.5, None, "bfloat16"),
        # QLoRA, section 3: double quantisation brings 0.5 bits down to 0.127.
        ({**NF4, "bnb_4bit_use_double_quant": True}, 4.127, None, "bfloat16"),
        ({"quant_method": "mxfp4"}, None, 4.25, "bfloat16"),
        ({"quant_method": "compressed-tensors", "config_groups": GROUPS}, 8.0, None, "int8"),
    ],
)
def test_quantisation_methods(
    method: dict[str, Any], bits: float | None, expert_bits: float | None, compute: str
) -> None:
    config = {**hardware.read_config("mixtral-8x7b"), "quantization_config": method}
    precision = hardware.shape_from_config(config).precision
    assert precision.weight_bits == pytest.approx(bits, abs=5e-4)
    assert precision.expert_bits == expert_bits
    assert precision.multiplies_in == compute


def test_tokens_that_route_alike_touch_fewer_experts() -> None:
    moe, gpu = hardware.shape("qwen3-30b-a3b"), hardware.accelerator("H200")

    def experts(exponent: float, tokens: int) -> float:
        return hardware.roofline(moe, gpu, tokens, 8, routing_exponent=exponent).experts

    assert experts(0.0, 9) == experts(1.0, 1) == pytest.approx(128 * (1 - (1 - 8 / 128) ** 8))
    assert experts(0.5, 9) == pytest.approx(128 * (1 - (1 - 8 / 128) ** 24))
    assert experts(0.5, 9) < experts(1.0, 9)
