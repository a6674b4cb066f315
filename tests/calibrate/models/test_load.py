"""Models as they are loaded: what ends their texts, and whether all of their weights are there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file

from calibrate.models.load import Loaded, ModelError, digest, load, load_pair, resolve
from calibrate.models.pool import load_pool
from tests.support.models import build_model


@pytest.mark.parametrize(
    ("of_tokenizer", "of_model", "expected"),
    [
        (1, [1, 107], {1, 107}),  # as of Gemma's, whose turns end otherwise than its texts
        (5, 0, {0, 5}),
        (0, None, {0}),
        (None, None, set()),
    ],
)
def test_a_text_ends_where_engines_end_it(
    of_tokenizer: int | None, of_model: Any, expected: set[int]
) -> None:
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=of_model))
    tokenizer = SimpleNamespace(eos_token_id=of_tokenizer)
    assert Loaded(model, tokenizer, cast(Any, None)).end_of_text == expected


def test_a_model_without_a_generation_config_has_its_tokenizers() -> None:
    loaded = Loaded(SimpleNamespace(), SimpleNamespace(eos_token_id=3), cast(Any, None))
    assert loaded.end_of_text == {3}


def test_a_model_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    """Which would be drawn at random, so that hardly any draft was accepted."""
    folder = build_model(tmp_path, 2, 16, seed=3)
    file = folder / "model.safetensors"
    weights = load_file(file)
    name = next(each for each in weights if "mlp" in each)
    save_file({key: each for key, each in weights.items() if key != name}, file, {"format": "pt"})
    with pytest.raises(ModelError, match=f"lacks weights, .* at random: {name}$"):
        load(str(folder), torch.device("cpu"), torch.float32)


def test_weights_are_fetched_and_hashed_in_one_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda name, **patterns: asked.update(patterns) or name,
    )
    resolve("mistralai/Mistral-7B-Instruct-v0.3")
    assert "*.safetensors" in asked["allow_patterns"]
    # fnmatch lets an asterisk stand for a slash, too, as of gpt-oss' original/model.safetensors.
    assert {"*/*", "consolidated*.safetensors"} <= set(asked["ignore_patterns"])
    folder = build_model(tmp_path, 2, 16, seed=3)
    before = digest(folder)
    (folder / "consolidated.safetensors").write_bytes(b"the same weights")
    assert digest(folder) == before
    (folder / "model-00002.safetensors").write_bytes(b"more weights")
    assert digest(folder) != before


def test_a_model_whose_first_layers_are_no_model_has_no_early_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of Gemma 3n, one of whose tables has a part for every layer."""
    name = str(build_model(tmp_path, 3, 16, seed=3))
    pair = load_pair(name, name, torch.device("cpu"), torch.float32)
    assert "early" in load_pool(pair, {}).names

    def packed(*_: Any) -> Any:
        raise RuntimeError("size mismatch")

    monkeypatch.setattr("calibrate.models.pool.first_layers", packed)
    assert "early" not in load_pool(pair, {}).names
