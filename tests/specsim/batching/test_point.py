"""Decisions by load: against the sum written out, against the papers' formula, and as typed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specsim import evaluate
from specsim.acceptance import SurvivalAcceptance
from specsim.batching.cost import CellUnavailableError, RunByRun
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.point import batch_point, best_of_cell
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.profiles import read_profile
from tests.support.loads import Priced, best_points
from tests.support.profiles import grid, overhead, write_grid

CURVE = np.array([0.8, 0.7, 0.4, 0.35])


@dataclass(frozen=True)
class MadeUp(RunByRun):
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
        alpha=SurvivalAcceptance(tuple(CURVE)), c=0.15, gamma=gamma, verify_slope=0.05, overhead=0.1
    )
    found = batch_point(CURVE, cost, gamma, batch, 0).speedup
    # ``evaluate`` charges plain decoding no overhead and a gamma of zero neither.
    assert found == pytest.approx(papers.speedup, rel=1e-12)


def test_plain_decoding_is_exactly_one() -> None:
    assert batch_point(CURVE, MadeUp(), 0, 7, 33).speedup == 1.0


def test_best_is_the_best_of_all_and_of_equals_the_smaller() -> None:
    cells = best_points(CURVE, MadeUp(), [1, 3, 30], [0, 500], 4)
    assert [(cell.context, cell.batch) for cell in cells] == list(product([0, 500], [1, 3, 30]))
    for cell in cells:
        all_of_them = [batch_point(CURVE, MadeUp(), g, cell.batch, cell.context) for g in range(5)]
        assert cell.speedup == max(setting.speedup for setting in all_of_them)
    free = Priced(lambda tokens, batch: 1.0, draft=0.0)
    assert best_of_cell([0.5, 0.0, 0.0], free, 1, 0, 3).gamma == 1
    assert best_of_cell([0.0, 0.0], free, 1, 0, 2).gamma == 0


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="known up to gamma 4, gamma 5 asked"):
        batch_point(CURVE, MadeUp(), 5, 1, 0)
    with pytest.raises(UnsupportedError, match="priced up to 3 tokens, gamma 3 needs one of 4"):
        batch_point(CURVE, MadeUp(longest=3), 3, 1, 0)
    with pytest.raises(InvalidArgumentError, match="non-increasing"):
        batch_point([0.5, 0.6], MadeUp(), 1, 1, 0)
    with pytest.raises(InvalidArgumentError, match="batch must be a whole number >= 1, got 0"):
        batch_point(CURVE, MadeUp(), 1, 0, 0)


def test_measured_cost_reads_the_grid(tmp_path: Path) -> None:
    cost = MeasuredLoadCost.of(read_profile(write_grid(tmp_path)), 1.0)
    assert cost.longest == 5
    # Means; a draft run right behind the target is slower.  A draft's repeats scatter, and leave
    # a little to what is known of its growth.
    assert cost.run_s("target", 3, 16, 64) == pytest.approx(0.01 * 2.5)
    assert cost.run_s("draft", 2, 64, 256, "target") == pytest.approx(0.0011 * 5, rel=1e-4)
    assert cost.run_s("draft", 1, 64, 256, "draft") == pytest.approx(0.0009 * 3, rel=1e-4)
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
