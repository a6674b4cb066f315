"""A profile of the tiny pair at temperature 0, which engines replay, and its prompts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.command_line import succeed
from tests.support.replayed_engine import LIMIT, REQUESTS


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    lines = (" ".join(f"w{word}" for word in random.integers(2, 64, 6)) for _ in range(REQUESTS))
    path.write_text("\n".join(lines) + "\n")
    return path


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
