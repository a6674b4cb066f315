"""The commands of README and docs at a terminal of 80 columns: no line over it, no broken cell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim.api.result import Result
from specsim.api.validation import BlindCheck
from specsim.report.columns import columns_of, fitting
from specsim.report.tables import show
from tests.support.console import ROOT, commands, examples
from tests.support.positions import write_positions
from tests.support.profiles import write
from tests.support.terminal import run_on_terminal

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# They run no model, simulate nothing long, and print a table.
CHEAP = {"allocate", "evaluate", "explain", "optimize", "read", "replay", "simulate", "workload"}
MEASURED = ROOT / "studies/measured/embedded-cpu"


def cheap_commands() -> Iterator[list[str]]:
    """Each of the pages' commands once that is cheap and whose files are part of the repository."""
    known = set()
    for page in PAGES:
        for words in commands(page):
            if "--figure" in words:
                at = words.index("--figure")
                words = words[:at] + words[at + 2 :]
            files = [word for word in words if word.endswith((".json", ".txt", ".parquet", ".md"))]
            there = all((ROOT / file).is_file() for file in files)
            if words[0] in CHEAP and there and tuple(words) not in known:
                known.add(tuple(words))
                yield words


def check(lines: list[str], width: int = 80) -> None:
    """No line is over the width, and every row of a table is one line."""
    assert max(map(len, lines)) <= width
    headings = [i for i, line in enumerate(lines) if line and set(line) == {"─"}]
    for rule in headings:
        # Rows begin behind the rule; a broken cell would leave a line that begins with spaces only.
        first = lines[rule + 1]
        assert first.split()
        assert len(first) <= len(lines[rule])


def test_there_are_commands_to_run() -> None:
    names = Counter(words[0] for words in cheap_commands())
    assert names["optimize"] >= 10
    assert names["explain"] >= 4
    assert {"allocate", "evaluate", "read", "replay", "simulate"} <= names.keys()


@pytest.mark.parametrize("words", cheap_commands(), ids=" ".join)
def test_a_command_fits_a_terminal(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, lines = run_on_terminal(words)
    assert code == 0, lines
    check(lines)


def test_pages_show_what_a_terminal_of_80_columns_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are written from pipes: a terminal as wide as one says the same, in another order."""
    monkeypatch.chdir(ROOT)
    page = ROOT / "docs/questions.md"
    for words, example in zip(commands(page), examples(page), strict=True):
        _, lines = run_on_terminal(words)
        assert sorted(lines) == sorted(example.output.splitlines()), words


@pytest.mark.parametrize("width", [60, 100, 140, 240])
def test_other_widths_are_used(width: int) -> None:
    words = "optimize --target llama-3.1-8b --draft llama-3.2-1b --drafter eagle3:alpha=0.7 "
    words += "--accelerator H100 --alpha 0.8 --batch 1,8,64 --context 512"
    _, lines = run_on_terminal(words.split(), width)
    check(lines, width)
    rule = next(line for line in lines if set(line) == {"─"})
    if width >= 140:
        assert "--wide" not in "".join(lines)
    else:
        # Another column would be 12 characters at most.
        assert width - 12 <= len(rule) <= width


def test_wide_has_no_end_on_a_terminal_either() -> None:
    words = "optimize --target llama-3.1-8b --draft llama-3.2-1b --accelerator H100 --alpha 0.8 "
    _, lines = run_on_terminal([*words.split(), "--batch", "1,8", "--wide"], 40)
    assert any(len(line) > 70 and set(line) == {"─"} for line in lines)


def test_profiles_and_positions_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile, positions = str(write(tmp_path)), str(write_positions(tmp_path))
    monkeypatch.chdir(tmp_path)
    shipped = str(MEASURED / "profile.json")
    for words in (
        ["optimize", "--profile", profile],
        ["evaluate", "--profile", profile, "--gamma", "2"],
        ["optimize", "--profile", shipped],
        ["optimize", "--profile", shipped, "--batch", "1:16"],
        ["defer", positions, "--c", "0.1"],
        ["defer", positions, "--c", "0.1", "--quality", "target"],
        ["defer", positions, "--c", "0.1", "--speedup", "1.5"],
    ):
        code, lines = run_on_terminal(words)
        assert code == 0, lines
        check(lines)


CHECKS = {
    "speedups": (specsim.SpeedupCheck(), {"predicted speedup", "measured speedup", "exact"}),
    "decoders": (specsim.SchemeCheck(), {"scheme", "predicted speedup", "measured speedup"}),
    "synthetic": (specsim.SyntheticCheck(), {"batch", "gamma", "measured speedup"}),
}


@pytest.mark.parametrize("name", CHECKS)
def test_validations_fit(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What was measured on the embedded family, as it is shipped."""
    document = json.loads((MEASURED / f"profile.{name}.json").read_text())
    kind, essential = CHECKS[name]
    rows = tuple(document["answer"]["rows"])
    found = specsim.Validation(check=kind, measured=rows, errors=(), failures=())
    assert shown(found, capsys) >= essential


def test_a_blind_check_fits(capsys: pytest.CaptureFixture[str]) -> None:
    row: dict[str, Any] = dict.fromkeys(
        ("predicted_tokens_per_call", "measured_tokens_per_call", "formula_speedup"), 1.75
    )
    row |= {"temperature": 0.0, "gamma": 3, "exact": True, "inside": True, "chosen": False}
    row |= dict.fromkeys(("predicted_speedup", "predicted_low", "predicted_high"), 1.2345)
    row |= {"measured_speedup": 1.25, "measured_error": 0.02, "relative_error": -0.012}
    rows = (row, {**row, "temperature": 1.0})
    found = specsim.Validation(check=BlindCheck(), measured=rows, errors=(), failures=())
    names = {"predicted speedup", "predicted low", "predicted high", "measured speedup"}
    assert shown(found, capsys) >= {*names, "relative error (%)", "inside"}


def shown(result: Result, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The headings of its table in a pipe, whose lines all fit."""
    show(result, "table")
    check(capsys.readouterr().out.splitlines())
    columns, _ = fitting(columns_of(result.table(), result.essential), 80)
    return {column.heading for column in columns}
