"""Plans by load: where speculation stops to pay, and the commands as typed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import specsim
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.point import BatchPoint, best_of_cell
from specsim.batching.schedule import looked_at, plan, stops_paying
from specsim.batching.source import Source
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.batching.workload import BatchWorkload
from specsim.profiles import read_profile
from tests.support.command_line import SHAPES, fail, rows, run
from tests.support.loads import Priced, best_points, roofline
from tests.support.profiles import ON_H100, grid, overhead, write, write_grid


@given(st.sets(st.integers(1, 40)), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_stop_is_behind_the_last_batch_that_pays(pays: set[int], most: int) -> None:
    paying = [batch for batch in range(1, most + 1) if batch in pays]
    expected = None if most in pays else max(paying, default=0) + 1
    assert stops_paying(lambda batch: batch in pays, range(1, most + 1)) == expected


@given(st.integers(0, 10**9), st.lists(st.integers(1, 10**9), min_size=1, max_size=5))
@settings(max_examples=60)
def test_stop_between_batches_is_exact_where_it_is_the_only_one(
    last: int, looked_at: list[int]
) -> None:
    asked: list[int] = []

    def pays(batch: int) -> bool:
        asked.append(batch)
        return batch <= last

    expected = None if last >= max(looked_at) else last + 1
    assert stops_paying(pays, sorted(set(looked_at))) == expected
    assert len(asked) < 50


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=4), st.integers(600, 5000))
@settings(max_examples=25)
def test_many_batches_are_planned_as_one_by_one(ends: list[int], most: int) -> None:
    """Where the best length falls with the batch, ranges say of every batch what it alone says.

    Longer drafts pay up to some batches and none beyond the last of them.
    """
    curve = np.cumprod(np.full(6, 0.8))
    cost = Priced(
        lambda tokens, batch: 1.0 + max(tokens - 1 - sum(batch <= end for end in ends), 0), 0.01
    )
    workload = BatchWorkload(curve, lambda: TokensPerBlock.of_survival(curve), cost, 6)
    planned = plan(workload, range(1, most + 1), 0)
    # The best length changes behind each end only: those and their neighbours stand for all.
    for batch in {b for end in [*ends, most - 1] for b in (end, end + 1) if b <= most}:
        (span,) = [each for each in planned.spans if each.first.batch <= batch <= each.last.batch]
        assert span.first.point.gamma == best_of_cell(curve, cost, batch, 0, 6, 0.05).gamma
    assert planned.looked_at < most / 2
    assert planned.stops == (None if max(ends) >= most else max(ends) + 1)


def check_rows(out: str, cells: list[BatchPoint], gamma_max: int, **setting: float) -> None:
    """The rows of a JSON answer have what the points have, and more."""
    found = rows(out)
    for row, cell in zip(found, cells, strict=True):
        wanted = {**setting, **cell.row(), "at_gamma_max": cell.gamma == gamma_max > 0}
        assert {name: row[name] for name in wanted} == wanted


def test_optimize_by_load_from_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimize", *SHAPES, "--alpha", "0.2", "--batch", "1,64,200:201", "--context", "512"]
    cost, curve = roofline(17), np.cumprod(np.full(16, 0.2))
    for margin, option in ((0.05, []), (0.01, ["--margin", "0.01"])):
        code, out, err = run(capsys, *words, *option, "--format", "json")
        cells = best_points(curve, cost, [1, 64, 200, 201], [512], 16, margin)
        assert code == 0
        check_rows(out, cells, 16)
        best = [best_of_cell(curve, cost, batch, 512, 16) for batch in range(1, 202)]
        last = max((point.batch for point in best if point.pays(margin)), default=0)
        pays = (
            f"pays by {margin:.0%} or more up to batch {last}"
            if last
            else "pays by 5% or more at no batch asked for"
        )
        assert err.startswith(f"context 512: {pays}")
        answer = json.loads(out)["answer"]
        assert answer["margin"] == margin
        assert answer["pays"] == [
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
    assert "batch 128, 256 at context 4,096 is left out: llama-3.1-8b, batch 128 and 4,096" in err
    until = "at every batch asked for that has a price, up to 64"
    assert f"context 4,096: pays by 5% or more {until}, draft tokens by batch 1-64: 4\n" in err
    message = fail(capsys, *words, "--batch", "128")
    assert "H100-SXM has 80 GiB" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optimize", "--context", "512:768"], "contexts must be at most 256 numbers, got 257"),
        (["optimize", "--gamma-max", "257"], "gamma_max must be a whole number in [0, 256]"),
        (["evaluate", "--gamma", "1000000000"], "gamma must be a whole number in [0, 256]"),
        (["explain", "--gamma", "1000000000"], "gamma must be a whole number in [1, 256]"),
        (["export", "vllm", "--gamma-max", "1000000000"], "gamma_max must be a whole number in"),
    ],
)
def test_more_than_anyone_means_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    by_load = [] if words[0] in ("explain", "export") or "--context" in words else ["--batch", "4"]
    asked = [*words, "--target", "llama-3.1-8b", "--accelerator", "H100", "--drafter", "eagle3"]
    assert message in fail(capsys, *asked, "--alpha", "0.8", *by_load)


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
    check_rows(out, best_points(gains, cost, [1, 64, 128], [64, 300], 4, 0.05), 4, temperature=1.0)
    outside = "batch 128 at context 64; batch 1, 64, 128 at context 300"
    assert f"extrapolated beyond the measured grid: {outside}" in err
    assert figure.read_bytes().startswith(b"\x89PNG")
    # What nobody asked for is what was measured.
    _, out, _ = run(capsys, *words)
    assert {row["context"] for row in rows(out)} == set(cost.contexts)
    _, out, err = run(capsys, *words, "--alpha", "0.9", "--gamma-max", "2")
    other = best_points([0.9, 0.81], cost, [1, 64, 128], cost.contexts, 2, 0.05)
    check_rows(out, other, 2, temperature=1.0)
    assert "gamma 2, the longest that was considered, is best at batch 1" in err


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
    never = "context 64: pays by 5% or more at no batch asked for, draft tokens by batch 1-2: off\n"
    assert never in run(capsys, *words, "0.01", "--batch", "1,2")[2]
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
    assert "context 64: pays by 5% or more at every batch asked for, but not at 1" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch", "2", "--alpha", "0.8", "--c", "0.1"], "c has no meaning by load"),
        (["--batch", "2", "--alpha", "0.8"], "profile is missing, or a deployment (target, draft"),
        (["--batch", "0", *SHAPES, "--alpha", "1"], "--batch must be"),
        (["--batch", "2", "bild", "--fallback", "1"], "--batch stands before the scheme bild"),
        ([*SHAPES, "--alpha", "1", "--margin", "-1"], "--margin must be >= 0, got -1"),
        (["--alpha", "0.8", "--c", "0.1", "--margin", "0.1"], "margin has a meaning by load only"),
        ([*SHAPES, "--alpha", "1", "--prompt", "0"], "--prompt must be"),
        (["--figure", "x.png", "--alpha", "0.8", "--c", "1"], "--figure draws decisions by load"),
        ([*SHAPES, "--batch", "2"], "alpha is missing: draft_model:llama-3.2-1b does not say"),
        ([*SHAPES[:4], "--alpha", "1"], "--accelerator is missing"),
        (["--target", "none", *SHAPES[2:], "--alpha", "1"], "neither a known shape (deepseek-v3,"),
        ([*SHAPES[:4], "--accelerator", "X1", "--alpha", "1"], "'X1' is not known (known:"),
        ([*SHAPES, "--alpha", "1", "--profile", str(ON_H100)], "accelerator) and profile exclude"),
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
    assert "0.5 is not in the profile (measured: 1)" in fail(capsys, *words, "--temperature", "0.5")
    without = str(write(tmp_path))
    assert "measure them with specsim calibrate --batch" in fail(
        capsys, "optimize", "--profile", without, "--batch", "1"
    )


def write_temperatures(folder: Path) -> Path:
    """A profile with a grid and the host's times at two temperatures."""
    hosts = [*overhead(temperature=0.0), *overhead()]
    return write(folder, grid=grid(), batch_overhead=hosts)


@pytest.mark.parametrize(("count", "each"), [(9, 9), (5000, None)])
def test_progress_counts_the_batches_that_are_looked_at(
    count: int, each: int | None, tmp_path: Path
) -> None:
    heard: list[tuple[str, int, int]] = []
    found = specsim.optimize(
        0.7,
        profile=write_temperatures(tmp_path),
        load=specsim.Load(range(1, count + 1), [64, 80]),
        progress=lambda *said: heard.append(said),
    )
    assert [len(each.plans) for each in found.settings] == [2, 2]
    assert looked_at(count) == each or each is None
    assert looked_at(count) < 500
    total = 4 * looked_at(count)
    assert heard == [("batches", done, total) for done in range(1, total + 1)]


def test_runs_are_fitted_once_for_all_temperatures(tmp_path: Path) -> None:
    """They are the same; only what the host does may differ."""
    path = write_temperatures(tmp_path)
    costs = [each.cost for each in Source(0.7, profile=path).workloads()]
    profile = read_profile(path)
    for cost, temperature in zip(costs, (0.0, 1.0), strict=True):
        assert isinstance(cost, MeasuredLoadCost)
        assert isinstance(costs[0], MeasuredLoadCost)
        assert cost.target is costs[0].target
        alone = MeasuredLoadCost.of(profile, temperature)
        for gamma in range(3):
            assert cost.verify_s(gamma, 5, 70) == alone.verify_s(gamma, 5, 70)
            assert cost.overhead_s(gamma, 5) == alone.overhead_s(gamma, 5)
