"""Command lines that nobody would type are answered, or refused in one line."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz_examples import CASES, command_lines, line_cases
from tests.support.fuzz_session import Example, FuzzSession
from tests.support.fuzz_words import LINES

_USUAL = settings.get_profile("fuzz")
FUZZ = settings(_USUAL, max_examples=10 * _USUAL.max_examples)


@pytest.mark.parametrize("line", LINES)
def test_a_line_as_users_type_it_is_answered(session: FuzzSession, line: str) -> None:
    found = session.run_line(shlex.split(line))
    found.check()
    assert found.parsed
    # Some schemes have no law in the long run, and say so.
    assert found.code in (0, 1) or "carries state across blocks" in found.err, found.err


@FUZZ
@given(data=st.data())
def test_a_changed_line_is_answered_or_refused(session: FuzzSession, data: st.DataObject) -> None:
    data.draw(command_lines()).run(session).check()


@pytest.mark.parametrize("case", sorted(each.name for each in CASES.glob("*.txt")))
def test_lines_that_were_once_found_to_fail(session: FuzzSession, case: str) -> None:
    """One a line, below a comment that says what became of it."""
    for line in (CASES / case).read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            session.run_line(shlex.split(line)).check()


@pytest.mark.parametrize("case", list(line_cases()), ids=lambda case: " ".join(case.line)[:60])
def test_lines_that_fuzzing_found(session: FuzzSession, case: Example) -> None:
    case.run(session).check()
