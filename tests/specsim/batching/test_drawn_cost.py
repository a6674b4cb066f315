"""A grid's cost as draws is the cost where repeats agree, and as wide as they differ elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.validate.batching import Segments, compare_cell
from specsim.batching.decision import decide
from specsim.batching.drawn_cost import DrawnLoadCost
from specsim.batching.lookup_cost import LookupCost
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.point import batch_point
from specsim.batching.source import Source
from specsim.profiles import DRIFT, read_profile
from tests.support.profiles import grid, overhead, write_grid

LOOKUP = Path(__file__).parents[3] / "studies/measured/blind/quiet-blocks/prompt-lookup-2.json"
CURVE = [0.8, 0.6, 0.5, 0.4]


def spread(rows: list[dict[str, Any]], by: float, passes: int) -> list[dict[str, Any]]:
    """The rows in so many passes of two repeats, with the draft's runs ``by`` apart."""
    signs = [(-1) ** number for number in range(passes)]
    for row in rows:
        off = by if row.get("model") == "draft" else 0.0
        first = row["seconds"][0]
        row["seconds"] = [first * np.exp(off * sign) for sign in signs for _ in range(2)]
        row["plain"] = [row["plain"][0] if "plain" in row else 0.01] * (2 * passes)
        row["passes"] = [number for number in range(passes) for _ in range(2)]
    return rows


def drawn(folder: Path, by: float, passes: int) -> DrawnLoadCost:
    rows = {"grid": spread(grid(), by, passes), "batch_overhead": spread(overhead(), by, passes)}
    profile = read_profile(write_grid(folder, **rows))
    return DrawnLoadCost.of(profile, 1.0, MeasuredLoadCost.of(profile, 1.0, "eager"))


@pytest.mark.parametrize("passes", [1, 4])
def test_repeats_that_agree_leave_nothing_open(tmp_path: Path, passes: int) -> None:
    cost = drawn(tmp_path, 0.0, passes)
    assert isinstance(cost.cost, MeasuredLoadCost)
    for gamma, batch in ((0, 1), (1, 4), (3, 16), (4, 9)):
        found = np.asarray(batch_point(CURVE, cost, gamma, batch, 64).speedup)
        best = batch_point(CURVE, cost.cost, gamma, batch, 64)
        assert found == pytest.approx(best.speedup)
        assert cost.overhead_s(gamma, batch) == pytest.approx(best.spent.overhead_s)


def test_drafts_that_differ_by_pass_widen_what_rests_on_them(tmp_path: Path) -> None:
    cost = drawn(tmp_path, 0.1, 8)
    wide = [np.asarray(batch_point(CURVE, cost, gamma, 4, 64).speedup) for gamma in (0, 1, 4)]
    assert np.ptp(wide[0]) == pytest.approx(0, abs=1e-9)
    low, high = np.quantile(np.log(wide[1]), [0.025, 0.975])
    # Of eight passes off by a tenth each, the mean of the draft's run is off by 0.1 / sqrt(7), by
    # Student's t at seven degrees 2.36 times that on either side; a block is a tenth of it draft.
    point = batch_point(CURVE, cost.cost, 1, 4, 64).spent
    reach = 2.36 * 0.1 / np.sqrt(7) * point.draft_s / point.block_s
    assert high - low == pytest.approx(2 * reach, rel=0.15)
    assert np.ptp(wide[2]) > np.ptp(wide[1])


def test_one_pass_is_drawn_by_its_repeats(tmp_path: Path) -> None:
    rows = [{**row, "passes": [0] * len(row["seconds"])} for row in grid()]
    profile = read_profile(write_grid(tmp_path, grid=rows))
    cost = DrawnLoadCost.of(profile, 1.0, MeasuredLoadCost.of(profile, 1.0, "eager"))
    assert len(cost.draws.passes) == 3
    assert np.ptp(cost.run_s("draft", 1, 1, 64)) > 0


def test_decisions_have_what_repeats_leave_open(tmp_path: Path) -> None:
    """Beside acceptance and drift, and at the low end what the best length is flattered by."""
    random = np.random.default_rng(0)
    rows, host = spread(grid(), 0.0, 8), spread(overhead(), 0.0, 8)
    for row in (each for each in rows if each["model"] == "target" and each["tokens"] > 1):
        row["seconds"] = (np.array(row["seconds"]) * np.exp(0.1 * random.normal(size=16))).tolist()
    path = write_grid(tmp_path, grid=rows, batch_overhead=host)
    (asked,) = Source(profile=path, alpha=0.5).workloads(4)
    assert isinstance(asked.cost, MeasuredLoadCost)
    cost = DrawnLoadCost.of(read_profile(path), 1.0, asked.cost)
    wide = [np.asarray(batch_point(asked.gains, cost, g, 4, 64).speedup) for g in range(5)]
    best = np.array([batch_point(asked.gains, asked.cost, g, 4, 64).speedup for g in range(5)])
    gamma = int(best.argmax())
    assert gamma > 0
    low, high = np.log(np.quantile(wide[gamma], [0.025, 0.975]) / best[gamma])
    drift = np.log1p(1.96 * DRIFT)
    found = decide(asked, 4, 64, 0.0).speedup
    assert found is not None
    assert found.best == pytest.approx(best[gamma])
    assert found.high == pytest.approx(best[gamma] * np.exp(np.hypot(high, drift)))
    flattered = float(np.mean(np.max(wide, axis=0) - best[np.argmax(wide, axis=0)]))
    assert flattered > 0
    expected = (best[gamma] - flattered) * np.exp(-np.hypot(low, drift))
    assert found.low == pytest.approx(expected)
    # A length that was asked for flatters nobody.
    given = decide(asked, 4, 64, 0.0, gamma=gamma).speedup
    assert given is not None
    assert given.low == pytest.approx(best[gamma] * np.exp(-np.hypot(low, drift)))


def test_lookups_have_what_repeats_leave_open_too() -> None:
    (asked,) = Source(profile=LOOKUP, temperature=0.0).workloads()
    assert isinstance(asked.cost, LookupCost)
    assert asked.drawn_cost is not None
    context = asked.cost.contexts[0]
    best = batch_point(asked.gains, asked.cost, 4, 1, context).speedup
    wide = np.asarray(batch_point(asked.gains, asked.drawn_cost, 4, 1, context).speedup)
    assert np.median(wide) == pytest.approx(best, rel=0.01)
    found = decide(asked, 1, context, 0.0, gamma=4).speedup
    assert found is not None
    ends = asked.gains_interval
    assert ends is not None
    parts = [np.log(best / np.quantile(wide, 0.025)), np.log1p(1.96 * DRIFT)]
    parts.append(np.log(asked.gains.tokens[4] / ends[0].tokens[4]))
    assert parts[0] > 0
    assert found.low == pytest.approx(best * np.exp(-np.linalg.norm(parts)))


def test_a_cell_has_the_intervals_of_its_costs(tmp_path: Path) -> None:
    from calibrate.batch.synthetic import Timed

    cost = drawn(tmp_path, 0.05, 4)
    decoded = {}
    plain_s = batch_point(CURVE, cost.cost, 0, 4, 64).block_s
    for gamma in range(3):
        block_s = batch_point(CURVE, cost.cost, gamma, 4, 64).block_s
        one = Timed(4, 64, gamma, 2, 8, 2 * block_s, 0.0, 0.0, 0, 0)
        decoded[gamma] = Segments((one,) * 4, (plain_s,) * 4)
    timed = compare_cell(decoded, cost.cost, CURVE, 4, 64, cost, 0.0)
    missed = compare_cell(decoded, cost.cost, CURVE, 4, 64, cost, 0.1)
    for row, more in zip(timed, missed, strict=True):
        assert row["predicted_low"] < row["predicted_speedup"] < row["predicted_high"]
        reach = np.log(row["predicted_high"] / row["predicted_speedup"])
        wider = np.log(more["predicted_high"] / more["predicted_speedup"])
        assert wider == pytest.approx(np.hypot(reach, np.log1p(0.1)))
