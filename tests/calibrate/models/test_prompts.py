"""Files of prompts at the door."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate.models.embedded import FAMILY
from calibrate.models.prompts import PromptError, held_out_prompts, read_prompts
from calibrate.train import corpus
from specsim.api.calibrate import _settings
from specsim.api.models import Measurement


class Characters:
    """A tokenizer of one token a character, which refuses what tokenizers refuse."""

    bos_token_id: int | None = None
    bos_token: str | None = None

    def __call__(
        self, text: str, verbose: bool = True, add_special_tokens: bool = True
    ) -> dict[str, list[int]]:
        text.encode("utf-8")  # half of a surrogate pair is a TypeError of the real ones
        return {"input_ids": [ord(each) for each in text if each != "\u200b"]}


class BehindBos(Characters):
    """The same with a BOS token before every text, as Llama's and Gemma's have it."""

    bos_token_id = 2
    bos_token = "\x02"

    def __call__(
        self, text: str, verbose: bool = True, add_special_tokens: bool = True
    ) -> dict[str, list[int]]:
        first = [2] if add_special_tokens else []
        return {"input_ids": [*first, *super().__call__(text)["input_ids"]]}


PLAIN = Characters()


def read(
    folder: Path,
    text: str,
    name: str = "prompts.jsonl",
    tokenizer: Any = PLAIN,
    tokens: int = 8,
) -> list[list[int]]:
    (folder / name).write_bytes(text.encode())
    return read_prompts(folder / name, tokenizer, tokens)


def ids(*texts: str) -> list[list[int]]:
    return [[*map(ord, text)] for text in texts]


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [(11, "abcdefghij"), (10, "bcdefghij"), (8, "defghij"), (2, "j"), (1, "")],
)
def test_a_prompt_that_is_cut_keeps_its_bos_token(tmp_path: Path, tokens: int, kept: str) -> None:
    found = read(tmp_path, "abcdefghij\n", "prompts.txt", BehindBos(), tokens)
    assert found == ids("\x02" + kept)
    assert len(found[0]) == tokens


def test_a_prompt_that_a_chat_template_made_has_one_bos_token(tmp_path: Path) -> None:
    """Templates write it as text, and engines that apply them add no other."""
    assert read(tmp_path, "\x02abc\ndef\n", "prompts.txt", BehindBos()) == ids("\x02abc", "\x02def")


def test_a_prompt_without_a_bos_token_is_cut_to_its_end(tmp_path: Path) -> None:
    assert read(tmp_path, "abcdefghij\n", "prompts.txt") == ids("cdefghij")


def test_windows_of_modules_begin_as_texts_do(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"a.py": "abcdefghijklmnopqrst", "b.py": "ABCDEFGHIJKL"}
    monkeypatch.setattr(corpus, "held_out_texts", lambda: texts)
    assert held_out_prompts(PLAIN, 3, 3) == ids("abc", "ABC", "mno")
    assert held_out_prompts(BehindBos(), 3, 3) == ids("\x02ab", "\x02AB", "\x02mn")
    assert held_out_prompts(BehindBos(), 1, 2) == ids("\x02", "\x02")


def test_windows_of_the_embedded_family_are_parts_of_its_texts() -> None:
    """Its tokenizer has a BOS token and puts it before nothing; profiles hold the digest."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(FAMILY / "target")
    assert tokenizer.bos_token_id is not None
    texts = list(corpus.held_out_texts().values())[:3]
    starts = [tokenizer(text, verbose=False)["input_ids"][:48] for text in texts]
    assert held_out_prompts(tokenizer, 48, 3) == starts


def test_files_as_windows_writes_them_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeffab\r\ncd\r\n\r\n", "prompts.txt") == ids("ab", "cd")
    assert read(tmp_path, '\ufeff{"prompt": "a\\r"}\r\n') == ids("a\r")


def settings_of(measurement: Measurement, warnings: list[str]) -> Any:
    target = SimpleNamespace(tokenizer=PLAIN, reads_source=False)
    pair: Any = SimpleNamespace(target=target, context=512)
    return _settings(pair, measurement, warnings)


def test_prompts_that_may_have_been_cut_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, warnings = tmp_path / "prompts.txt", list[str]()
    file.write_text("abcdef\nabcdefgh\nab\n")
    measurement = Measurement(prompts=file, requests=(3,), prompt_tokens=6)
    found = settings_of(measurement, warnings)
    assert found.prompts == (*map(tuple, ids("abcdef", "cdefgh", "ab")),)
    assert warnings == [
        "2 of 3 prompts have all of prompt_tokens (6): longer ones have lost their beginning"
    ]
    # Windows have as many tokens as were asked for, and nothing was cut.
    monkeypatch.setattr(corpus, "held_out_texts", lambda: {"a.py": "a" * 40, "b.py": "b" * 40})
    warnings.clear()
    settings_of(Measurement(requests=(2,), prompt_tokens=6), warnings)
    assert not warnings


def test_one_prompt_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("abcdef\n")
    with pytest.raises(PromptError, match=r"prompts\.txt has one prompt, at least two are needed"):
        settings_of(Measurement(prompts=file), [])


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
            read_prompts(tmp_path / name, PLAIN, 8)
        assert "\n" not in str(refused.value)
