"""The study of Kim23: its printed numbers, its chain of blocks, and what is missing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specsim.formulas import bild_runs_per_call, bild_speedup, bild_tokens_per_call
from specsim.frontier import LabelledPositions
from specsim.predict import renewal
from specsim.predict.measured import MeasuredCost
from studies.bild import paper as bild_paper
from studies.bild.chain import SMALL, Chain, Thresholds, chains
from studies.bild.page import STUDY
from studies.common.measured import Measured
from studies.common.study import Tables, reference
from tests.support.profiles import write


def scored(seed: int = 3, requests: int = 12, length: int = 60) -> pd.DataFrame:
    """Made-up positions at temperature 0, some of them sure and wrong."""
    random = np.random.default_rng(seed)
    size = requests * length
    same = random.random(size) < 0.6
    large_right, small_right = random.random(size) < 0.5, random.random(size) < 0.3
    small_right = np.where(same, large_right, small_right & ~large_right)
    return pd.DataFrame(
        {
            "request": np.repeat(np.arange(requests), length),
            "logp_target": np.where(large_right, 0.0, -np.inf),
            "logp_draft": np.where(small_right, 0.0, -np.inf),
            "tv": 1.0 - same,
            "target_top_is_label": large_right.astype(float),
            "draft_top_is_label": small_right.astype(float),
            "unscaled_draft_max": np.clip(random.random(size) + 0.2 * same, 0, 1),
            "unscaled_bild_greedy": random.exponential(np.where(same, 0.5, 3.0)),
        }
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """A greedy profile with scored text beside it."""
    path = write(tmp_path_factory.mktemp("full"))
    content = json.loads(path.read_text())
    content["acceptance"][0]["sampling"]["temperature"] = 0.0
    for row in content["overhead"]:
        row["temperature"] = 0.0
    path.write_text(json.dumps(content))
    scored().to_parquet(Measured.at(path).positions_file(0.0))
    return Measured.at(path)


def test_every_printed_row_is_checked(tables: Tables) -> None:
    items = [(check.where, check.item, check.printed) for check in STUDY.checks(tables)]
    assert len(set(items)) == len(items)
    for row in reference("kim23_table1"):
        about = f"{row['row']}, {row['dataset']}"
        assert ("Kim23 Table 1", f"quality, {about}", float(row["quality"])) in items
        if row["speedup"]:
            assert ("Kim23 Table 1", f"speedup, {about}", float(row["speedup"])) in items
    for row in reference("kim23_tables3_4_5"):
        found = [
            item
            for where, item, _ in items
            if where == f"Kim23 Table {row['table']}"
            and f"{row['dataset']}, {row['method']}" in item
            and (row["table"] != "5" or not row["speedup"] or item.endswith(f" {row['speedup']}"))
        ]
        assert found, row


def test_the_law_of_table_4_has_the_printed_shares() -> None:
    from specsim.schemes import BigLittle, FallbackRollback

    for row in bild_paper.table4():
        if row["fallback"] is None:
            # Leviathan23: tokens per call, and the share of blocks with a rejection.
            alpha, gamma = row["alpha"], row["gamma"]
            tokens = (1 - alpha ** (gamma + 1)) / (1 - alpha)
            shares = 100 / tokens, 100 * (1 - alpha**gamma) / tokens
            assert tokens / (1 + gamma * row["c"]) == pytest.approx(row["speedup"])
        else:
            found = BigLittle().fractions(FallbackRollback(row["fallback"], row["rollback"]))
            shares = 100 * found.fallback, 100 * found.rollback
        assert shares == pytest.approx((row["fallback_percent"], row["rollback_percent"]))


def slow_chain(frame: pd.DataFrame, fallback: float, rollback: float, window: int) -> list[Any]:
    """Blocks (drafted, standing) of every request, token by token."""
    blocks = []
    for _, rows in frame.groupby("request"):
        each = rows.to_dict("records")
        at = 0
        while at + window < len(each):
            written = []
            while len(written) < window:
                row = each[at + len(written)]
                if row["unscaled_draft_max"] < fallback:
                    break
                written.append(row["unscaled_bild_greedy"] <= rollback or row["tv"] == 0)
            standing = written.index(False) if False in written else len(written)
            blocks.append((len(written), standing))
            at += standing + 1
    return blocks


@pytest.mark.parametrize("policy", [(0.5, 1.0, 4), (0.0, 2.0, 3), (0.7, np.inf, 4), (1.0, 1.0, 4)])
def test_the_chain_is_the_slow_one(measured: Measured, policy: tuple[float, float, int]) -> None:
    (chain,) = chains(measured.positions[0.0], [Thresholds(*policy)])
    blocks = slow_chain(scored(), *policy)
    table = np.zeros_like(chain.table)
    for block in blocks:
        table[block] += 1
    assert (table == chain.table).all()
    assert chain.blocks == len(blocks)
    assert chain.tokens == sum(standing + 1 for _, standing in blocks)
    law = chain.scheme.law(chain.counted)
    assert law.tokens_per_call == pytest.approx(chain.tokens / chain.blocks)
    runs = sum(min(drafted + 1, policy[2]) for drafted, _ in blocks) / len(blocks)
    assert law.calls(SMALL) == pytest.approx(runs)


def test_speed_of_a_chain_is_the_formula_where_the_formula_holds(measured: Measured) -> None:
    # Independent rates, v(n) = 1 + 0.1 (n - 1), c = 0.1, and a first run that costs 0.1 more.
    fallback, rollback, window = 0.3, 0.2, 4
    table = np.zeros((window + 1, window + 1))
    for j in range(window + 1):
        reached = (1 - fallback) ** j * (fallback if j < window else 1)
        for m in range(j + 1):
            table[j, m] = reached * (1 - rollback) ** m * (rollback if m < j else 1)
    counts = np.round(table * 10**9).astype(np.int64)
    chain = Chain(Thresholds(fallback, rollback, window), counts, np.zeros(1, dtype=np.bool_))
    cost: MeasuredCost = measured.workloads[0].cost
    exact = bild_speedup(fallback, rollback, window, 0.1, verify_slope=0.1, overhead=0.1)
    assert chain.speedup(cost, 30.0) == pytest.approx(float(exact), rel=1e-6)
    law = chain.scheme.law(chain.counted)
    tokens = bild_tokens_per_call(fallback, rollback, window)
    assert renewal.tokens_per_call(law) == pytest.approx(float(tokens), rel=1e-6)
    assert law.calls(SMALL) == pytest.approx(float(bild_runs_per_call(fallback, window)), rel=1e-6)


def test_the_ends_of_engagement_are_the_models_alone(measured: Measured, tables: Tables) -> None:
    positions: LabelledPositions = measured.positions[0.0]
    small, large = (1 - loss.mean() for loss in positions.losses("0-1"))
    for rule in ("rollback", "fallback"):
        rows = [
            row
            for row in tables["engagement"]
            if (row["decided_by"], row["quality"]) == (rule, "accuracy")
        ]
        assert rows[0]["value"] == pytest.approx(small)
        assert rows[-1]["value"] == pytest.approx(large)
        assert rows[-1]["above_large_low"] == rows[-1]["above_large_high"] == 0
        shares = [row["large_share"] for row in rows]
        assert shares == pytest.approx(np.linspace(0, 1, 21))


def test_fastest_is_the_fastest_that_is_good_enough(tables: Tables) -> None:
    for row in tables["fastest"]:
        fine = [
            each["speedup"]
            for each in tables["latency"]
            if each["policy"] == row["policy"]
            and each["above_large"] >= -row["accuracy_lost_at_most"] - 1e-9
        ]
        assert row["speedup"] == max(fine, default=None)


def test_operations_rise_and_memory_falls_with_drafting(tables: Tables) -> None:
    for row in tables["operations"]:
        assert row["operations"] > 1
        assert row["intensity"] == pytest.approx(
            row["operations"] / row["memory_operations"], rel=0.12
        )  # the printed bars are rounded


def test_page_and_figures_from_the_tables(tables: Tables) -> None:
    assert len(STUDY.opening(tables)) == 3
    assert STUDY.draw(tables).keys() == {"engagement", "latency", "operations"}
