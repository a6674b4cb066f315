"""Predictions beside measurements: the sums, the definitions, and what is there without files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specsim import conversions, formulas
from specsim.schemes import SpeculativeDecoding
from studies.common.measured import Measured
from studies.common.study import Tables, reference
from studies.fidelity import public
from studies.fidelity.page import STUDY
from tests.support.pages import decoding, document
from tests.support.profiles import write

DECODED: list[dict[str, Any]] = [
    decoding(SpeculativeDecoding(gamma), 2.0, 1.5)
    | dict.fromkeys(("exact", "accuracy", "log_loss", "agreement"))
    | {"predicted_tokens_per_call": tokens, "law_tokens_per_call": law}
    | {"predicted_speedup": speedup, "measured_low": 1.4, "measured_high": 1.7}
    | {"acceptance": {"draft by target": 0.6}, "approximate": [], "counts_as_predicted": True}
    | {"predicted_runs": {"target": 40.0, "draft": 80.0}}
    | {"measured_runs": {"target": 50.0, "draft": 80.0}}
    for gamma, tokens, speedup in ((2, 2.2, 1.65), (4, 2.0, 1.2))
    for law in [formulas.tokens_per_call(0.6, gamma)]
]
SPEEDUPS: list[dict[str, Any]] = [
    {"temperature": 1.0, "prompts": "unseen", "gamma": gamma, "alpha": 0.6}
    | dict.fromkeys(("predicted_tokens_per_call", "measured_tokens_per_call"), 2.0)
    | {"predicted_speedup": predicted, "formula_speedup": 1.0 + gamma / 10}
    | {"measured_speedup": measured, "measured_low": measured - 0.1}
    | {"measured_high": measured + 0.1}
    | {"acceptance_error": 0.0, "cost_error": predicted / measured - 1}
    for gamma, predicted, measured in ((1, 1.1, 1.1), (2, 1.3, 1.25), (3, 1.2, 1.0))
]
SYNTHETIC: list[dict[str, Any]] = [
    {"batch": 8, "context": 512, "gamma": 3, "error_draft": 0.05, "error_verify": 0.15}
    | {"predicted_speedup": 1.1, "measured_speedup": 0.9}
]


@pytest.fixture
def measured(tmp_path: Path) -> Measured:
    path = write(tmp_path)
    for name, rows in (("decoders", DECODED), ("speedups", SPEEDUPS), ("synthetic", SYNTHETIC)):
        path.with_name(f"p.{name}.json").write_text(document(rows))
    return Measured.at(path)


@pytest.fixture
def tables(measured: Measured) -> Tables:
    return STUDY.tables(measured)


def test_every_pair_of_numbers_is_a_point(tables: Tables) -> None:
    # Tokens and speedup of two decoders and three lengths, speedup alone where they are synthetic.
    assert len(tables["points"]) == 2 * 2 + 3 * 2 + 1
    for row in tables["points"]:
        assert row["relative_error"] == pytest.approx(row["predicted"] / row["measured"] - 1)


def test_errors_by_measurement(tables: Tables) -> None:
    rows = {(row["measurement"], row["quantity"]): row for row in tables["errors"]}
    decoders = rows["all decoders", "speedup"]
    assert decoders["median_absolute_error"] == pytest.approx((0.1 + 0.2) / 2)
    assert decoders["worst_error"] == pytest.approx(-0.2)
    assert decoders["worst_setting"] == "speculative: draft 4"
    assert (decoders["within_5%"], decoders["inside_95%_interval"]) == (0, 1)
    synthetic = rows["batched, synthetic acceptance", "speedup"]
    assert (synthetic["settings"], synthetic["inside_95%_interval"]) == (1, None)


def test_budget_multiplies_up_to_the_error(tables: Tables) -> None:
    rows = {(row["measurement"], row["part"]): row for row in tables["budget"]}
    # draft 2: 10 % too many tokens and nothing else; draft 4: 20 % too dear and nothing else.
    assert rows["all decoders", "acceptance"]["worst_error"] == pytest.approx(0.1)
    assert rows["all decoders", "cost"]["worst_error"] == pytest.approx(-0.2)
    assert rows["all decoders", "cost"]["median_error"] == pytest.approx((0 - 0.2) / 2)
    assert rows["batched, synthetic acceptance", "verify"]["worst_error"] == 0.15
    assert ("batched, synthetic acceptance", "overhead") not in rows


def test_law_and_replay_stand_beside_the_count(measured: Measured, tables: Tables) -> None:
    for row, gamma, replay in zip(tables["laws"], (2, 4), (2.2, 2.0), strict=True):
        law = 1 + sum(0.6**i for i in range(1, gamma + 1))
        assert row["law_tokens_per_call"] == pytest.approx(law)
        assert row["law_over_replay"] == pytest.approx(law / replay - 1)
        assert row["law_error"] == pytest.approx(law / 2.0 - 1)
        assert row["replay_error"] == pytest.approx(replay / 2.0 - 1)
        assert row["acceptance"] == "draft by target 0.600"
    # Schemes without a law have no row.
    lawless = [{**row, "law_tokens_per_call": None} for row in DECODED]
    measured.beside("decoders").write_text(document(lawless))
    assert STUDY.tables(Measured.at(measured.path))["laws"] == []


def test_a_choice_loses_what_was_measured(tables: Tables) -> None:
    speculative, synthetic = tables["decisions"]
    # The prediction takes 2, which is best at 1.25; the formula takes 3, measured at 1.
    assert speculative["predicted_best"] == speculative["measured_best"] == 2
    assert speculative["formula_best"] == 3
    assert speculative["formula_loss"] == pytest.approx(0.2)
    assert (synthetic["predicted_best"], synthetic["measured_best"]) == (3, 0)
    assert synthetic["predicted_loss"] == pytest.approx(0.1)
    assert "formula_best" not in synthetic


def test_replay_column_is_the_packages_prediction(measured: Measured, tables: Tables) -> None:
    (load,) = measured.workloads
    for row, predicted in zip(tables["iid"], load.predict([1, 2, 3, 4]), strict=True):
        assert row["replay_speedup"] == predicted.speedup
        assert row["replay_tokens_per_call"] == predicted.tokens_per_call
        assert row["formula_speedup"] == load.formula(row["gamma"])


def test_every_public_row_is_computed_or_says_why_not(tables: Tables) -> None:
    rows = tables["public"]
    assert len(rows) == len(reference("public_measurements")) == 592
    for row in rows:
        assert (row["formula_speedup"] is None) == bool(row["why_not"])
    assert sum(row["rows"] for row in tables["public_reasons"]) == 592


def test_public_figures_by_their_definitions(tables: Tables) -> None:
    for row in tables["public"]:
        if row["meaning"] == "accepted / drafted" and row["gamma"]:
            rate = (row["tokens_per_call"] - 1) / row["gamma"]
            assert rate == pytest.approx(float(row["published"]))
            assert row["alpha"] > rate or row["gamma"] == 1
        if row["alpha"] is not None and row["gamma"] is not None:
            length = conversions.acceptance_length_from_alpha(row["alpha"], row["gamma"])
            assert length == pytest.approx(row["tokens_per_call"])
        if row["formula_speedup"] is not None:
            assert row["batch"] == "1"
            assert row["formula_speedup"] == formulas.speedup(row["alpha"], row["c"], row["gamma"])
    # llama.cpp#3649: 4 of 5 accepted is 5 tokens a block, and verification was timed at 2.157.
    (verified,) = [row for row in tables["public"] if row["with_verification"] is not None]
    assert verified["with_verification"] == pytest.approx(5 / (5 * 0.0848 + 2.157))


def test_trees_have_no_gamma() -> None:
    trees = [
        row
        for row, given in zip(public.rows(), reference("public_measurements"), strict=True)
        if "topk=" in given["gamma_or_tree"] and "topk=1;" not in given["gamma_or_tree"]
    ]
    assert len(trees) > 100
    assert all(row["gamma"] is None and row["alpha"] is None for row in trees)


def test_chains_are_extrapolated_from_the_shortest(tables: Tables) -> None:
    # vllm-project/vllm#20780, EAGLE-1: acceptance length 2.1 at K = 2, 2.47 at K = 7.
    (row,) = [
        row
        for row in tables["public_chains"]
        if "20780" in row["source"] and row["draft"] == "EAGLE-1" and row["gamma"] == 7
    ]
    alpha = conversions.alpha_from_acceptance_length(2.1, 2)
    assert row["known_gamma"] == 2
    assert row["formula_tokens_per_call"] == pytest.approx(formulas.tokens_per_call(alpha, 7))
    assert row["measured_tokens_per_call"] == 2.47
    # Block costs 1.298 at 2 and 1.390 at 3, as the source's row says.
    assert row["line_block_cost"] == pytest.approx(1.298 + 5 * (1.390 - 1.298), abs=0.005)
    # SpecForge, Qwen3-30B-A3B on math500: known at 3 and at 5, asked for at 7.
    row = next(
        row
        for row in tables["public_chains"]
        if (row["gamma"], row["task"], row["batch"]) == (7, "math500", "8")
        and row["target"] == "Qwen3-30B-A3B-Instruct-2507"
    )
    at_3, at_5 = 3.4018 / 2.0575, 4.5001 / 2.3546
    assert row["line_block_cost"] == pytest.approx(at_5 + (at_5 - at_3))
    assert row["formula_speedup"] == row["formula_tokens_per_call"] / row["line_block_cost"]


def test_published_lengths_agree_with_published_rates(tables: Tables) -> None:
    found = STUDY.checks(tables)
    assert len(found) == 10
    assert sum(check.matches for check in found) == 7


def test_page_and_figures_from_the_tables(tables: Tables) -> None:
    assert "over 6 settings" in " ".join(STUDY.opening(tables))
    assert len(STUDY.opening(tables)) == 3
    # No setting of a claim was decoded, so there is nothing to order.
    drawn = ("predicted_measured", "formula", "laws", "iid", "public", "specbundle", "cost_curve")
    assert set(STUDY.draw(tables)) == set(drawn)
