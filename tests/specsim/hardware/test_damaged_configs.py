"""Configurations in which one field is what it cannot be: a shape, or one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specsim import hardware
from specsim.checks import SpecsimError
from tests.support.refusals import refuses
from tests.support.shapes import VARIANTS

_DEEP: Any = 0
for _ in range(200):
    _DEEP = [_DEEP]
HOSTILE = (None, "", "wide", [], {}, [1], {"a": 1}, -1, 0, 2.5, 1e300, 4_000_000_000, True, _DEEP)
METHODS = ("awq", "gptq", "fp8", "bitsandbytes", "compressed-tensors", "modelopt", "mxfp4")
WEIGHTS = {"num_bits": 4, "type": "float", "group_size": 16}
QUANTISED = {
    "bits": 4,
    "group_size": 128,
    "weight_block_size": [128, 128],
    "config_groups": {"all": {"weights": WEIGHTS, "input_activations": WEIGHTS}},
    "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    "quant_algo": "FP8",
    "ignore": ["lm_head"],
}


def answer(config: dict[str, Any]) -> bool:
    """Whether a config has a shape whose counts are numbers; refused in one line it has none."""
    try:
        shape = hardware.shape_from_config(config)
    except SpecsimError as refused:
        said = str(refused)
        assert "\n" not in said
        assert len(said) < 2000
        return False
    assert shape.parameters > 0
    assert shape.flops(2, 10, 10 if shape.has_encoder else 0) > 0
    assert all(part.kv_width >= 0 for layer in shape.layers for part in layer.attentions)
    return True


@pytest.mark.parametrize("name", list(VARIANTS))
def test_any_field_may_be_anything(name: str) -> None:
    config = VARIANTS[name]
    assert answer(config)
    extra = {"text_config": {}, "quantization_config": None, "architectures": []}
    for field in {**extra, **config, "num_nextn_predict_layers": 0, "layer_types": None}:
        for value in HOSTILE:
            answer({**config, field: value})


@pytest.mark.parametrize("method", METHODS)
def test_any_field_of_a_quantisation_may_be_anything(method: str) -> None:
    whole = {"quant_method": method, **QUANTISED}
    assert answer({**VARIANTS["llama"], "quantization_config": whole})
    for field in whole:
        for value in HOSTILE:
            answer({**VARIANTS["llama"], "quantization_config": {**whole, field: value}})
    for field in WEIGHTS:
        for value in HOSTILE:
            group = {"weights": {**WEIGHTS, field: value}, "input_activations": None}
            changed = {**whole, "config_groups": {"all": group}}
            answer({**VARIANTS["llama"], "quantization_config": changed})


def made(model: str = "llama", **change: Any) -> hardware.Shape:
    return hardware.shape_from_config({**VARIANTS[model], **change})


test_what_contradicts_itself_is_refused = refuses(
    (lambda: made(num_attention_heads=5), "hidden_size must be a multiple of num_attention_heads"),
    (lambda: made(num_key_value_heads=4), "num_key_value_heads must divide num_attention_heads"),
    (lambda: made(num_hidden_layers=4_000_000_000), r"num_hidden_layers must .* \[1, 4096\]"),
    (lambda: made(max_position_embeddings="long"), "max_position_embeddings must be a number"),
    (lambda: made(text_config=""), "text_config must be an object, got ''"),
    (lambda: made(quantization_config="awq"), "quantization_config must be an object"),
    (
        lambda: made("qwen3, layer types", layer_types=["full_attention"]),
        "layer_types must have one entry for each of 4 layers, got 1",
    ),
    error=SpecsimError,
)


def test_a_group_of_null_is_the_usual_one() -> None:
    quantised = {"quant_method": "awq", "bits": 4, "group_size": None}
    usual = {**quantised, "group_size": 128}
    assert made(quantization_config=quantised) == made(quantization_config=usual)


@pytest.mark.parametrize("text", ["[" * 200_000, "", "nul", "[1]", '"x"', "\ufeff{}", '{"a": 1'])
def test_files_of_no_config_are_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(SpecsimError) as refused:
        hardware.read_config(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_a_config_larger_than_any_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "x": "y" * 5_000_000}), encoding="utf-8")
    with pytest.raises(SpecsimError, match="at most 4 MiB are read"):
        hardware.read_config(str(path))


def test_names_that_no_file_can_have_are_one_line() -> None:
    for name in ("n" * 5000, "a\0b", "../" * 2000):
        with pytest.raises(SpecsimError) as refused:
            hardware.read_config(name)
        assert "\n" not in str(refused.value)
