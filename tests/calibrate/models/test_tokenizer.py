"""Tokenizers without their models: what cannot be had is said in one line, and nobody is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibrate.models.load import ModelError
from calibrate.models.tokenizer import token_ids


def test_a_wrong_member_of_the_family_is_told_the_right_ones() -> None:
    with pytest.raises(ModelError, match=r"embedded/targt is not in .* family \(embedded/target, "):
        token_ids("embedded/targt")


@pytest.mark.parametrize("content", [None, "{", "[]", '{"model": {}}'])
def test_a_folder_without_a_tokenizer_is_not_said_to_be_none(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text('{"model_type": "llama"}')
        (tmp_path / "tokenizer.json").write_text(content)
        (tmp_path / "tokenizer_config.json").write_text(
            '{"tokenizer_class": "PreTrainedTokenizerFast"}'
        )
    with pytest.raises(ModelError, match=r"^tokenizer \S+ cannot be loaded: [^\n]+$"):
        token_ids(str(tmp_path))


def test_code_beside_a_tokenizer_is_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "n")
    (tmp_path / "config.json").write_text('{"model_type": "own"}')
    own = {"auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(own))
    with pytest.raises(ModelError, match="cannot be loaded"):
        token_ids(str(tmp_path))
    assert asked == []
