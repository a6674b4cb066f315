"""Datasets of texts as workloads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import specsim
from calibrate.models.load import ModelError
from calibrate.models.tokenizer import token_ids
from specsim.checks import InvalidArgumentError
from specsim.serving.readers import read_records
from specsim.serving.requests import WorkloadError
from specsim.serving.workload import RecordedWorkload


def words(texts: Sequence[str]) -> list[list[int]]:
    """A token for every word, its length."""
    return [[len(word) for word in text.split()] for text in texts]


def talk(*turns: str) -> dict[str, Any]:
    return {"conversations": [{"from": "x", "value": turn} for turn in turns]}


def many(count: int) -> str:
    return " ".join(["word"] * count)


def test_conversations_are_taken_as_the_benchmark_takes_them() -> None:
    kept = [(4, 4), (1024, 1024), (900, 1148), (10, 2038)]
    left_out = [(3, 9), (9, 3), (1025, 9), (1024, 1025), (10, 2039)]
    file = [talk(many(first), many(second), many(5)) for first, second in (*kept, *left_out)]
    file.insert(1, talk(many(50)))
    found = read_records(json.dumps(file), words)
    assert list(zip(found.prompt_tokens, found.output_tokens, strict=True)) == kept
    (note,) = found.notes
    assert note.startswith("6 of 10 conversations are left out, as vllm bench serve does: ")
    # The shortest but one of the prompts are the beginning of the longest, in blocks of 16.
    assert found.prefix is not None
    assert found.arrival_s is None


def test_prompts_have_their_output_beside_them() -> None:
    lines = [
        {"prompt": "a b c", "output_tokens": 7, "timestamp": 2.5},
        {"prompt": "a", "output_tokens": 1, "timestamp": 4.0},
    ]
    found = read_records("\n".join(map(json.dumps, lines)), words)
    assert found.prompt_tokens.tolist() == [3, 1]
    assert found.output_tokens.tolist() == [7, 1]
    assert found.arrival_s is not None
    assert found.arrival_s.tolist() == [0.0, 1.5]
    assert found.notes == ()
    texts = [{"prompt": "a b", "completion": many(2000)}, {"prompt": "a", "completion": "b c"}]
    assert read_records(json.dumps(texts), words).output_tokens.tolist() == [2000, 2]
    # A limit is no length, where there is one.
    limited = [{"max_tokens": 900, **each} for each in texts] + [{"prompt": "a", "max_tokens": 9}]
    assert read_records(json.dumps(limited), words).output_tokens.tolist() == [2000, 2, 9]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ([], "no request in it"),
        ([{"x": 1}], "record 1: no text to count: neither conversations nor prompt"),
        ([{"prompt": 3, "output_tokens": 1}], "record 1: prompt must be a text, got 3"),
        ([{"prompt": "a"}], "record 1: no output beside the prompt (looked for output_len,"),
        ([{"prompt": "a", "output_tokens": 0}], "record 1: output_tokens must be a whole number"),
        ([{"prompt": " ", "output_tokens": 1}], "record 1: prompt or output has no token"),
        ([{"prompt": "a", "completion": ""}], "record 1: prompt or output has no token"),
        ([talk("a b c d", "a b c d"), {"conversations": 3}], "record 2: conversations must be a"),
        ([{"conversations": [{}, {}]}], "record 1: value of conversations must be a text, got Non"),
        ([talk("a b c d")], "none of its conversations is as long as a request is to be"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(file: list[Any], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        read_records(json.dumps(file), words)
    assert str(caught.value).startswith(message)


def test_texts_are_counted_by_a_model_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    talks = [
        ("def f(x):\n    return x\n", "x = f(3)\nprint(x)\n"),
        ("import os\n" * 8, "a = 1\n" * 9),
    ]
    file.write_text(json.dumps([talk(*each) for each in talks]))
    work = specsim.workload(file, rate=2, tokenizer="embedded/target")
    assert isinstance(work, RecordedWorkload)
    ids = token_ids("embedded/target")
    counts = [[len(each) for each in ids(texts)] for texts in zip(*talks, strict=True)]
    assert [work.recorded.prompt_tokens.tolist(), work.recorded.output_tokens.tolist()] == counts
    assert ids([]) == []
    with pytest.raises(WorkloadError, match=r"no number of prompt tokens .*--tokenizer MODEL"):
        specsim.workload(file, rate=2)
    with pytest.raises(ModelError, match=r"^tokenizer \S+nowhere: no such folder"):
        specsim.workload(file, rate=2, tokenizer=str(tmp_path / "nowhere"))
    with pytest.raises(InvalidArgumentError, match="tokenizer needs a file"):
        specsim.workload(rate=2, prompt=3, output=4, tokenizer="embedded/target")
