"""``specsim doctor`` as it is typed."""

from __future__ import annotations

import json
import re

import pytest

from specsim.api import doctor_checks as checks
from specsim.api.doctor_checks import Condition
from tests.support.command_line import fail, rows, run


def test_exit_code_says_whether_something_is_lacking(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "others", lambda _: Condition("other programs", "none"))
    monkeypatch.setattr(checks, "family", lambda: Condition("embedded family", "whole"))
    code, out, _ = run(capsys, "doctor", "--format", "json")
    document = json.loads(out)
    assert document["schema"] == "specsim.doctor"
    assert code == (not document["answer"]["fit"])
    assert {each["state"] for each in rows(out)} <= {"ok", "advice", "to do", "unknown"}
    broken = Condition("embedded family", "half", "install specsim again", needed=True)
    monkeypatch.setattr(checks, "family", lambda: broken)
    code, out, err = run(capsys, "doctor")
    assert code == 1
    assert "embedded family" in out
    assert "to do, embedded family: install specsim again" in err


def test_a_model_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "not in the embedded family" in fail(capsys, "doctor", "--target", "embedded/none")


def test_what_has_no_room_is_told_below_and_with_wide_nothing_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = " ".join(["numba 0.66"] * 12)
    monkeypatch.setattr(checks, "others", lambda _: Condition("other programs", long))
    _, narrow, _ = run(capsys, "doctor")
    table, _, below = narrow.partition("\nother programs: numba")
    assert "…" in table
    assert " ".join(f"other programs: numba{below}".split()).startswith(f"other programs: {long}")
    assert max(map(len, narrow.splitlines())) <= 80
    _, wide, err = run(capsys, "doctor", "--wide")
    assert re.search(f"ok +{long}\n", wide)
    assert "…" not in wide
    assert "said below" not in narrow + wide + err
