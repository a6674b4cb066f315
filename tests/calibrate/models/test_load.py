"""Models as they are loaded: what ends their texts, and whether all of their weights are there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file

from calibrate.models.load import Loaded, ModelError, load
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
