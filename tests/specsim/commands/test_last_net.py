"""How a command ends that nobody meant to end so: one line, a status, nothing half-written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from specsim.api.question import Question
from tests.support.command_line import fail, run
from tests.support.console import ROOT

COMMAND = [sys.executable, "-m", "specsim"]
OPTIMIZE = ["optimize", "--alpha", "0.8", "--c", "0.05"]


@pytest.fixture(autouse=True)
def traces_of_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tracebacks go."""
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def crash(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fails(self: Question, *arguments: object, **named: object) -> None:
        raise error

    monkeypatch.setattr(Question, "optimize", fails)


def test_a_crash_is_one_line_with_the_command_and_its_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, traces_of_crashes: Path
) -> None:
    crash(monkeypatch, ZeroDivisionError("first\nsecond"))
    code, out, err = run(capsys, *OPTIMIZE, "--verify-cost", "1, 2")
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert err.startswith("specsim: internal error: ZeroDivisionError: first second; ")
    assert err.endswith("repeat it with: specsim optimize --alpha 0.8 --c 0.05 "
                        "--verify-cost '1, 2'\n")  # fmt: skip
    found = re.search(r"its traceback is in (\S+);", err)
    assert found is not None
    text = Path(found[1]).read_text()
    assert Path(found[1]).parent == traces_of_crashes
    assert text.startswith("specsim optimize --alpha 0.8")
    assert "Traceback (most recent call last)" in text
    assert "ZeroDivisionError: first\nsecond" in text


def test_a_crash_without_a_place_for_its_traceback_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import tempfile

    crash(monkeypatch, MemoryError())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    code, out, err = run(capsys, *OPTIMIZE)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert err.startswith("specsim: out of memory: MemoryError; its traceback could not be")


def test_a_card_that_is_full_is_no_internal_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own error is no MemoryError, and torch is not loaded to tell it."""
    full = type("OutOfMemoryError", (RuntimeError,), {})
    crash(monkeypatch, full("CUDA out of memory. Tried to allocate 2 GiB"))
    code, _, err = run(capsys, *OPTIMIZE)
    assert code == 3
    assert err.startswith("specsim: out of memory: OutOfMemoryError: CUDA out of memory.")


def test_what_the_system_refuses_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(monkeypatch, PermissionError(13, "Permission denied", "/root/profile.json"))
    assert fail(capsys, *OPTIMIZE) == "specsim: error: /root/profile.json: Permission denied\n"


def test_an_interrupt_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(monkeypatch, KeyboardInterrupt())
    code, out, err = run(capsys, *OPTIMIZE)
    assert (code, out) == (130, "")
    assert err.strip() == "specsim: interrupted"


def test_a_command_that_a_signal_ends_has_the_status_of_that_signal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where engines run, which are ended first."""
    crash(monkeypatch, SystemExit(128 + signal.SIGTERM))
    assert run(capsys, *OPTIMIZE) == (143, "", "")


def test_a_scheme_that_is_missing_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "SCHEME is missing, one of: plain" in fail(capsys, "simulate")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    words = [*COMMAND, "replay", "--help"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [*COMMAND, *OPTIMIZE], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert found.stderr.startswith("specsim: error: standard output: ")


@pytest.mark.parametrize(
    ("closed", "status"), [(">&-", 0), ("2>&-", 0), (">&- 2>&-", 0), ("2>&- --nonsense", 2)]
)
def test_a_stream_that_is_closed_changes_no_status(closed: str, status: int) -> None:
    script = f"{sys.executable} -m specsim {' '.join(OPTIMIZE)} {closed}"
    found = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == status
    assert "Traceback" not in found.stdout + found.stderr


def test_an_interrupt_while_modules_are_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    found = subprocess.run(
        [*COMMAND, "doctor"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (130, "")
    assert found.stderr == "specsim: interrupted\n"


def test_an_interrupt_from_the_keyboard_is_one_line(tmp_path: Path) -> None:
    """The command reads standard input, which never ends."""
    words = [*COMMAND, "read", "-"]
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        # A shell starts what runs behind it without this signal, and so may these tests have been.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        # Modules are loaded by then; were they not, the line would be the same.
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.strip() == b"specsim: interrupted"
    assert not list(tmp_path.iterdir())


def test_output_that_is_no_text_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    """A name of a file with a byte that is no UTF-8, on a terminal that knows ASCII alone."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    name = os.fsdecode(b"\xff.csv")
    found = subprocess.run(
        [*COMMAND, "replay", name], capture_output=True, env=environment, cwd=tmp_path, check=False
    )
    assert found.returncode == 2
    assert found.stderr.count(b"\n") == 1
    assert b"no such file" in found.stderr


def test_what_a_file_says_is_no_command_to_a_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "card.json"
    path.write_text('{"name": "a", "\\u001b[2J\\u0007": 1}')
    words = ["--target", "llama-3.1-8b", "--draft", "llama-3.2-1b", "--accelerator", str(path)]
    err = fail(capsys, "optimize", *words, "--alpha", "0.8")
    assert err.isprintable() or err[:-1].isprintable()
    assert "\\x1b[2J\\x07" in err
