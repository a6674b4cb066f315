"""Tables at terminals of several widths, and those of measurements that no test repeats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim.api.result import Result
from specsim.api.validation import BlindCheck
from specsim.report.columns import columns_of, fitting
from specsim.report.tables import show
from tests.support.console import ROOT
from tests.support.positions import write_positions
from tests.support.profiles import write
from tests.support.terminal import run_on_terminal

MEASURED = ROOT / "studies/measured/embedded-cpu"


@pytest.mark.parametrize("width", [60, 100, 140, 240])
def test_other_widths_are_used(width: int) -> None:
    words = "optimize --target llama-3.1-8b --draft llama-3.2-1b --drafter eagle3:alpha=0.7 "
    words += "--accelerator H100 --alpha 0.8 --batch 1,8,64 --context 512"
    screen = run_on_terminal(words.split(), width)
    screen.check()
    rule = next(line for line in screen.lines if set(line) == {"─"})
    if width >= 140:
        assert "--wide" not in "".join(screen.lines)
    else:
        # Another column would be 12 characters at most.
        assert width - 12 <= len(rule) <= width


def test_wide_has_no_end_on_a_terminal_either() -> None:
    words = "optimize --target llama-3.1-8b --draft llama-3.2-1b --accelerator H100 --alpha 0.8 "
    screen = run_on_terminal([*words.split(), "--batch", "1,8", "--wide"], 40)
    assert any(len(line) > 70 and set(line) == {"─"} for line in screen.lines)


def test_what_changes_assume_is_told_where_a_table_has_no_room_for_it() -> None:
    words = "explain --target llama-3.1-8b --draft llama-3.2-1b --accelerator H100 --alpha 0.75 "
    words += "--gamma 7 --batch 96 --context 512"
    screens = [run_on_terminal(words.split(), width) for width in (80, 200)]
    narrow, wide = (" ".join(" ".join(screen.lines).split()) for screen in screens)
    assumed = "its drafts are accepted as often, and every round has some"
    assert f"drafter ngram assumes: {assumed}" in narrow
    assert assumed in wide
    assert "assumes:" not in wide
    for screen in screens:
        screen.check()


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
        screen = run_on_terminal(words)
        assert screen.code == 0, screen.lines
        screen.check()


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
    # It was written before the drift of the machine was told apart.
    rows = tuple({"error_drift": 0.01, **row} for row in document["answer"]["rows"])
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
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    columns, _ = fitting(columns_of(result.table(), result.essential), 80)
    return {column.heading for column in columns}
