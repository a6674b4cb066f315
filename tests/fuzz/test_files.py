"""A damaged file of any kind is answered from, or refused in one line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz_examples import damaged_files, file_cases
from tests.support.fuzz_kinds import KINDS, FileKind
from tests.support.fuzz_session import Example, FuzzSession

FUZZ = settings.get_profile("fuzz")
FOUND = dict(file_cases())


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_a_whole_file_is_answered_from(session: FuzzSession, kind: FileKind) -> None:
    """Else nothing would be found by damaging it."""
    for command in kind.commands:
        found = session.run_damaged(kind.name, {}, command)
        found.check()
        assert found.code in (0, 1), found.err


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
@FUZZ
@given(data=st.data())
def test_a_damaged_file_is_answered_from_or_refused(
    session: FuzzSession, kind: FileKind, data: st.DataObject
) -> None:
    data.draw(damaged_files(session, kind)).run(session).check()


@pytest.mark.parametrize(
    ("name", "case"), list(file_cases()), ids=[name for name, _ in file_cases()]
)
def test_files_that_fuzzing_found(session: FuzzSession, name: str, case: Example) -> None:
    case.run(session).check()
