"""The file acceptance.json: read back as written, closed to what it does not know."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim.counts.file import AcceptanceFileError, read_acceptance
from tests.support.mutations import SAMPLES


def written(folder: Path, name: str = "vllm-bench-serve-mtp3.txt") -> Path:
    specsim.read(SAMPLES / name, temperature=1.0, out=folder / "acceptance.json")
    return folder / "acceptance.json"


@pytest.mark.parametrize(
    "name",
    [
        *("vllm-bench-serve-mtp3.txt", "vllm-bench-serve-result.json.txt", "sglang-log.txt"),
        *("vllm-log-v0.txt", "vllm-log-2025-04.txt", "sglang-request-meta.json.txt"),
    ],
)
def test_read_back_as_written(tmp_path: Path, name: str) -> None:
    found = specsim.read(SAMPLES / name)
    file = read_acceptance(written(tmp_path, name))
    assert file.draft_counts() == list(found.counts)
    assert file.step_times() == list(found.steps)
    assert [each.length() for each in file.lengths] == list(found.lengths)
    assert (file.totals and file.totals.totals()) == found.totals
    assert (file.engine, file.acceptance_law, file.temperature) == (
        found.engine,
        found.acceptance_law,
        1.0,
    )
    assert (file.sources, file.notes) == (list(found.sources), list(found.warnings))
    assert len(file.sources[0].sha256) == 64


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def _again(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: document[name].append(document[name][0])


_LENGTH = {"tokens_per_call": 1.0, "weight": 1e-3, "weight_of": "means"}
_PROMPT = {"gamma": 0, "tokens": 1, "seconds": 1e-9, "answer_s": 3600.0, "repeat": 0}
_STEP = {"batch": 1, "seconds": 0.01, "gamma": 2, "repeat": 0, "first_s": 0.02}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("version", value=2), "has version 2, this specsim reads version 1"),
        (_set("schema", value="specsim-profile"), 'no "schema": "specsim-acceptance"'),
        (_set("more", value=1), "unknown field `more`"),
        (_set("counts", 0, "more", value=1), r"unknown field `more` - at `\$.counts\[0\]`"),
        (_set("counts", 0, "rounds", value=-1), ">= 0"),
        (_set("counts", 0, "rounds", value=5000), "accepted tokens must not rise"),
        (_set("counts", 0, "accepted", value=20000), "accepted must be at most drafted"),
        (_set("counts", 0, "reached", value=[1.0, 2.0]), "must not rise with the position"),
        (_set("counts", 0, "accepted", value=1.0), "accepted must be the sum over positions"),
        (_set("counts", 0, "gamma", value=1001), "<= 1000"),
        (_set("counts", 0, "gamma", value=10**400), "<= 1000|out of range"),
        (_set("steps", 0, "gamma", value=10**9), "<= 1000"),
        (_set("steps", 0, "seconds", value=0), "> 0"),
        (_set("acceptance_law", value="greedy"), "Invalid enum value 'greedy'"),
        (_set("sources", value=[]), "length >= 1"),
        (_again("counts"), r"counts\[1\] is of the same as counts\[0\], draft length 3 with"),
        (_again("sources"), r"sources\[1\] is of the same as sources\[0\]"),
        (_set("counts", 0, "reached", value=[0.0] * 1001), "length <= 1000"),
        (_set("steps", 0, "seconds", value=1e300), "<= 3600"),
        (_set("steps", 0, "draft_s", value=1.0), "draft_s must be < seconds"),
        (_set("lengths", value=[{**_LENGTH, "tokens_per_call": 0.9}]), r"`float` >= 1\.0 - at"),
        (_set("lengths", value=[{**_LENGTH, "weight": 0}]), r"`float` > 0\.0 - at"),
        (_set("prompts", value=[{**_PROMPT, "tokens": 0}]), r"`int` >= 1 - at"),
        (_set("prompts", value=[{**_PROMPT, "tokens": 10**9 + 1}]), r"`int` <= 1000000000 - at"),
        (_set("prompts", value=[{**_PROMPT, "seconds": 0}]), r"`float` > 0\.0 - at"),
        (_set("prompts", value=[{**_PROMPT, "answer_s": 3600.1}]), r"`float` <= 3600\.0 - at"),
        (_set("prompts", value=[{**_PROMPT, "repeat": -1}]), r"`int` >= 0 - at"),
        (_set("steps", value=[_STEP, _STEP]), r"steps\[1\] is of the same as steps\[0\]"),
    ],
)
def test_what_it_does_not_know_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    path = written(tmp_path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(AcceptanceFileError, match=message) as refusal:
        read_acceptance(path)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_is_at_the_bounds_is_taken(tmp_path: Path) -> None:
    path = written(tmp_path)
    document = json.loads(path.read_text())
    reached = [1.0] * 1000
    document["counts"] = [{"rounds": 1.0, "accepted": 1000.0, "gamma": 1000, "reached": reached}]
    document["lengths"] = [_LENGTH, {**_LENGTH, "gamma": 0}]
    document["steps"] = [{"batch": 1e-3, "seconds": 1e-9, "gamma": 0}]
    document["prompts"] = [_PROMPT, {**_PROMPT, "tokens": 10**9, "gamma": 1000}]
    path.write_text(json.dumps(document))
    found = read_acceptance(path)
    assert [each.reached for each in found.draft_counts()] == [tuple(reached)]
    assert [each.length().tokens_per_call for each in found.lengths] == [1.0, 1.0]
    assert [each.seconds for each in found.step_times()] == [1e-9]
    assert [each.tokens for each in found.prompt_times()] == [1, 10**9]


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null"])
def test_what_is_no_document_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "acceptance.json"
    path.write_bytes(content)
    with pytest.raises(AcceptanceFileError):
        read_acceptance(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AcceptanceFileError, match="no such file"):
        read_acceptance(tmp_path / "none.json")
