"""In what numbers a model is deployed: formats by name and by quantization_config."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specsim import hardware
from specsim.checks import SpecsimError
from specsim.hardware.quantisation import DTYPES, KV_DTYPES, precision_for
from tests.support.refusals import refuses

DENSE, EXPERTS = hardware.shape("llama-3.1-8b"), hardware.shape("mixtral-8x7b")


# Bits of a weight: an fp8 scale per 16 (NVFP4) and 8 bits per 32 (MXFP4, OCP Microscaling 1.0,
# table 1); 16 + 4 bits per 128 for scale and zero point of int4.
@pytest.mark.parametrize(
    ("dtype", "bits", "multiplies_in"),
    [
        ("float32", 32, "float32"),
        ("BF16", 16, "bfloat16"),
        ("half", 16, "float16"),
        ("fp8", 8, "fp8"),
        ("int8", 8, "int8"),
        ("nvfp4", 4.5, "fp4"),
        ("mxfp4", 16, "bfloat16"),
        ("int4", 4.15625, "bfloat16"),
        ("awq", 4.15625, "bfloat16"),
        ("GPTQ", 4.15625, "bfloat16"),
        ("fp8-weight-only", 8, "bfloat16"),
        ("w8a16", 8, "bfloat16"),
        ("int8-weight-only", 8, "bfloat16"),
        ("nvfp4-weight-only", 4.5, "bfloat16"),
    ],
)
def test_formats(dtype: str, bits: float, multiplies_in: str) -> None:
    precision = precision_for(EXPERTS, dtype)
    assert 8 * precision.weight_bytes == bits
    assert 8 * precision.expert_bytes == (4.25 if dtype == "mxfp4" else bits)
    assert precision.multiplies_in == multiplies_in
    # The cache, the embeddings and the head stay in the 16-bit type of a quantised format.
    assert precision.dtype_bytes == precision.kv_bytes == (4 if dtype == "float32" else 2)


def test_every_name_is_tested_and_weights_alone_run_anywhere() -> None:
    plain = {"float32", "bfloat16", "float16"}
    assert plain < set(DTYPES)
    assert plain < set(KV_DTYPES)
    card = hardware.accelerator("A100-80GB-SXM")
    for name in set(DTYPES) - {"fp8", "nvfp4"}:
        shape = EXPERTS.at(precision_for(EXPERTS, name))
        if hardware.memory_needed_bytes(shape, 1, 1) < card.memory:
            assert hardware.roofline(shape, card).seconds > 0


def test_the_cache_has_a_type_of_its_own() -> None:
    for name, bits in (("fp8", 8), ("FP8_E5M2", 8), ("int8", 8), ("nvfp4", 4.5), ("float32", 32)):
        precision = precision_for(DENSE, "awq", name)
        assert (8 * precision.kv_bytes, precision.dtype) == (bits, "bfloat16")
    assert precision_for(DENSE, None, "auto") == DENSE.precision
    quantised = hardware.shape("deepseek-v3")
    assert precision_for(quantised).multiplies_in == "fp8"
    assert precision_for(quantised, "bfloat16") == hardware.Precision("bfloat16")
    # A cache that the checkpoint says is in fp8 stays so.
    kept = DENSE.at(hardware.Precision("bfloat16", kv_bits=8.0))
    assert precision_for(kept, "int4").kv_bytes == 1
    wide = DENSE.at(hardware.Precision("float32"))
    assert precision_for(wide, "awq").dtype == "bfloat16"
    narrow = DENSE.at(hardware.Precision("float16"))
    assert precision_for(narrow, "awq").multiplies_in == "float16"


def group(bits: int, kind: str, size: int | None, activations: int | None) -> dict[str, Any]:
    inputs = None if activations is None else {"num_bits": activations, "type": kind}
    weights = {"num_bits": bits, "type": kind, "group_size": size}
    return {"group_0": {"weights": weights, "input_activations": inputs, "targets": ["Linear"]}}


def config(method: str, model: str = "llama-3.1-8b", **fields: Any) -> dict[str, Any]:
    return {
        **hardware.read_config(model),
        "quantization_config": {"quant_method": method, **fields},
    }


@pytest.mark.parametrize("method", ["modelopt", "compressed-tensors"])
@pytest.mark.parametrize(
    ("groups", "bits", "multiplies_in"),
    [
        (group(4, "float", 16, 4), 4.5, "fp4"),
        (group(4, "float", 16, None), 4.5, "bfloat16"),
        (group(4, "float", 32, None), 4.25, "bfloat16"),
        (group(8, "float", None, 8), 8, "fp8"),
        (group(8, "int", None, 8), 8, "int8"),
        (group(4, "int", 128, None), 4.125, "bfloat16"),
    ],
)
def test_one_group(method: str, groups: Any, bits: float, multiplies_in: str) -> None:
    known = config(method, config_groups=groups, ignore=["lm_head", "mtp.layers.0.self_attn*"])
    precision = hardware.shape_from_config(known).precision
    assert (8 * precision.weight_bytes, precision.multiplies_in) == (bits, multiplies_in)
    assert precision.kv_bytes == precision.dtype_bytes == 2


def test_what_checkpoints_say_of_cache_and_attention() -> None:
    groups = group(4, "float", 16, 4)
    named = hardware.shape_from_config(config("modelopt", quant_algo="NVFP4"))
    cached = config("modelopt", config_groups=groups, kv_cache_scheme={"num_bits": 8})
    assert hardware.shape_from_config(cached).precision.kv_bytes == 1
    assert named.precision == precision_for(DENSE, "nvfp4")
    each = [f"model.layers.{index}.self_attn*" for index in range(32)]
    for ignored in (["re:.*self_attn.*"], ["lm_head", *each]):
        partly = config("modelopt", "mixtral-8x7b", config_groups=groups, ignore=ignored)
        precision = hardware.shape_from_config(partly).precision
        assert (8 * precision.weight_bytes, 8 * precision.expert_bytes) == (16, 4.5)


@pytest.mark.parametrize("name", ["ignore", "modules_to_not_convert", "ignored_layers"])
def test_attention_that_is_left_out_by_any_name(name: str) -> None:
    """AutoAWQ writes modules_to_not_convert."""
    words = {"bits": 4, "group_size": 128, name: ["self_attn", "mlp.gate", "lm_head"]}
    precision = hardware.shape_from_config(config("awq", "qwen3-235b-a22b", **words)).precision
    assert (8 * precision.weight_bytes, 8 * precision.expert_bytes) == (16, 4 + 20 / 128)
    # Experts alone are quantised anyway.
    kept = config("mxfp4", "gpt-oss-20b", modules_to_not_convert=["model.layers.*.self_attn"])
    assert hardware.shape_from_config(kept).precision.expert_bytes == 4.25 / 8


def test_modules_of_vision_are_none_of_the_decoder() -> None:
    each = [f"vision_tower.vision_model.encoder.layers.{at}.self_attn.k_proj" for at in range(27)]
    known = config("compressed-tensors", config_groups=group(8, "int", None, 8), ignore=each)
    assert hardware.shape_from_config(known).precision.weight_bytes == 1


def test_a_cache_may_be_quantised_alone_or_without_groups() -> None:
    scheme = {"num_bits": 8, "type": "float"}
    alone = config("compressed-tensors", config_groups={}, kv_cache_scheme=scheme)
    precision = hardware.shape_from_config(alone).precision
    assert (precision.weight_bytes, precision.kv_bytes) == (2, 1)
    assert not precision.kv_integers
    alone["quantization_config"]["kv_cache_scheme"] = {**scheme, "type": "int"}
    assert hardware.shape_from_config(alone).precision == precision_for(DENSE, None, "int8")
    for words in ({"kv_cache_scheme": scheme}, {"kv_cache_quant_algo": "FP8"}):
        known = config("modelopt", quant_algo="FP8", **words)
        precision = hardware.shape_from_config(known).precision
        assert (precision.weight_bytes, precision.kv_bytes) == (1, 1)


def test_attention_is_no_faster_for_quantised_weights() -> None:
    """DeepSeek-V3, weights in fp8, caches of 16 bits: 61 layers, 128 heads of 2 x 512 + 64 numbers,
    and its 37 billion weights a token, both as told apart by hand.
    """
    card = hardware.accelerator("H200")
    kept = hardware.shape("deepseek-v3")
    words = {"new_tokens": 4, "batch": 8, "context": 32768}
    wide = {"parallel": hardware.Parallelism(tensor=8)}
    found = hardware.roofline(kept, card, **words, **wide)
    pairs = 8 * (4 * 32768 + 10)
    attention = 2 * 61 * 128 * (2 * 512 + 64) * pairs / 8
    # The head is not quantised either: 7,168 numbers of each of 129,280 tokens, and a norm.
    head = 2 * 8 * 4 * (7168 * 129_280 + 7168) / 8
    fp8, half = card.peak("fp8"), card.peak("bfloat16")
    others = found.flops - attention - head
    assert found.compute_s == pytest.approx(others / fp8 + (attention + head) / half, rel=1e-3)
    cached = kept.at(replace(kept.precision, kv_bits=8.0))
    quick = hardware.roofline(cached, card, **words, **wide)
    assert quick.compute_s == pytest.approx((others + attention) / fp8 + head / half, rel=1e-3)


def test_what_a_quantisation_leaves_out_multiplies_as_slowly_as_it_is_kept() -> None:
    """DeepSeek-V3 in NVFP4 with its attention left out, on 8 cards: of each a token multiplies 2.55
    billion weights of routed experts and 2.81 of others, of which routers and projections to
    latents are on every card; attention adds to both.
    """
    card, words = hardware.accelerator("B200"), {"new_tokens": 512, "batch": 1, "logits": 1}
    kept = hardware.shape("deepseek-v3").precision
    shape = hardware.shape("deepseek-v3")
    wide = {"parallel": hardware.Parallelism(tensor=8)}
    all_of_it = shape.at(replace(kept, weight_bits=4.5, expert_bits=None, compute="fp4"))
    experts = shape.at(replace(kept, weight_bits=None, expert_bits=4.5, compute="fp4"))
    quick, slow = (hardware.roofline(each, card, **words, **wide) for each in (all_of_it, experts))
    assert quick.flops == slow.flops
    assert slow.compute_s / quick.compute_s == pytest.approx(2.48, rel=0.02)


def test_an_fp8_cache_has_attention_in_fp8_whatever_the_weights_are_in() -> None:
    card = hardware.accelerator("H100-SXM")
    words = {"new_tokens": 512, "batch": 1, "context": 32_768, "logits": 1}
    cached = DENSE.at(precision_for(DENSE, None, "fp8"))
    attention = DENSE.attention_flops(512, 32_768)
    kept, quick = (hardware.roofline(each, card, **words) for each in (DENSE, cached))
    faster = attention / card.peak("bfloat16") - attention / card.peak("fp8")
    assert kept.compute_s - quick.compute_s == pytest.approx(faster)
    # Integers take as few bytes, and are multiplied in 16 bits on every card.
    integers = hardware.roofline(DENSE.at(precision_for(DENSE, None, "int8")), card, **words)
    assert integers.compute_s == kept.compute_s
    assert integers.memory_s == quick.memory_s
    # A card without fp8 multiplies the cache in 16 bits, and not in those of the weights.
    old = hardware.accelerator("A100-80GB-SXM")
    both = DENSE.at(precision_for(DENSE, "int8", "int8"))
    found = hardware.roofline(both, old, **words)
    half = DENSE.attention_flops(512, 32_768) / old.peak("bfloat16")
    assert found.compute_s > half + (found.flops - attention) / old.peak("int8") * 0.99


NVFP4 = group(4, "float", 16, 4)
test_what_cannot_be_is_refused = refuses(
    (lambda: precision_for(DENSE, "fp6"), r"dtype 'fp6' is not known, did you mean .*fp8"),
    (lambda: precision_for(DENSE, "mxfp4"), "dtype mxfp4 is of routed experts, and llama has none"),
    (lambda: precision_for(DENSE, None, "fp9"), "kv_dtype 'fp9' is not known"),
    (
        lambda: hardware.roofline(
            DENSE.at(precision_for(DENSE, "nvfp4")), hardware.accelerator("H100-SXM")
        ),
        "H100-SXM has no peak rate for fp4",
    ),
    (
        lambda: hardware.shape_from_config(config("modelopt", quant_algo="W4A8")),
        "quant_algo 'W4A8' is not known",
    ),
    (
        lambda: hardware.shape_from_config(
            config("modelopt", config_groups=NVFP4, ignore=["*self_attn*"])
        ),
        "quantization_config leaves out the attention of every layer of a model without experts",
    ),
    (
        lambda: hardware.shape_from_config(
            config("modelopt", config_groups=NVFP4, ignore=["model.layers.3.self_attn*"])
        ),
        "quantization_config leaves out the attention of 1 layers",
    ),
    error=SpecsimError,
)
