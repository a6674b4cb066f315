"""Command lines that nobody would type are answered, or refused in one line."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz_run import run_bounded
from tests.support.fuzz_words import LINES, changed_line

_USUAL = settings.get_profile("fuzz")
FUZZ = settings(_USUAL, max_examples=10 * _USUAL.max_examples)
CASES = Path(__file__).parent / "cases"


@pytest.fixture(scope="session")
def named(originals: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the names of files in a line stand for."""
    place = tmp_path_factory.mktemp("named")
    os.mkfifo(place / "pipe")
    return {
        "PROFILE": str(originals["PROFILE"]),
        "TRACE": str(originals["trace"]),
        "POSITIONS": str(originals["positions"]),
        "LOG": str(originals["engine's log"]),
        "WORKLOAD": str(originals["workload"]),
        "FOLDER": str(place),
        "PIPE": str(place / "pipe"),
    }


def words(line: list[str], named: dict[str, str]) -> list[str]:
    return [named.get(word, word) for word in line]


@pytest.mark.parametrize("line", LINES)
def test_a_line_as_users_type_it_is_answered(named: dict[str, str], line: str) -> None:
    found = run_bounded(*words(shlex.split(line), named))
    found.check()
    # Some schemes have no law in the long run, and say so.
    assert found.code in (0, 1) or "carries state across blocks" in found.err, found.err


@FUZZ
@given(random=st.randoms(use_true_random=False))
def test_a_changed_line_is_answered_or_refused(named: dict[str, str], random: Random) -> None:
    line = changed_line(random)
    if not line or line[0].startswith("-"):
        return  # the help of specsim itself
    found = run_bounded(*words(line, named))
    if "--help" in line or "-h" in line or "--version" in line:
        assert found.code in (0, 2), line
        return
    found.check()


@pytest.mark.parametrize("case", sorted(each.name for each in CASES.glob("*.txt")))
def test_lines_that_were_once_found_to_fail(named: dict[str, str], case: str) -> None:
    """One a line, below a comment that says what became of it."""
    for line in (CASES / case).read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            run_bounded(*words(shlex.split(line), named)).check()
