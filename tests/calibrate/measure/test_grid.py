"""Run times of batches: what is measured, what is missing and why, and that a kill loses little."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from calibrate.batch.ragged import CompileError
from calibrate.measure import calibration, grid
from calibrate.measure.calibration import _decisive
from calibrate.measure.grid import (
    OUT_OF_TIME,
    UNFINISHED,
    Grid,
    GridSettings,
    measure_grid,
    usual_contexts,
)
from calibrate.models.machine import hardware
from specsim.api.calibrate import Calibration, calibrate
from specsim.api.models import Batches, Measurement, Models
from specsim.checkpoint import Checkpoint
from specsim.checks import InvalidArgumentError
from specsim.hardware.run_time_fit import fits
from specsim.profiles import Missing, Overhead, RunTime, read_profile
from tests.support.command_line import fail, run

SETTINGS = GridSettings(
    batches=(1, 3), contexts=(8, 20), gamma_max=2, repeats=2, temperatures=(0.0, 1.0)
)


@pytest.fixture(scope="module")
def pair(tiny_family: dict[str, Path]) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM

    target, draft = (
        AutoModelForCausalLM.from_pretrained(tiny_family[name]).eval()
        for name in ("target", "draft")
    )
    return target, draft


def measure(pair: tuple[Any, Any], work: Path, settings: GridSettings = SETTINGS) -> Grid:
    return measure_grid(*pair, settings, Checkpoint(work))


def test_every_kind_of_run_is_timed_in_every_cell(pair: tuple[Any, Any], tmp_path: Path) -> None:
    found = measure(pair, tmp_path)
    assert found.missing == []
    # Draft lengths 0, 1, 2: target runs over 1 token after its own, over 2 and 3 after the draft's.
    kinds = {
        ("target", "target", 1),
        ("target", "draft", 2),
        ("target", "draft", 3),
        ("draft", "target", 1),
        ("draft", "target", 2),
        ("draft", "draft", 1),
    }
    cells = {(batch, context) for batch in (1, 3) for context in (8, 20)}
    where = [
        ((row["batch"], row["context"]), (row["model"], row["follows"], row["tokens"]))
        for row in found.times
    ]
    assert sorted(where) == sorted((cell, kind) for cell in cells for kind in kinds)
    for row in found.times:
        # Of three blocks in a row two count; half of the first draft runs read two tokens.  Plain
        # steps stand before, between and after the two draft lengths.
        blocks = 1 if (row["model"], row["follows"]) == ("draft", "target") else 2
        streaks = 2 if blocks == 1 else 3 if row["follows"] == "target" else 1
        assert len(row["seconds"]) == SETTINGS.repeats * blocks * streaks
        assert min(row["seconds"]) > 0
        assert (row["seconds"] == row["plain"]) == (streaks == 3)
    assert len(found.overhead) == len(cells) * 2 * 3
    assert {len(row["seconds"]) % 3 for row in found.overhead} == {0}


def test_runs_are_kept_with_the_plain_steps_around_them(
    pair: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that slows down by one second an interval."""

    class Slowing:
        def __init__(self, device: torch.device) -> None:
            self.marks = 0

        def mark(self) -> None:
            self.marks += 1

        def intervals(self) -> list[float]:
            return [float(interval) for interval in range(1, self.marks)]

    monkeypatch.setattr(grid, "Clock", Slowing)
    settings = GridSettings((1,), (8,), gamma_max=1, repeats=1, temperatures=())
    rows = {
        (row["model"], row["follows"], row["tokens"]): row
        for row in measure(pair, tmp_path, settings).times
    }
    # Two intervals a run and one behind each block, where it is waited for: three plain steps,
    # three blocks of a draft run and a target run, and three plain steps again.  The first of three
    # does not count.
    assert rows["target", "target", 1]["seconds"] == [4, 7, 28, 31]
    assert rows["draft", "target", 2]["seconds"] == [15]
    assert rows["draft", "target", 1]["seconds"] == [20]
    assert rows["target", "draft", 2]["seconds"] == [17, 22]
    assert rows["target", "draft", 2]["plain"] == [17.5, 17.5]
    assert rows["draft", "target", 1]["plain"] == [17.5]


def test_every_block_is_waited_for_as_in_decoding(
    pair: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a host that runs ahead of its device hides what it takes to start the runs."""
    waits = []
    monkeypatch.setattr(grid, "wait", waits.append)
    settings = GridSettings((1,), (8,), gamma_max=2, repeats=1, temperatures=())
    measure(pair, tmp_path, settings)
    # Plain steps around two draft lengths, three blocks each, once to warm and once to count.
    assert len(waits) == 2 * 5 * 3


def test_a_grid_goes_on_where_it_was(pair: tuple[Any, Any], tmp_path: Path) -> None:
    first = measure(pair, tmp_path)
    kept = tmp_path / "grid-eager-3-20-1.json"
    kept.unlink()
    again = measure(pair, tmp_path)
    other = [row for row in first.times if (row["batch"], row["context"]) != (3, 20)]
    assert [row for row in again.times if (row["batch"], row["context"]) != (3, 20)] == other
    assert json.loads(kept.read_text())["times"]


@pytest.mark.parametrize(
    ("error", "reason", "missing"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried\nmore"), "out of memory: CUDA out", 1),
        (MemoryError(), "out of memory: MemoryError", 1),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out of memory", 1),
        (CompileError("a run of 3 x 1 tokens cannot be compiled: no"), "cannot be compiled", 1),
        # A device that has gone does not come back: what is left is not tried.
        (RuntimeError("CUDA error: unspecified launch failure"), "the device failed", 2),
    ],
)
def test_what_fails_is_named_and_the_rest_is_kept(
    pair: tuple[Any, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    reason: str,
    missing: int,
) -> None:
    measured = grid._measure_cell

    def break_one(target: Any, draft: Any, cell: Any, *rest: Any) -> Any:
        if (cell.batch, cell.context) == (3, 8):
            raise error
        return measured(target, draft, cell, *rest)

    monkeypatch.setattr(grid, "_measure_cell", break_one)
    found = measure(pair, tmp_path)
    assert [row["batch"] for row in found.missing] == [3] * missing
    assert all(reason in row["reason"] for row in found.missing)
    assert {(row["batch"], row["context"]) for row in found.times} >= {(1, 8), (1, 20)}
    # What failed is tried again by the next run.
    monkeypatch.setattr(grid, "_measure_cell", measured)
    assert measure(pair, tmp_path).missing == []


def test_a_cell_goes_on_in_the_repeat_that_was_killed(
    pair: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs last as long as the random order says, so equal ones were drawn alike."""
    settings = replace(SETTINGS, batches=(1,), contexts=(8,), repeats=12)
    measured, last = list[int](), [1000]

    def time_once(models: Any, gamma_max: int, random: Any, source: Any) -> Any:
        if len(measured) == last[0]:
            raise KeyboardInterrupt
        measured.append(1)
        return [(("target", "target", 1), float(random.random()), 1.0)]

    monkeypatch.setattr(grid, "_time_once", time_once)
    whole = measure(pair, tmp_path / "whole", settings)
    # Four passes of three repeats, each warmed up; killed in the last repeat of the second.
    measured.clear()
    last[0] = 7
    with pytest.raises(KeyboardInterrupt):
        measure(pair, tmp_path / "killed", settings)
    measured.clear()
    last[0] = 1000
    again = measure(pair, tmp_path / "killed", settings)
    assert len(measured) == 2 + 2 * 4, "one repeat, warmed up, and two passes"
    assert again.times == whole.times
    assert len(again.times[0]["seconds"]) == 12


def test_passes_share_the_repeats_out(
    pair: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = [(("target", "target", 1), 1.0, 1.0)]
    monkeypatch.setattr(grid, "_time_once", lambda *_: once)
    for repeats, passes in ((3, [0, 1, 2]), (5, [0, 0, 1, 2, 3]), (6, [0, 0, 1, 1, 2, 3])):
        settings = replace(SETTINGS, batches=(1,), contexts=(8,), repeats=repeats)
        (row,) = measure(pair, tmp_path / f"{repeats}", settings).times
        assert row["passes"] == passes


def test_host_times_are_of_the_draws_that_are_asked_for(
    tiny_family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, asked = grid.decode_synthetic, list[dict[str, Any]]()

    def told(*given: Any, **named: Any) -> Any:
        asked.append(named)
        return decode(*given, **named)

    monkeypatch.setattr(grid, "decode_synthetic", told)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w5 w6 w7\nw8 w9\n")
    drawn: Any = {"top_k": 3, "top_p": 0.9, "acceptance_law": "exact-match"}
    calibrate(
        tmp_path / "p.json",
        Models(str(tiny_family["target"]), str(tiny_family["draft"]), device="cpu", threads=1),
        Measurement(
            temperature=(1.0,),
            prompts=prompts,
            requests=(2,),
            max_new_tokens=8,
            gamma_max=2,
            repeats=1,
            **drawn,
        ),
        Batches(batch=(1,), context=(8,)),
    )
    assert asked
    assert all(each == drawn for each in asked)


@pytest.mark.parametrize(
    "drawn",
    [{"top_k": 3}, {"top_p": 0.9}, {"acceptance_law": "exact-match"}, {"spread_minutes": 2.0}],
    ids=str,
)
def test_costs_alone_are_of_no_draws(drawn: dict[str, Any], tmp_path: Path) -> None:
    """A profile of costs alone does not say how tokens were drawn, and is timed in one go."""
    with pytest.raises(InvalidArgumentError, match=f"{next(iter(drawn))} .*cost_only"):
        calibrate(tmp_path / "p.json", measurement=Measurement(**drawn), cost_only=True)
    assert not list(tmp_path.iterdir())


def test_what_is_drawn_decides_a_grid() -> None:
    weights = torch.nn.Linear(1, 1)
    others: list[dict[str, Any]] = [{}, {"top_k": 3}, {"top_p": 0.9}]
    others.append({"acceptance_law": "exact-match"})
    keys = [str(_decisive((), weights, replace(SETTINGS, **other))) for other in others]
    assert len(set(keys)) == 4
    for wrong in ({"top_k": 0}, {"top_p": 0.0}, {"acceptance_law": "typical"}):
        with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
            replace(SETTINGS, **wrong)


def test_every_cell_of_every_pass_is_told(pair: tuple[Any, Any], tmp_path: Path) -> None:
    told: list[int] = []
    settings = replace(SETTINGS, repeats=3)
    for _ in range(2):  # also of what was kept
        measure_grid(*pair, settings, Checkpoint(tmp_path), lambda: told.append(1))
    assert len(told) == 2 * grid.planned_parts(pair[0], settings) == 2 * 3 * len(settings.cells)


def test_time_that_runs_out_leaves_cells_out(pair: tuple[Any, Any], tmp_path: Path) -> None:
    left = iter([True])
    found = measure_grid(*pair, SETTINGS, Checkpoint(tmp_path), more_time=lambda: next(left, False))
    assert [row["reason"] for row in found.missing] == ["out of time"] * 3


def test_a_cell_that_lacks_its_second_pass_is_measured_in_part(
    pair: tuple[Any, Any], tmp_path: Path
) -> None:
    left = iter([True] * 5)
    found = measure_grid(*pair, SETTINGS, Checkpoint(tmp_path), more_time=lambda: next(left, False))
    assert found.missing == []
    assert found.out_of_time
    cells = {(cell.batch, cell.context): reason for cell, reason in found.unfinished.items()}
    assert cells == dict.fromkeys([(1, 20), (3, 8), (3, 20)], OUT_OF_TIME)
    assert found.notes[0] == f"{UNFINISHED}batch 1, context 20, eager (out of time)"
    passes = {(row["batch"], row["context"]): {*row["passes"]} for row in found.times}
    assert passes == {(1, 8): {0, 1}} | {cell: {0} for cell in cells}
    again = measure(pair, tmp_path)
    assert (again.unfinished, again.notes, again.out_of_time) == ({}, [], False)
    assert all({*row["passes"]} == {0, 1} for row in again.times)


def measure_costs(
    family: dict[str, Path], folder: Path, repeats: int, more_time: Callable[[], bool]
) -> Calibration:
    return calibrate(
        folder / "costs.json",
        Models(str(family["target"]), str(family["draft"]), device="cpu", threads=1),
        Measurement(temperature=(0.0,), gamma_max=2, repeats=repeats),
        Batches(batch=(1, 3), context=(8,)),
        cost_only=True,
        more_time=more_time,
    )


def test_costs_without_time_are_finished_by_another_call(
    tiny_family: dict[str, Path], tmp_path: Path
) -> None:
    left = iter([True])
    first = measure_costs(tiny_family, tmp_path, 1, lambda: next(left, False))
    assert [(each.what, each.why) for each in first.left_out] == [
        ("batch 3, context 8, eager", "out of time")
    ]
    kept = [row for row in first.profile.grid if row.batch == 1]
    again = measure_costs(tiny_family, tmp_path, 1, lambda: True)
    assert (again.left_out, again.profile.missing) == ((), [])
    assert [row for row in again.profile.grid if row.batch == 1] == kept
    assert [file.name for file in tmp_path.iterdir()] == ["costs.json"]


def test_costs_without_time_for_a_second_pass_are_finished_by_another_call(
    tiny_family: dict[str, Path], tmp_path: Path
) -> None:
    left = iter([True] * 3)
    first = measure_costs(tiny_family, tmp_path, 2, lambda: next(left, False))
    assert (first.left_out, first.profile.missing) == ((), [])
    line = f"{UNFINISHED}batch 3, context 8, eager (out of time)"
    assert line in first.profile.notes
    assert line in first.warnings
    kept = [row for row in first.profile.grid if row.batch == 1]
    assert list(tmp_path.glob(".costs.json.*.work")), "what was measured is gone on with"
    again = measure_costs(tiny_family, tmp_path, 2, lambda: True)
    assert not [each for each in again.profile.notes if each.startswith(UNFINISHED)]
    assert [row for row in again.profile.grid if row.batch == 1] == kept
    assert {*again.profile.grid[-1].passes} == {0, 1}
    assert [file.name for file in tmp_path.iterdir()] == ["costs.json"]


def test_contexts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="context must be <= 12"):
        SETTINGS.check_fits(32)


def test_drafts_that_leave_no_room_for_a_context_are_refused() -> None:
    assert usual_contexts(128, 8) == (18, 72)
    assert usual_contexts(507, 83) == (1, 1)
    for refused in (lambda: usual_contexts(506, 83), lambda: SETTINGS.check_fits(20)):
        with pytest.raises(InvalidArgumentError, match=r"gamma_max must be in \[1, (82|1)\] where"):
            refused()


def test_costs_alone_from_shapes(
    tiny_family: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A config.json and a folder of weights; the profile has costs, and a fit of them."""
    out = tmp_path / "costs.json"
    config = tiny_family["target"] / "config.json"
    code, printed, err = run(
        capsys,
        "calibrate",
        "--cost-only",
        *("--target", str(config), "--draft", str(tiny_family["draft"])),
        *("--batch", "1,2", "--context", "8,16", "--gamma-max", "2", "--repeats", "1"),
        *("--device", "cpu", "--threads", "1", "--out", str(out), "--format", "json"),
    )
    assert code == 0, err
    assert {row["run"] for row in json.loads(printed)["answer"]["rows"]} == {
        "target",
        "first draft",
        "next draft",
    }
    profile = read_profile(out)
    assert profile.target.config == json.loads(config.read_text())
    assert profile.draft.config is None
    assert profile.acceptance == []
    assert isinstance(profile.grid[0], RunTime)
    assert isinstance(profile.batch_overhead[0], Overhead)
    assert fits(profile.grid)["eager", "target"](2, 2, 12) > 0
    assert not list(tmp_path.glob(".costs*"))  # no work folder is left
    # Without acceptance there is nothing to replay.
    message = fail(capsys, "optimize", "--profile", str(out))
    assert "no acceptance, only costs" in message


def test_acceptance_and_batches_in_one_profile(
    tiny_family: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w5 w6 w7\nw8 w9\n")
    out = tmp_path / "p.json"
    code, _, err = run(
        capsys,
        "calibrate",
        *("--target", str(tiny_family["target"]), "--draft", str(tiny_family["draft"])),
        *("--prompts", str(prompts), "--requests", "2", "--max-new-tokens", "12"),
        *("--batch", "1,3", "--context", "8,16", "--gamma-max", "2", "--repeats", "2"),
        *("--device", "cpu", "--threads", "1", "--out", str(out)),
    )
    assert code == 0, err
    profile = read_profile(out)
    assert len(profile.acceptance) == 2
    assert {(row.batch, row.context) for row in profile.grid} == {
        (batch, context) for batch in (1, 3) for context in (8, 16)
    }
    _, printed, err = run(
        capsys, "optimize", "--profile", str(out), "--batch", "1:3", "--format", "json"
    )
    rows = json.loads(printed)["answer"]["rows"]
    cells = [(row["temperature"], row["context"], row["batch"]) for row in rows]
    assert cells == [(t, c, b) for t in (0, 1) for c in (8, 16) for b in (1, 2, 3)]
    assert "extrapolated" not in err


def test_missing_cells_end_in_failure(
    tiny_family: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def no_memory(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(grid, "_measure_cell", no_memory)
    code, _, err = run(
        capsys,
        "calibrate",
        "--cost-only",
        *("--target", str(tiny_family["target"]), "--draft", str(tiny_family["draft"])),
        *("--batch", "1", "--context", "8", "--gamma-max", "2", "--repeats", "1"),
        *("--device", "cpu", "--out", str(tmp_path / "costs.json")),
    )
    assert code == 1
    assert "batch 1, context 8, eager is left out: out of memory" in err
    assert read_profile(tmp_path / "costs.json").missing == [
        Missing(1, 8, "eager", "out of memory: MemoryError")
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "no-such-shape.json"], "neither a known shape"),
        (["--requests", "4"], "--requests and --cost-only exclude each other"),
        (["--context", "5000"], "context must be <="),
        (["--gamma-max", "20"], "gamma_max must be in [1, 19]"),
    ],
)
def test_wrong_words_are_refused(
    tiny_family: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    pair = ["--target", str(tiny_family["target"]), "--draft", str(tiny_family["draft"])]
    out = ["--device", "cpu", "--out", str(tmp_path / "c.json")]
    assert message in fail(capsys, "calibrate", "--cost-only", *pair, *out, *words)


def test_what_another_machine_measured_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a grid would hold small batches of one card and large ones of another."""
    weights, here = torch.nn.Linear(1, 1), hardware(torch.device("cpu"))
    before = _decisive((), weights)
    monkeypatch.setattr(calibration, "hardware", lambda _: structs.replace(here, device_name="H9"))
    assert _decisive((), weights) != before
    monkeypatch.setattr(calibration, "hardware", lambda _: structs.replace(here, threads=64))
    assert _decisive((), weights) == before
    # Nor where other tokens end a text: a generation config is in no digest.
    assert _decisive((), weights, ends={2}) != before
    assert _decisive((), weights, ends={2, 1}) == _decisive((), weights, ends={1, 2})
