"""``specsim completion``: the script, what specsim answers it, and both in a real shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specsim.cli import COMMANDS
from tests.support.command_line import fail, run

ROOT = Path(__file__).parents[3]


def completed(*words: str) -> list[str]:
    """What specsim answers to bash where the last of the words is to be completed."""
    asked = {
        "_SPECSIM_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("specsim", *words)),
        "COMP_CWORD": str(len(words)),
    }
    found = subprocess.run(
        [sys.executable, "-m", "specsim"],
        env={**os.environ, **asked},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stderr == ""
    return [line.partition(",")[2] for line in found.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    code, out, _ = run(capsys, "completion", shell)
    assert code == 0
    assert "_SPECSIM_COMPLETE" in out
    assert f"{shell}_complete" in out
    program = shutil.which(shell)
    if program is not None:
        checked = subprocess.run([program, "-n"], input=out, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "bash" in fail(capsys, "completion", "tcsh")


def test_commands_options_schemes_and_choices_are_completed() -> None:
    assert completed("") == list(COMMANDS)
    assert completed("opt") == ["optimize"]
    assert "--profile" in completed("optimize", "--pro")
    assert completed("evaluate", "bil") == ["bild"]
    assert completed("optimize", "--alpha", "0.8", "--format", "j") == ["json"]


def test_a_word_that_is_no_command_completes_to_nothing_and_raises_nothing() -> None:
    assert completed("nonsense", "--al") == []
    assert completed("evaluate", "nonsense", "--al") == ["--alpha"]


def test_bash_completes_by_the_script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash on this machine")
    _, script, _ = run(capsys, "completion", "bash")
    program = tmp_path / "specsim"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m specsim "$@"\n')
    program.chmod(0o755)
    typed = (
        f"{script}\nCOMP_WORDS=(specsim comp)\nCOMP_CWORD=1\n_specsim_completion specsim\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(
        [bash, "--norc", "-c", typed],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["compare", "completion"]
