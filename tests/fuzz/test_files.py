"""A damaged file of any kind is answered from, or refused in one line."""

from __future__ import annotations

import shlex
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz_files import KINDS, FileKind, damaged
from tests.support.fuzz_run import run_bounded

FUZZ = settings.get_profile("fuzz")


def words(command: str, path: Path, originals: dict[str, Path]) -> list[str]:
    named = {"FILE": str(path), "PROFILE": str(originals["PROFILE"])}
    return [named.get(word, word.replace(":FILE", f":{path}")) for word in shlex.split(command)]


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_a_whole_file_is_answered_from(originals: dict[str, Path], kind: FileKind) -> None:
    """Else nothing would be found by damaging it."""
    for command in kind.commands:
        found = run_bounded(*words(command, originals[kind.name], originals))
        found.check()
        assert found.code in (0, 1), found.err


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
@FUZZ
@given(random=st.randoms(use_true_random=False), data=st.data())
def test_a_damaged_file_is_answered_from_or_refused(
    originals: dict[str, Path], folder: Path, kind: FileKind, random: Random, data: st.DataObject
) -> None:
    path = damaged(kind, originals[kind.name], folder, random)
    command = data.draw(st.sampled_from(kind.commands))
    run_bounded(*words(command, path, originals)).check()
