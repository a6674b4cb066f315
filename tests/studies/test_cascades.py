"""Narasimhan24's rules and curves: what the study says must follow from the package's laws."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from specsim.frontier import Comparison, read_positions
from specsim.rules import LossyStar, TokenV3
from studies.cascades import rules as cascades_rules
from studies.cascades import tables as cascades_tables
from studies.cascades.page import STUDY
from studies.common.measured import Measured
from studies.common.study import Tables, reference
from tests.support.positions import frame
from tests.support.profiles import write


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Invented models; TokenV3 has Diff's quality for less, and once a quality beyond it."""
    path = write(tmp_path_factory.mktemp("profile"))
    given = frame()
    target = np.exp(given["logp_target"])
    for threshold, label, share in ((0.1, (1 + target) / 2, 1.0), (0.9, 0.7 * target, 0.1)):
        name = f"TokenV3(threshold={threshold})"
        given[f"{name}.rejection"] = given["tv"] * share
        given[f"{name}.logp"] = np.log(label)
        given[f"{name}.top"] = given["target_top_is_label"]
    given.to_parquet(path.with_name("p.positions-1.parquet"))
    return Measured.at(path)


def test_every_row_of_the_papers_table_is_checked(tables: Tables) -> None:
    found = STUDY.checks(tables)
    of_table_2 = [check for check in found if check.where == "Narasimhan24 Table 2"]
    rows = reference("narasimhan24_table2_partial")
    assert len(of_table_2) == 2 * len(rows) == 24
    assert sum(check.printed for check in of_table_2) == pytest.approx(
        sum(float(row["latency_reduction"]) + float(row["best_quality"]) for row in rows)
    )


def test_rules_emit_pi_exactly_where_pi_is_a_distribution() -> None:
    rows = cascades_rules.laws()
    assert len(rows) == 17
    assert {row["rule"] for row in rows if not row["emits_pi"]} == {"Lossy"}
    for row in rows:
        assert row["emits_pi"] == row["pi_is_distribution"]
    given = cascades_rules.pairs()
    pi = np.maximum(np.minimum(given.q, given.p / 0.7), given.p)
    kept, rest = np.minimum(given.q, pi), np.maximum(0, pi - given.q)
    # Narasimhan24 Algorithm 4, for any pi >= 0.
    emitted = kept + (1 - kept.sum(-1, keepdims=True)) * rest / rest.sum(-1, keepdims=True)
    apart = np.abs(emitted - pi / pi.sum(-1, keepdims=True)).sum(-1) / 2
    lossy = next(row for row in rows if row["rule"] == "Lossy")
    assert lossy["tv_to_pi"] == pytest.approx(apart.max())
    assert lossy["tv_to_target"] == pytest.approx((np.abs(emitted - given.p).sum(-1) / 2).mean())
    (lossless,) = [row for row in rows if row["rule"] == "Lossless"]
    assert lossless["tv_to_target"] == pytest.approx(0, abs=1e-12)


def test_worked_example_of_the_errata() -> None:
    # errata, Narasimhan24 1: sum pi = 1.129, emitted law (.429, .336, .236).
    rows = cascades_rules.example()
    assert sum(row["pi"] for row in rows) == pytest.approx(1.129, abs=5e-4)
    assert [row["emitted"] for row in rows] == pytest.approx([0.429, 0.336, 0.236], abs=5e-4)


def test_scale_of_lossy_star_solves_its_equation() -> None:
    # Narasimhan24 E.6: sum max(0, q - p / (1 - a)) = sum max(0, p / b - q).
    rows = cascades_rules.pairs()
    inverse = np.asarray(LossyStar(0.3).inverse_scale(rows))
    left = np.maximum(0, rows.q - rows.p / 0.7).sum(axis=-1)
    right = np.maximum(0, rows.p * inverse[:, None] - rows.q).sum(axis=-1)
    assert right == pytest.approx(left, abs=1e-12)
    (row,) = [row for row in cascades_rules.lossy_star() if row["looseness"] == 0.3]
    assert row["share_b_above_1"] == pytest.approx((inverse < 1).mean())


def test_token_v3_is_not_lossless_at_zero() -> None:
    rows = {row["threshold"]: row for row in cascades_rules.token_v3()}
    # errata, Narasimhan24 3: p(top) (1 - p(top)) even where q = p, and q itself at threshold 1.
    assert rows[0.0]["rejection_of_the_target_itself"] == pytest.approx(
        rows[0.0]["p_top_times_rest"]
    )
    assert rows[0.0]["p_top_times_rest"] > 0.05
    assert rows[1.0]["rejection"] == pytest.approx(0, abs=1e-12)
    same = cascades_rules.pairs()
    top = TokenV3(0.0).pi(same)[np.arange(len(same.p)), same.p.argmax(axis=-1)]
    assert (top >= same.p.max(axis=-1) - 1e-12).all()


def test_no_deferral_rule_beats_the_optimum(tables: Tables) -> None:
    for table, cost in (("frontier", "rejection"), ("deferral", "calls_per_token")):
        by_rule: dict[str, list[Any]] = defaultdict(list)
        for row in tables[table]:
            if row.get("execution", "token by token") == "token by token":
                by_rule[row["rule"]].append((row[cost], row["quality"]))
        best = np.array(sorted(by_rule["optimum"]))
        for rule in ("Chow", "Diff"):
            for spent, quality in by_rule[rule]:
                # Between its points the frontier is concave, so a chord is below it; where the
                # optimum is drawn at few points a rule may touch it but for that.
                assert quality <= np.interp(spent, *best.T) + 2e-3


def test_equal_quality_rows_are_the_packages(measured: Measured, tables: Tables) -> None:
    positions = read_positions(measured.positions_file(1.0))
    comparison = Comparison.of(positions, cascades_tables.LOSS, "unscaled")
    wanted = float(comparison.quality(comparison.target_loss))
    rows = [row for row in tables["equal_quality"] if row["gamma"] == 3]
    assert {row["gamma"] for row in tables["equal_quality"]} == {3}  # the profile ends at 4
    for name, choice in comparison.least_rejection(wanted).items():
        (row,) = [row for row in rows if row["rule"] == name]
        assert row["rejection"] == (None if choice is None else choice.rejection.best)
    optimum = comparison.optimum_rejection(wanted)
    assert rows[0]["rejection"] == optimum
    assert all(row["rejection"] is None or row["rejection"] >= rows[0]["rejection"] for row in rows)


def test_token_rules_are_paired_at_equal_quality(tables: Tables) -> None:
    rows = tables["token_against_deferral"]
    beyond = [row for row in rows if row["its_rejection"] is None]
    # Better than both models at every position: no rule that emits p or q gets there.
    assert {row["setting"] for row in beyond} == {"threshold=0.1"}
    (diff,) = [row for row in rows if row["against"] == "Diff" and row not in beyond]
    assert diff["rejection_ratio"] == pytest.approx(diff["rejection"] / diff["its_rejection"])
    assert diff["ratio_low"] < diff["rejection_ratio"] < diff["ratio_high"]


def test_chow_token_by_token_ends_at_the_prices_of_the_models(tables: Tables) -> None:
    rows = [row for row in tables["frontier"] if row["rule"] == "TokenCascade"]
    # All deferred: the first draft run of a block, at 0.2, before every target run of one token.
    assert rows[-1]["latency_gamma_3"] == pytest.approx(1 + 0.2)
    # None deferred: 4 draft runs, the first of a block at twice the price, and v(5) for 5 tokens.
    assert rows[0]["latency_gamma_3"] == pytest.approx((0.2 + 3 * 0.1 + 1.4) / 5)


def test_page_and_figures_from_the_tables(tables: Tables) -> None:
    assert " V3 is number " in " ".join(STUDY.opening(tables))
    assert len(STUDY.opening(tables)) == 3
    assert set(STUDY.draw(tables)) == {"deferral", "rejection", "latency", "token_rules"}
