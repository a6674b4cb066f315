"""Configurations of engines at a terminal: other lines, and nothing else is other."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specsim.report.configuration import in_lines
from tests.support.command_line import SHAPES, run
from tests.support.terminal import run_on_terminal

VALUES = st.one_of(
    st.integers(),
    st.booleans(),
    st.text(max_size=30),
    st.lists(st.lists(st.integers(0, 512), min_size=3, max_size=3), max_size=20),
)
WORDS = st.text(min_size=1, max_size=20).filter(lambda word: not word.startswith("--"))


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=20), VALUES, max_size=8), st.integers(80, 120))
def test_json_says_the_same(content: dict[str, object], width: int) -> None:
    text = json.dumps(content)
    shown = in_lines(text, width)
    assert json.loads(shown) == content
    # A character may be an escape of six.
    if "\\" not in text:
        assert max(map(len, shown.splitlines())) <= width
    assert in_lines(text, None) == text


@settings(max_examples=40)
@given(st.lists(st.tuples(st.from_regex(r"--[a-z-]{1,20}", fullmatch=True), WORDS), min_size=1))
def test_a_shell_reads_the_same_flags(flags: list[tuple[str, str]]) -> None:
    words = [word for flag in flags for word in flag]
    text = shlex.join(words)
    assume(len(text.splitlines()) == 1)
    assert shlex.split(in_lines(text, 80).replace(" \\\n", " ")) == words


def test_lines_that_are_neither_stay() -> None:
    text = f"speculative_config:\n  path: {'x' * 90}"
    assert in_lines(text, 80) == text


def test_by_batch() -> None:
    ranges = [[first, first + 9, 7 - first // 10] for first in range(1, 70, 10)]
    text = json.dumps({"model": "HEAD", "num_speculative_tokens_per_batch_size": ranges, "n": 7})
    assert in_lines(text, 80).splitlines() == [
        "{",
        '  "model": "HEAD",',
        '  "num_speculative_tokens_per_batch_size": [[1, 10, 7], [11, 20, 6],',
        "    [21, 30, 5], [31, 40, 4], [41, 50, 3], [51, 60, 2], [61, 70, 1]],",
        '  "n": 7',
        "}",
    ]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_every_engine_fits_a_terminal_and_is_the_same_in_a_pipe(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", engine, *SHAPES, "--alpha", "0.7", "--context", "512"]
    words += ["--model", "organisation/model-that-drafts-for-a-larger"]
    screen = run_on_terminal(words)
    screen.check()
    code, out, _ = run(capsys, *words)
    assert code == screen.code == 0
    whole, shown = (re.sub(r"[\s\\]", "", text) for text in (out, "".join(screen.lines)))
    assert shown.startswith(whole)
