"""The study of Chen23: its printed numbers, the law behind SWI, and what is missing."""

from __future__ import annotations

import pytest

from specsim.acceptance import ConstantAcceptance
from specsim.cost import Cost
from specsim.laws import TARGET, draft, verify
from specsim.predict import renewal
from specsim.schemes import Scheme
from studies.common.decoded import costs_as_decoded
from studies.common.measured import Measured
from studies.common.study import Tables, reference
from studies.csdrafting import laws, paper
from studies.csdrafting.page import STUDY
from tests.support.pages import decoding, described, document
from tests.support.profiles import write

COSTS = {"middle": 0.2, "draft": 0.1, "max-gram": 0.01}
RATES = {
    (TARGET, "middle"): 0.8,
    (TARGET, "draft"): 0.7,
    (TARGET, "max-gram"): 0.4,
    ("middle", "draft"): 0.75,
    ("middle", "max-gram"): 0.45,
    ("draft", "max-gram"): 0.5,
}


def decoded_row(scheme: Scheme) -> dict[str, object]:
    """What ``validate --scheme`` would count if the law of ``RATES`` and ``COSTS`` were true."""
    law = laws.law_of(described(scheme), RATES)
    assert law is not None
    per_100 = 100 / law.tokens_per_call
    runs = {name: per_100 * law.calls(name) for name in (TARGET, *COSTS) if law.calls(name)}
    speed = renewal.speedup(law, Cost(COSTS))
    speeds = dict.fromkeys(("predicted_speedup", "measured_low", "measured_high"), speed)
    found = {"temperature": 0.0, "predicted_runs": runs, "measured_runs": runs, **speeds}
    quality = {"accuracy": 0.5, "log_loss": None}
    return decoding(scheme, law.tokens_per_call, speed, **found, **quality)


@pytest.fixture(scope="module")
def papers() -> Tables:
    """The tables that need no measurement."""
    return {
        "table1": [paper.table1_row(row) for row in reference("chen23_table1")],
        "table2": [paper.table2_row(row) for row in reference("chen23_table2")],
    }


def test_every_printed_row_is_checked(papers: Tables) -> None:
    items = [(check.where, check.item) for check in STUDY.checks(papers)]
    assert len(set(items)) == len(items)
    for row in reference("chen23_table1"):
        start = f"EWIF, {row['dataset']}, {row['first_drafter']} {row['k_first']}"
        rest = f", {row['second_drafter']} {row['k_second']}" if row["second_drafter"] else ""
        assert ("Chen23 Table 1", start + rest) in items
    for row in reference("chen23_table2"):
        found = [
            item
            for where, item in items
            if where == f"Chen23 Table 2 ({row['costs']})"
            and item.split(", ")[1:3] == [row["dataset"], row["drafters"]]
        ]
        assert len(found) == 1, row


def test_the_true_optimum_beats_every_allocation_of_table_1(papers: Tables) -> None:
    cnndm = papers["table1"][2]
    assert cnndm["best_allocation"] == "T5-base 5, T5-small 5"  # errata Chen23 2
    best = max(
        paper.t5_speed("CNNDM", {"T5-base": first, "T5-small": second})
        for first in range(20)
        for second in range(20)
    )
    assert cnndm["best_ewif"] == pytest.approx(best, rel=1e-12)
    assert best > cnndm["ewif"]


def test_the_printed_length_is_the_best_inside_its_band_of_alpha(papers: Tables) -> None:
    from specsim import optimize

    bands = [row for row in papers["table2"] if row["alpha_low"] is not None]
    assert len(bands) == 8
    for row in bands:
        cost = paper.COSTS[row["costs"]][f"T5-{row['drafters']}"]
        assert optimize(alpha=row["alpha_low"], c=cost).gamma == int(row["k11"])
        assert optimize(alpha=row["alpha_low"] - 0.001, c=cost).gamma < int(row["k11"])


def test_acceptances_are_found_again_from_counts() -> None:
    found = laws.acceptances([decoded_row(scheme) for scheme in laws.SCHEMES])
    assert {(row["verifier"], row["drafter"]) for row in found} == set(RATES)
    for row in found:
        assert row["alpha"] == pytest.approx(RATES[row["verifier"], row["drafter"]], abs=1e-9)


def test_steps_are_those_of_a_slow_count() -> None:
    # Steps of N tokens, P(N = n) geometric and capped, until four are there.
    step = verify(draft("inner", 2), {"inner": ConstantAcceptance(0.6)}).token_law()

    def expected(missing: int) -> float:
        if missing <= 0:
            return 0.0
        return 1 + sum(p * expected(missing - n) for n, p in enumerate(step) if n)

    assert laws.steps_to(0.6, 2, 4) == pytest.approx(expected(4), rel=1e-12)


def test_costs_are_found_again_from_speeds() -> None:
    found = costs_as_decoded([decoded_row(scheme) for scheme in laws.SCHEMES])
    assert found.pop(TARGET) == pytest.approx(1.0, abs=1e-6)
    assert found == pytest.approx(COSTS, abs=1e-6)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Of models that do just what the law says."""
    path = write(tmp_path_factory.mktemp("full"))
    rows = [decoded_row(scheme) for scheme in laws.SCHEMES]
    Measured.at(path).beside("decoders").write_text(document(rows))
    return Measured.at(path)


def test_swi_of_counts_that_follow_the_law_is_the_law(tables: Tables) -> None:
    assert len(tables["swi"]) == len(laws.SCHEMES)
    for row in tables["swi"]:
        for key in ("swi_measured_replayed", "swi_measured_law", "measured_speedup"):
            assert row["swi_measured"] == pytest.approx(row[key], rel=1e-6), row["setting"]
        # The profile knows the parameters of its own two models only.
        assert (row["swi_parameters"] is None) == ("middle" in row["setting"])


def test_the_search_finds_no_less_than_its_parts(tables: Tables) -> None:
    (row,) = tables["search"]
    assert row["exhaustive"]
    assert row["best_full"] >= row["decoded_full"]
    assert row["best_horizontal"] >= row["best_single"] - 1e-12
    # A cascade without neural drafters is in the grid: Max-Gram alone.
    alone = sum(0.4**i for i in range(11)) / (1 + COSTS["max-gram"])
    assert row["best_full"] >= alone - 1e-6


def test_the_ablation_takes_what_was_predicted_fastest(tables: Tables) -> None:
    kinds = {row["cascade"]: row for row in tables["ablation"]}
    assert kinds.keys() == {"none", "horizontal", "vertical", "both", "no neural model"}
    for row in tables["swi"]:
        if row["scheme"] == "vertical-cascade":
            assert row["predicted_speedup"] <= kinds["vertical"]["predicted_speedup"]


def test_page_and_figures_from_the_tables(tables: Tables) -> None:
    assert len(STUDY.opening(tables)) == 3
    assert len(tables["positions"]) == 4  # one trace, gamma up to 4
    assert STUDY.draw(tables).keys() == {"allocation", "positions", "swi", "search"}
