"""``specsim compare`` as it is typed: what is printed, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import fail, run
from tests.support.profiles import write


def result(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> str:
    """A file with the JSON of a command."""
    _, out, _ = run(capsys, *words, "--format", "json")
    path.write_text(out)
    return str(path)


def test_exit_code_says_whether_anything_differs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["evaluate", "--c", "0.05", "--gamma", "5", "--alpha"]
    one = result(capsys, tmp_path / "one.json", *words, "0.8")
    other = result(capsys, tmp_path / "other.json", *words, "0.7")
    code, out, err = run(capsys, "compare", one, one)
    assert code == 0
    assert "nothing differs" in err
    assert "same" in out
    code, out, err = run(capsys, "compare", one, other)
    assert code == 1
    assert "inputs differ: alpha 0.8 and 0.7" in err
    assert "speedup" in out


def test_draws_of_one_law_differ_by_chance_and_of_two_by_more(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two figures with 95 % intervals: a pair of one law fails once in 20 seeds, these do not."""
    words = ["simulate", "speculative", "--gamma", "5", "--c", "0.05", "--blocks", "20000"]
    files = [
        result(capsys, tmp_path / f"{seed}.json", *words, "--alpha", alpha, "--seed", str(seed))
        for seed, alpha in ((1, "0.8"), (2, "0.8"), (3, "0.78"))
    ]
    code, _, err = run(capsys, "compare", files[0], files[1])
    assert code == 0
    assert "by more than chance explains (95% over 2 figures with an interval)" in err
    code, out, _ = run(capsys, "compare", files[0], files[2], "--format", "json")
    assert code == 1
    answer = json.loads(out)["answer"]
    assert answer["counts"]["beyond chance"] == 2
    assert {row["figure"] for row in answer["rows"] if row["verdict"] == "beyond chance"} == {
        *("speedup", "tokens_per_call")
    }


def test_a_profile_does_not_compare_with_a_result(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    profile = str(write(tmp_path))
    best = result(capsys, tmp_path / "best.json", "optimize", "--profile", profile)
    line = fail(capsys, "compare", profile, best)
    assert "of one kind, got profile and specsim.profile-forecast" in line
    assert "no such file" in fail(capsys, "compare", best, "none.json")
    (tmp_path / "half.json").write_text('{"schema": "specsim.')
    assert "not complete JSON" in fail(capsys, "compare", best, str(tmp_path / "half.json"))
    assert "--level must be in [0, 1]" in fail(capsys, "compare", best, best, "--level", "2")
