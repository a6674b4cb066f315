"""A profile of the tiny pair at temperature 0, which engines replay, and its prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import succeed
from tests.support.replayed_engine import LIMIT, REQUESTS
from tests.support.word_texts import write_words


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_words(tmp_path_factory.mktemp("prompts") / "prompts.txt", REQUESTS, 6)


@pytest.fixture(scope="module")
def profile(
    tiny_family: dict[str, Path], prompts: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("profile") / "tiny.json"
    words = [
        *("calibrate", "--target", str(tiny_family["target"]), "--prompts", str(prompts)),
        *("--draft", str(tiny_family["draft"]), "--requests", f"{REQUESTS}", "--device", "cpu"),
        *("--max-new-tokens", f"{LIMIT}", "--gamma-max", "4", "--repeats", "2"),
        *("--temperature", "0", "--out", str(out)),
    ]
    succeed(*words)
    return out
