"""Files of prompts at the door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibrate.models.prompts import PromptError, read_prompts


class Characters:
    """A tokenizer of one token a character, which refuses what tokenizers refuse."""

    def __call__(self, text: str) -> dict[str, list[int]]:
        text.encode("utf-8")  # half of a surrogate pair is a TypeError of the real ones
        return {"input_ids": [ord(each) for each in text if each != "\u200b"]}


def read(folder: Path, text: str, name: str = "prompts.jsonl") -> list[list[int]]:
    (folder / name).write_text(text, encoding="utf-8")
    return read_prompts(folder / name, Characters(), 8)


def test_half_of_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    assert read(tmp_path, '{"prompt": "a\\ud83db"}') == [[ord("a"), 0xFFFD, ord("b")]]
    assert read(tmp_path, '{"prompt": "\\ud83d\\ude00"}') == [[0x1F600]]
    assert read(tmp_path, '{"prompt": "\\ufeffa"}') == [[0xFEFF, ord("a")]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ('{"prompt": 3}', "line 1: expected"),
        ('{"prompt": ""}', "line 1: expected"),
        ('{"prompt": "a"}\n{"text": "a"}', "line 2: expected"),
        ("[" * 100_000, "line 1: expected"),
        (json.dumps({"prompt": "\u200b"}), "prompt 1 has no token"),
    ],
)
def test_prompts_that_cannot_be_read_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PromptError, match=message) as refused:
        read(tmp_path, text)
    assert "\n" not in str(refused.value)


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    for name in ("none.txt", "bytes.txt", "", "n" * 300):
        with pytest.raises(PromptError) as refused:
            read_prompts(tmp_path / name, Characters(), 8)
        assert "\n" not in str(refused.value)
