"""A config.json chooses sizes and never code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from calibrate.models.config_fields import check_no_code, known_fields
from calibrate.models.load import ModelError, load
from calibrate.models.shapes import random_model
from specsim.checks import SpecsimError, UnsupportedError
from tests.support.shapes import VARIANTS

# Names under which transformers has no class of its own.
_FOREIGN = ("kimi_k2", "bailing_moe", "bailing_moe_v2")
KNOWN = [name for name, config in VARIANTS.items() if config["model_type"] not in _FOREIGN]
CPU = torch.device("cpu")
HOSTILE = (None, "", "wide", [], {}, [1], {"a": 1}, -1, 0, 2.5, True, 4_000_000_000)


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_built_is_what_all_fields_would_build(name: str) -> None:
    from transformers import AutoConfig

    config = {key: value for key, value in VARIANTS[name].items() if key != "quantization_config"}
    whole = AutoConfig.for_model(**config).to_dict()
    chosen = AutoConfig.for_model(**known_fields(config)).to_dict()
    assert chosen == {key: whole[key] for key in chosen}


@pytest.mark.parametrize(
    "field",
    ["attn_implementation", "_attn_implementation", "experts_implementation", "auto_map"],
)
def test_fields_that_name_code_are_left_out(field: str) -> None:
    evil = {field: "somebody/kernel"}
    assert field not in known_fields({**VARIANTS["llama"], **evil})
    vision = {"model_type": "gemma3", "text_config": {**VARIANTS["gemma3_text"], **evil}}
    assert field not in known_fields(vision)["text_config"]


def test_models_that_transformers_does_not_have_are_refused() -> None:
    for model_type in ("kimi_k2", None, ["llama"], "x" * 10_000):
        with pytest.raises(UnsupportedError, match="is not in transformers") as refused:
            known_fields({"model_type": model_type})
        assert len(str(refused.value)) < 200


def test_a_size_is_never_lost() -> None:
    with pytest.raises(UnsupportedError, match="has no field num_attention_heads"):
        known_fields({"model_type": "mamba", "hidden_size": 48, "num_attention_heads": 4})


@pytest.fixture
def folder(tiny_family: dict[str, Path], tmp_path: Path) -> Path:
    """A checkpoint of one's own."""
    return Path(shutil.copytree(tiny_family["draft"], tmp_path / "model"))


def changed(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return folder


@pytest.mark.parametrize(
    "fields",
    [
        {"attn_implementation": "somebody/kernel"},
        {"_attn_implementation": "somebody/kernel:fast"},
        {"attn_implementation": "flash_attention_2"},
        {"attn_implementation": ["sdpa"]},
        {"text_config": {"inner": [{"attn_implementation": "somebody/kernel"}]}},
        {"attn_implementation": {"": "sdpa", "vision": "somebody/kernel"}},
    ],
)
def test_a_checkpoint_that_names_a_kernel_is_not_loaded(
    folder: Path, fields: dict[str, Any]
) -> None:
    with pytest.raises(ModelError, match="is code that would be fetched and run") as refused:
        load(str(changed(folder, **fields)), CPU, torch.float32)
    assert "\n" not in str(refused.value)


def test_a_checkpoint_that_names_what_transformers_has_is_loaded(folder: Path) -> None:
    check_no_code(changed(folder, attn_implementation={"": "eager"}), "model", ModelError)
    check_no_code(changed(folder, attn_implementation="sdpa"), "model", ModelError)
    assert load(str(folder), CPU, torch.float32).description.parameters > 0


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "\udc80"])
def test_a_checkpoint_whose_config_is_no_json_is_one_line(folder: Path, text: str) -> None:
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelError) as refused:
        load(str(folder), CPU, torch.float32)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "field", ["hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "hidden_act"]
)
def test_a_shape_that_cannot_be_built_is_one_line(field: str) -> None:
    config = {**VARIANTS["llama"], "max_position_embeddings": 64, "hidden_act": "silu"}
    for value in HOSTILE:
        try:
            random_model({**config, field: value}, CPU, torch.float32)
        except SpecsimError as refused:
            said = str(refused)
            assert "\n" not in said


def test_a_model_beyond_the_memory_is_refused_before_it_is_built() -> None:
    config = {**VARIANTS["llama"], "intermediate_size": 10**9, "num_hidden_layers": 100}
    with pytest.raises(SpecsimError, match=r"needs [\d,.]+ GiB, the memory of cpu has"):
        random_model(config, CPU, torch.float32)


def test_a_damaged_checkpoint_is_one_line(folder: Path) -> None:
    for name in ("tokenizer.json", "model.safetensors", "tokenizer_config.json"):
        whole = (folder / name).read_bytes()
        for content in (b"", b"{", b"[1]", whole[: len(whole) // 2]):
            (folder / name).write_bytes(content)
            try:
                load(str(folder), CPU, torch.float32)
            except ModelError as refused:
                said = str(refused)
                assert "\n" not in said
        (folder / name).write_bytes(whole)
