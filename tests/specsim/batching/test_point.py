"""Decisions by load: against the sum written out, against the papers' formula, and as typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim import evaluate, hardware
from specsim.acceptance import SurvivalAcceptance
from specsim.batching.cost import CellUnavailableError, MeasuredLoadCost, RooflineLoadCost
from specsim.batching.point import BatchPoint, batch_point, best_of_cell
from specsim.batching.schedule import stops_paying
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.profiles import read_profile
from tests.support.command_line import SHAPES, fail, rows, run
from tests.support.profiles import grid, overhead, write, write_grid

CURVE = np.array([0.8, 0.7, 0.4, 0.35])


@dataclass(frozen=True)
class MadeUp:
    """Linear in the context, so that a mean context prices as its runs do together."""

    longest: int = 9
    host_s: float = 0.3

    def run_s(
        self, model: str, tokens: int, batch: int, context: float, follows: str = "draft"
    ) -> float:
        scale = 10.0 if model == "target" else 1.0
        cold = 1.5 if (model, follows) == ("draft", "target") else 1.0
        return cold * scale * (1 + 0.1 * tokens * batch + 0.01 * batch * (context + tokens))

    def overhead_s(self, gamma: int, batch: int) -> float:
        return self.host_s * (1 + 0.1 * batch) * (2 if gamma else 1)


@dataclass(frozen=True)
class Priced:
    """A cost that depends on the batch alone."""

    target: Callable[[int, int], float]  # of tokens and batch
    draft: float = 0.1
    host_s: float = 0.0
    longest: int = 99

    def run_s(
        self, model: str, tokens: int, batch: int, context: float, follows: str = "draft"
    ) -> float:
        return self.target(tokens, batch) if model == "target" else self.draft

    def overhead_s(self, gamma: int, batch: int) -> float:
        return self.host_s if gamma else 0.0


def written_out(cost: MadeUp, gamma: int, batch: int, context: float) -> float:
    """Seconds of a block: over who of the requests accepted everything, and run by run."""
    everything = CURVE[gamma - 1]
    seconds = 0.0
    for behind in product([False, True], repeat=batch):
        chance = np.prod([everything if one else 1 - everything for one in behind])
        block = cost.run_s("draft", 2 if any(behind) else 1, batch, context, "target")
        for later in range(1, gamma):
            block += cost.run_s("draft", 1, batch, context + later)
        block += cost.run_s("target", gamma + 1, batch, context)
        seconds += chance * (block + cost.overhead_s(gamma, batch))
    return float(seconds)


@pytest.mark.parametrize("gamma", [1, 2, 4])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_block_is_the_sum_written_out(gamma: int, batch: int) -> None:
    cost = MadeUp()
    found = batch_point(CURVE, cost, gamma, batch, 100)
    block = written_out(cost, gamma, batch, 100)
    plain = cost.run_s("target", 1, batch, 100) + cost.overhead_s(0, batch)
    tokens = 1 + CURVE[:gamma].sum()
    assert found.block_s == pytest.approx(block, rel=1e-12)
    assert found.tokens_per_call == pytest.approx(tokens, rel=1e-12)
    assert found.speedup == pytest.approx(plain * tokens / block, rel=1e-12)
    assert found.tokens_per_s == pytest.approx(batch * tokens / block, rel=1e-12)
    assert found.plain_tokens_per_s == pytest.approx(batch / plain, rel=1e-12)


@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("gamma", range(5))
def test_one_price_for_every_batch_is_the_papers_formula(gamma: int, batch: int) -> None:
    cost = Priced(lambda tokens, batch: 2.0 * (1 + 0.05 * (tokens - 1)), draft=0.3, host_s=0.2)
    papers = evaluate(
        alpha=SurvivalAcceptance(tuple(CURVE)),
        c=0.15,
        gamma=gamma,
        verify_slope=0.05,
        overhead=0.1,
    )
    found = batch_point(CURVE, cost, gamma, batch, 0).speedup
    # ``evaluate`` charges plain decoding no overhead and a gamma of zero neither.
    assert found == pytest.approx(papers.speedup, rel=1e-12)


def test_plain_decoding_is_exactly_one() -> None:
    assert batch_point(CURVE, MadeUp(), 0, 7, 33).speedup == 1.0


def best_points(
    acceptance: Any, cost: Any, batches: Any, contexts: Any, gamma_max: int
) -> list[BatchPoint]:
    """``best_of_cell`` at every context and batch, batches running fastest."""
    return [
        best_of_cell(acceptance, cost, batch, context, gamma_max)
        for context in contexts
        for batch in batches
    ]


def test_best_is_the_best_of_all_and_of_equals_the_smaller() -> None:
    cells = best_points(CURVE, MadeUp(), [1, 3, 30], [0, 500], 4)
    assert [(cell.context, cell.batch) for cell in cells] == list(product([0, 500], [1, 3, 30]))
    for cell in cells:
        all_of_them = [batch_point(CURVE, MadeUp(), g, cell.batch, cell.context) for g in range(5)]
        assert cell.speedup == max(setting.speedup for setting in all_of_them)
    free = Priced(lambda tokens, batch: 1.0, draft=0.0)
    assert best_of_cell([0.5, 0.0, 0.0], free, 1, 0, 3).gamma == 1
    assert best_of_cell([0.0, 0.0], free, 1, 0, 2).gamma == 0


@given(st.sets(st.integers(1, 40)), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_stop_is_behind_the_last_batch_that_pays(pays: set[int], most: int) -> None:
    paying = [batch for batch in range(1, most + 1) if batch in pays]
    expected = None if most in pays else max(paying, default=0) + 1
    assert stops_paying(lambda batch: batch in pays, most) == expected


@given(st.integers(0, 10**9))
@settings(max_examples=60)
def test_stop_among_very_many_batches_is_exact_where_it_is_the_only_one(last: int) -> None:
    asked: list[int] = []

    def pays(batch: int) -> bool:
        asked.append(batch)
        return batch <= last

    assert stops_paying(pays, 10**9) == (None if last == 10**9 else last + 1)
    assert len(asked) < 500


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="known up to gamma 4, gamma 5 asked"):
        batch_point(CURVE, MadeUp(), 5, 1, 0)
    with pytest.raises(UnsupportedError, match="priced up to 3 tokens, gamma 3 needs one of 4"):
        batch_point(CURVE, MadeUp(longest=3), 3, 1, 0)
    with pytest.raises(InvalidArgumentError, match="non-increasing"):
        batch_point([0.5, 0.6], MadeUp(), 1, 1, 0)
    with pytest.raises(InvalidArgumentError, match="batch must be a whole number >= 1, got 0"):
        batch_point(CURVE, MadeUp(), 1, 0, 0)


def roofline(longest: int = 9) -> RooflineLoadCost:
    return RooflineLoadCost(
        hardware.shape("llama-3.1-8b"),
        hardware.shape("llama-3.2-1b"),
        hardware.accelerator("H100-SXM"),
        longest,
    )


def test_roofline_prices_runs_as_the_roofline_does() -> None:
    cost = roofline()
    for model, shape in (("target", cost.target), ("draft", cost.draft)):
        whole = [
            hardware.roofline(shape, cost.accelerator, 3, 16, context).seconds
            for context in (100, 101)
        ]
        assert cost.run_s(model, 3, 16, 100) == whole[0]
        assert cost.run_s(model, 3, 16, 100.5) == pytest.approx(np.mean(whole), rel=1e-12)


def test_memory_holds_both_models() -> None:
    """The target alone would fit at this batch: its weights and cache need 74 of 80 GB."""
    cost = roofline()
    fits = hardware.roofline(cost.target, cost.accelerator, 9, 105, 4096).seconds
    assert fits > 0
    with pytest.raises(CellUnavailableError, match="batch 105 and 4,105 tokens a request need"):
        cost.run_s("target", 1, 105, 4096)


def test_measured_cost_reads_the_grid(tmp_path: Path) -> None:
    cost = MeasuredLoadCost.of(read_profile(write_grid(tmp_path)), 1.0)
    assert cost.longest == 5
    # Medians; a draft run right behind the target is slower.
    assert cost.run_s("target", 3, 16, 64) == pytest.approx(0.01 * 2.5)
    assert cost.run_s("draft", 2, 64, 256, "target") == pytest.approx(0.0011 * 5)
    assert cost.run_s("draft", 1, 64, 256, "draft") == pytest.approx(0.0009 * 3)
    # Linear between the measured ones, and held beyond them.
    assert cost.overhead_s(0, 1) == pytest.approx(1e-4)
    assert cost.overhead_s(3, 64) == pytest.approx(4e-4 * 64)
    assert cost.overhead_s(2, 32) == pytest.approx(3e-4 * 32)
    assert cost.overhead_s(4, 500) == cost.overhead_s(4, 64)
    assert cost.covers(64, 256)
    assert not cost.covers(65, 256)
    assert not cost.covers(64, 32)


def test_compiled_runs_are_preferred_where_measured(tmp_path: Path) -> None:
    both = {
        "grid": grid() + grid("compiled", 0.5),
        "batch_overhead": overhead() + overhead("compiled"),
    }
    profile = read_profile(write_grid(tmp_path, **both))
    times = [
        MeasuredLoadCost.of(profile, 1.0, mode).run_s("target", 1, 1, 64)
        for mode in (None, "compiled", "eager")
    ]
    assert times[0] == times[1] == pytest.approx(times[2] / 2)


def test_cells_that_could_not_be_measured_have_no_price(tmp_path: Path) -> None:
    missing = [{"batch": 32, "context": 128, "mode": "eager", "reason": "out of memory"}]
    cost = MeasuredLoadCost.of(read_profile(write_grid(tmp_path, missing=missing)), 1.0)
    with pytest.raises(CellUnavailableError, match=r"batch 32 with context 128 .* out of memory"):
        best_of_cell(CURVE, cost, 64, 256, 4)
    # Drafts of a cell just below read beyond that context; the cell has its price.
    assert best_of_cell(CURVE, cost, 64, 127, 4).speedup >= 1


@pytest.mark.parametrize(
    ("changes", "temperature", "mode", "message"),
    [
        ({"grid": []}, 1.0, None, "its grid is empty"),
        ({}, 1.0, "compiled", r"mode compiled are not in the profile \(measured: eager\)"),
        ({}, 0.0, None, r"at temperature 0 in mode eager \(measured: 1 eager\)"),
        ({"batch_overhead": overhead()[2:]}, 1.0, None, "of plain decoding at batch 1"),
        (
            {"grid": [row for row in grid() if row["model"] == "target"]},
            1.0,
            None,
            "no run times were measured",
        ),
    ],
)
def test_incomplete_grids_are_refused(
    tmp_path: Path, changes: dict[str, Any], temperature: float, mode: Any, message: str
) -> None:
    profile = read_profile(write_grid(tmp_path, **changes))
    with pytest.raises(UnsupportedError, match=message):
        MeasuredLoadCost.of(profile, temperature, mode)


def row(cell: BatchPoint, gamma_max: int, **setting: float) -> dict[str, Any]:
    """The row of a batch of its own."""
    return {**setting, **cell.row(), "at_gamma_max": cell.gamma == gamma_max > 0}


def test_optimize_by_load_from_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimize", *SHAPES, "--alpha", "0.2", "--batch", "1,64,200:201", "--context", "512"]
    code, out, err = run(capsys, *words, "--format", "json")
    cost, curve = roofline(17), np.cumprod(np.full(16, 0.2))
    cells = best_points(curve, cost, [1, 64, 200, 201], [512], 16)
    assert code == 0
    assert rows(out) == [row(cell, 16) for cell in cells]
    last = max(b for b in range(1, 202) if best_of_cell(curve, cost, b, 512, 16).speedup >= 1.01)
    assert err == f"context 512: pays by 1% or more up to batch {last}\n"
    assert json.loads(out)["answer"]["pays"] == [
        {
            "context": 512,
            "up_to_batch": last,
            "at_every_priced_batch": False,
            "largest_priced_batch": 201,
        }
    ]


def test_cells_beyond_memory_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimize", *SHAPES, "--alpha", "0.8", "--context", "4096", "--format", "json"]
    _, out, err = run(capsys, *words)
    assert [row["batch"] for row in rows(out)] == [1, 2, 4, 8, 16, 32, 64]
    (left_out,) = json.loads(out)["left_out"]
    assert left_out["what"] == "batch 128, 256 at context 4,096"
    assert "batch 128, 256 at context 4,096 is left out: both models with batch 128" in err
    until = "at every batch asked for that has a price, up to 64"
    assert f"context 4,096: pays by 1% or more {until}\n" in err
    message = fail(capsys, *words, "--batch", "128")
    assert "H100-SXM has 80 GB" in message


def test_optimize_by_load_from_a_profile(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write_grid(tmp_path)
    figure = tmp_path / "load.png"
    words = ["optimize", "--profile", str(path), "--batch", "1,64,128", "--format", "json"]
    _, out, err = run(capsys, *words, "--context", "64,300", "--figure", str(figure))
    profile = read_profile(path)
    gains = TokensPerBlock.of_trace(profile.trace(path, profile.acceptance[0]), 4)
    cost = MeasuredLoadCost.of(profile, 1.0)
    expected = best_points(gains, cost, [1, 64, 128], [64, 300], 4)
    assert rows(out) == [row(cell, 4, temperature=1.0) for cell in expected]
    outside = "batch 128 at context 64; batch 1, 64, 128 at context 300"
    assert f"extrapolated beyond the measured grid: {outside}" in err
    assert figure.read_bytes().startswith(b"\x89PNG")
    # What nobody asked for is what was measured.
    _, out, _ = run(capsys, *words)
    assert {row["context"] for row in rows(out)} == set(cost.contexts)
    _, out, err = run(capsys, *words, "--alpha", "0.9", "--gamma-max", "2")
    other = best_points([0.9, 0.81], cost, [1, 64, 128], cost.contexts, 2)
    assert rows(out) == [row(cell, 2, temperature=1.0) for cell in other]
    assert "gamma 2, the longest that was considered, is best at batch 1" in err


def test_the_picture_names_every_gamma() -> None:
    from specsim.report.load_plots import best_by_load

    cells = best_points(CURVE, MadeUp(), [1, 4, 16, 64], [0, 500], 4)
    axis = best_by_load({"some": cells, "all": cells[:-1]}).axes[1]
    found = {text.get_position(): text.get_text() for text in axis.texts}
    assert found == {(i % 4, i // 4): str(cell.gamma) for i, cell in enumerate(cells[:-1])}
    assert [patch.get_xy() for patch in axis.patches] == [(2.5, 0.5)]


def test_the_picture_of_many_batches_names_each_gamma_once() -> None:
    from specsim.report.load_plots import best_by_load

    cells = best_points(CURVE, MadeUp(), range(1, 101), [0], 4)
    gammas = [cell.gamma for cell in cells]
    axis = best_by_load({"": cells}).axes[0]
    assert [text.get_text() for text in axis.texts] == [str(g) for g in dict.fromkeys(gammas)]
    assert len(axis.get_xticks()) <= 40


def test_a_profile_of_costs_needs_alpha(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(write_grid(tmp_path, acceptance=[]))
    words = ["optimize", "--profile", path, "--batch", "1", "--context", "64", "--format", "json"]
    assert "alpha is missing: the profile has costs" in fail(capsys, *words)
    code, out, _ = run(capsys, *words, "--alpha", "0.9,0.8")
    assert code == 0
    assert rows(out)[0]["tokens_per_call"] == pytest.approx(1 + 0.9 * (1 + 0.8 + 0.64 + 0.512))


def test_it_is_said_where_it_does_not_pay(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(write_grid(tmp_path))
    words = ["optimize", "--profile", path, "--context", "64", "--alpha"]
    assert (
        "context 64: never pays by 1% or more\n" in run(capsys, *words, "0.01", "--batch", "1,2")[2]
    )
    # A target that is slow at batch 1 alone pays for drafts there last.
    slow = [
        {**row, "seconds": [0.005 * row["tokens"]] * 3}
        if (row["model"], row["batch"]) == ("target", 1)
        else row
        for row in grid()
    ]
    path = str(write_grid(tmp_path, grid=slow))
    words = ["optimize", "--profile", path, "--context", "64", "--alpha"]
    err = run(capsys, *words, "0.6", "--batch", "1,4")[2]
    assert "context 64: pays by 1% or more at every batch asked for, but not at 1" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch", "2", "--alpha", "0.8", "--c", "0.1"], "c has no meaning by load"),
        (["--batch", "2", "--alpha", "0.8"], "profile is missing, or shapes (target, draft"),
        (["--batch", "0", *SHAPES, "--alpha", "1"], "--batch must be"),
        (["--batch", "2", "bild", "--fallback", "1"], "--batch stands before the scheme bild"),
        (["--figure", "x.png", "--alpha", "0.8", "--c", "1"], "--figure draws decisions by load"),
        ([*SHAPES, "--batch", "2"], "alpha is missing: shapes say nothing of acceptance"),
        ([*SHAPES[:4], "--alpha", "1"], "--accelerator is missing"),
        (["--target", "none", *SHAPES[2:], "--alpha", "1"], "neither a known shape (deepseek-v3,"),
        ([*SHAPES[:4], "--accelerator", "X1", "--alpha", "1"], "'X1' is not known (known:"),
        (
            [*SHAPES, "--alpha", "1", "--profile", "p.json"],
            "accelerator) and profile exclude",
        ),
        ([*SHAPES, "--alpha", "1", "--temperature", "1"], "temperature needs a profile"),
        ([*SHAPES, "--alpha", "1", "--mode", "eager"], "mode needs a profile"),
        ([*SHAPES, "--alpha", "1", "--figure", "x.gif"], "must be a .png"),
        (["--profile", "none.json", "--batch", "1"], "no such file"),
    ],
)
def test_bad_loads_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert message in fail(capsys, "optimize", *words)


def test_bad_loads_of_a_profile_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["optimize", "--profile", str(write_grid(tmp_path)), "--batch", "1"]
    assert "context must be <= 512" in fail(capsys, *words, "--context", "513")
    known = "gamma_max must be <= 4 with this profile, got 5; calibrate with a larger one"
    assert known in fail(capsys, *words, "--gamma-max", "5")
    assert known in fail(capsys, *words, "--gamma-max", "5", "--alpha", "0.9")
    assert "0.5 is not in the profile" in fail(capsys, *words, "--temperature", "0.5")
    without = str(write(tmp_path))
    assert "measure them with specsim calibrate --batch" in fail(
        capsys, "optimize", "--profile", without, "--batch", "1"
    )
