"""What is refused and how it is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specsim import hardware
from specsim.checks import SpecsimError
from tests.support.refusals import refuses
from tests.support.shapes import SMALL, VARIANTS


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    llama = VARIANTS["llama"]
    unknown = {"quant_method": "hqq"}
    for call, known in (
        (lambda: hardware.accelerator("H1000"), list(hardware.ACCELERATORS)),
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
            lambda: hardware.roofline(SMALL[0], hardware.accelerator("TPU-v4")),
            list(hardware.accelerator("TPU-v4").peak_flops),
        ),
        (lambda: hardware.Precision("float8"), ["float32", "bfloat16", "float16"]),
    ):
        with pytest.raises(SpecsimError) as refusal:
            call()
        message = str(refusal.value)
        assert "\n" not in message
        assert all(name in message for name in known)


def made(model: str = "llama", **change: Any) -> hardware.Shape:
    return hardware.shape_from_config({**VARIANTS[model], **change})


def run(name: str = "llama-3.2-1b", card: str = "H200", **arguments: int) -> hardware.Roofline:
    return hardware.roofline(hardware.shape(name), hardware.accelerator(card), **arguments)


SHARE = "memory efficiency must be"
test_what_cannot_be_is_refused = refuses(
    (lambda: made(hidden_size=None), "the config of llama has no field hidden_size"),
    (lambda: made(hidden_size="wide"), "config field hidden_size must be a number, got 'wide'"),
    (
        lambda: made(num_attention_heads=0),
        "config field num_attention_heads must be a whole number",
    ),
    (lambda: made(torch_dtype="float64"), "dtype 'float64' is not known"),
    (lambda: made("qwen3", layer_types=["other"] * 4), "layer type 'other' is not known"),
    (lambda: run("qwen3-32b", "L4"), r"needs 61\.0 GiB, L4 has 22\.5 GiB"),
    (lambda: run(new_tokens=0), "new tokens must be a whole number >= 1, got 0"),
    (lambda: run(batch=0), "batch must be a whole number >= 1, got 0"),
    (lambda: run(context=-1), "context must be a whole number >= 0, got -1"),
    (lambda: run(encoder_context=5), "encoder_context must be 0 for llama"),
    (lambda: hardware.Efficiency(memory=0.0), SHARE),
    (lambda: hardware.Efficiency(memory=1.1), SHARE),
    (lambda: hardware.Efficiency(memory=float("nan")), SHARE),
    error=SpecsimError,
)


def test_gpt2_names_its_longest_context_otherwise() -> None:
    assert (
        VARIANTS["gpt2"]["n_positions"]
        == hardware.shape_from_config(VARIANTS["gpt2"]).longest_context
    )


def test_files(tmp_path: Path) -> None:
    config = hardware.read_config("qwen3-0.6b")
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for path in (tmp_path, tmp_path / "config.json"):
        assert hardware.read_config(str(path)) == config
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    for name, message in (
        ("list.json", "must hold a JSON object"),
        ("broken.json", "is not JSON"),
        ("none.json", "neither a known shape"),
    ):
        with pytest.raises(SpecsimError, match=message):
            hardware.read_config(str(tmp_path / name))
