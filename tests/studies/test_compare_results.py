"""``benchmarks/compare_results.py``: what it takes for the same, and what it reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "compare_results.py"
OLD = "# made on Monday\nscheme,speed,says\nvertical,1.25,two of 3 hold\nfull,0.5,none\n"
RENAMES = """
new_tables = ["laws.csv"]
[columns]
scheme = "cascade"
[labels]
full = ["full-cascade"]
[prose]
"pairs.csv" = ["says"]
[new_columns]
"pairs.csv" = ["gamma"]
"""
RENAMED = "cascade,gamma,speed,says\nvertical,2,1.25,3 were tried and held\nfull-cascade,,0.5,-\n"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pairs.csv").write_text(OLD)
    return tmp_path / "old", tmp_path / "new"


def compared(old: Path, new: Path, renames: str = "") -> tuple[int, list[str]]:
    file = old.parent / "renames.toml"
    file.write_text(renames)
    words = [sys.executable, str(SCRIPT), str(old), str(new), "--renames", str(file)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    return ended.returncode, ended.stdout.splitlines()


def test_identical_folders_are_the_same_but_for_the_comment(folders: tuple[Path, Path]) -> None:
    old, new = folders
    (new / "pairs.csv").write_text(OLD.replace("Monday", "Tuesday"))
    assert compared(old, new) == (0, ["1 tables are the same, 0 differ"])


def test_renamed_and_added_is_the_same_as_far_as_the_file_says(folders: tuple[Path, Path]) -> None:
    old, new = folders
    (new / "pairs.csv").write_text(RENAMED)
    (new / "laws.csv").write_text("law\n1\n")
    assert compared(old, new, RENAMES) == (0, ["1 tables are the same, 0 differ"])
    code, lines = compared(old, new)
    assert code == 1
    assert lines == [
        f"laws.csv: only in {new}",
        "pairs.csv, header: scheme, speed, says became cascade, gamma, speed, says",
        "0 tables are the same, 2 differ",
    ]


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (("1.25", "1.26"), "pairs.csv, row 1, speed: '1.25' became '1.26'"),
        (("0.5", "0.50"), "pairs.csv, row 2, speed: '0.5' became '0.50'"),
        (("full,0.5,none\n", ""), "pairs.csv: 2 rows became 1"),
        (("of 3", "of 4"), "pairs.csv, row 1, says: '3' became '4'"),
    ],
)
def test_one_digit_is_a_difference(
    folders: tuple[Path, Path], changed: tuple[str, str], line: str
) -> None:
    old, new = folders
    (new / "pairs.csv").write_text(OLD.replace(*changed))
    prose = '[prose]\n"pairs.csv" = ["says"]\n'
    assert compared(old, new, prose) == (1, [line, "0 tables are the same, 1 differ"])


def test_a_missing_table_is_a_difference(folders: tuple[Path, Path]) -> None:
    old, new = folders
    (old / "more.csv").write_text("a\n1\n")
    assert compared(old, new) == (
        1,
        [f"more.csv: only in {old}", "1 tables are the same, 1 differ"],
    )
