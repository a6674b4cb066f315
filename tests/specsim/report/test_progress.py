"""How far a long call is: a bar on a terminal, a line a minute elsewhere, notes at once."""

from __future__ import annotations

import io
import sys
import time

import pytest

from specsim.api.progress import note, steps
from specsim.report.progress import _bars, _lines, _Pace, progress_bar


def test_time_left_follows_the_pace_of_the_last_lines() -> None:
    pace = _Pace(done=40, total=100, told_s=0.0)  # there were 40 of them before
    assert pace.line("trace", 60.0) == "trace: 40 / 100, time left unknown"
    pace.done = 50
    # 10 in two minutes, and 50 to go.
    assert pace.line("trace", 120.0) == "trace: 50 / 100, 10 min left"
    for minute in range(3, 9):
        pace.done += 1
        said = pace.line("trace", 60.0 * minute)
    # The quick ones of the beginning are forgotten: one a minute, 44 to go.
    assert said == "trace: 56 / 100, 44 min left"
    pace.done = 99
    assert pace.line("trace", 541.0) == "trace: 99 / 100, less than a minute left"
    pace.done = 100
    assert pace.line("trace", 600.0) == "trace: 100 / 100"
    pace.done, pace.total = 101, 1000
    assert " h " in pace.line("trace", 6000.0)


def test_what_was_done_before_a_kill_is_no_pace() -> None:
    pace = _Pace(done=0, total=100, told_s=0.0)
    for done in range(1, 51):
        pace.tell(done, 100, 0.001 * done)
    pace.tell(51, 100, 30.0)
    pace.tell(52, 100, 60.0)
    # Two in a minute, and 48 to go.
    assert pace.line("decoding", 60.0) == "decoding: 52 / 100, 24 min left"


def test_steps_that_all_come_at_once_have_the_pace_that_they_have() -> None:
    pace = _Pace(done=0, total=180_000, told_s=0.0)
    for done in range(1, 60_001):
        pace.tell(done, 180_000, 0.001 * done)
    assert pace.line("tokens", 60.0) == "tokens: 60000 / 180000, 2 min left"


def test_without_a_terminal_lines_come_by_the_clock(capsys: pytest.CaptureFixture[str]) -> None:
    with _lines(interval_s=0.02) as progress:
        time.sleep(0.06)
        assert capsys.readouterr().err == "", "nothing is going on yet"
        advance = steps(progress, "run times", 3)
        advance()
        # In the midst of a step, too.
        deadline = time.monotonic() + 10
        said = ""
        while said.count("\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
            said += capsys.readouterr().err
        assert said.startswith("run times: 1 / 3, ")
        assert all(line.startswith("run times: 1 / 3, ") for line in said.splitlines())
    capsys.readouterr()
    time.sleep(0.06)
    assert capsys.readouterr().err == "", "it is over"


def test_a_short_call_says_nothing_but_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar() as progress:
        steps(progress, "decoding", 2)()
        note(progress, "stop the others")
    assert capsys.readouterr().err == "stop the others\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What stderr is, with colours as a terminal has them.

    No fixture: pytest puts its own in place between what a fixture does and the test.
    """
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    with progress_bar() as progress:
        note(progress, "stop [2] others")
        steps(progress, "decoding", 2)()
    drawn = terminal.getvalue()
    assert "stop [2] others" in drawn
    assert "decoding" in drawn
    assert "━" in drawn
    assert "1/2" in drawn


def test_a_bar_may_wait_until_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of one that vanishes nothing is left."""
    terminal = on_a_terminal(monkeypatch)
    now = [0.0]
    with _bars(lambda: now[0], after_s=1.0) as progress:
        for done in range(3):
            progress("batches", done, 10)
            now[0] += 0.3
        assert terminal.getvalue() == ""
        now[0] += 0.2
        progress("batches", 4, 10)
    assert "batches" in terminal.getvalue()
    assert "4/10" in terminal.getvalue()
    short = on_a_terminal(monkeypatch)
    with _bars(lambda: now[0], after_s=1.0) as progress:
        progress("batches", 10, 10)
    assert short.getvalue() == ""


@pytest.mark.parametrize("every_s", [10, 20, 31, 40])
def test_on_a_terminal_the_time_left_is_told_however_far_apart_reports_are(
    monkeypatch: pytest.MonkeyPatch, every_s: int
) -> None:
    """Six of ten are done, one at a time: four are left."""
    terminal = on_a_terminal(monkeypatch)
    now = [0.0]
    with _bars(lambda: now[0]) as progress:
        for done in range(7):
            progress("settings", done, 10)
            now[0] += every_s
    left = 4 * every_s
    assert f"0:{left // 60:02d}:{left % 60:02d}" in terminal.getvalue()


def test_where_stderr_was_closed_nothing_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with progress_bar() as progress:
        note(progress, "stop the others")
    assert capsys.readouterr().out == ""
