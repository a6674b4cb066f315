"""The commands as a user types them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specsim.cli import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``specsim WORDS``."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def succeed(*words: str) -> None:
    """``specsim WORDS``, which ends well, where what it says does not count."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert not ended.value.code


def fail(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of an error with exit code 2."""
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("specsim: error: ")
    assert err.count("\n") == 1
    return err


def rows(out: str) -> list[dict[str, Any]]:
    """The rows of a result's JSON."""
    return json.loads(out)["answer"]["rows"]


# Options that name two shapes and a machine.
SHAPES = ("--target", "llama-3.1-8b", "--draft", "llama-3.2-1b", "--accelerator", "H100-SXM")
