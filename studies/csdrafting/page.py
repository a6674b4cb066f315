"""Chen23, Cascade Speculative Drafting: its tables, Figure 1, and both cascades on our models."""

from __future__ import annotations

from collections.abc import Sequence

from studies.common import orderings
from studies.common.measured import Measured
from studies.common.study import Picture, Row, Study, Tables, listed, reference
from studies.csdrafting import figures, laws, paper, tables

_CAPTIONS = {
    "table1": "Chen23 Table 1. Allocations of two drafters, and the best ones; `ewif` at the costs "
    "that give the printed numbers, `ewif_ms` and `ewif_pw` at the paper's two cost sets.",
    "table2": "Chen23 Table 2. The best lengths it prints; for a single drafter the alphas under "
    "which the printed length is the best, and the best lengths there at the other costs.",
    "positions": "Chen23 Figure 1 on our models. Acceptance by the position in the block.",
    "costs": "What a run costs, in target runs. By parameters, timed alone, and as decoded.",
    "swi": "Chen23 Table 2 on our models. SWI counted, replayed, and from the law. The law's rates "
    "come from the single drafters and reviewers among these rows: those rows it repeats, the "
    "cascades it predicts.",
    "ablation": "No cascade, one, and both. The setting of each kind that was predicted fastest.",
    "acceptances": "Who accepts whom. The constant rate that gives what was counted; the law and "
    "the search start from it.",
    "search": "The best cascade of the law. Searched over matrices of lengths.",
    "orderings": orderings.CAPTION,
}

_PICTURES = {
    "allocation": Picture(figures.allocation, ("table1",)),
    "positions": Picture(figures.positions, ("positions",)),
    "swi": Picture(figures.swi, ("swi",)),
    "search": Picture(figures.search, ("search",)),
}

_CLAIM = (
    "Chen23 lets a better drafter write the first tokens of a block and a cheaper one the later "
    "ones (horizontal), and lets no model draft token by token (vertical). It claims that both "
    "together beat every single drafter, by up to 72 %."
)

_NO_CASCADES = (
    "Cascades of three drafters were not decoded with this profile (`specsim validate --scheme "
    "all`), so its orderings and its SWI are not held against our models."
)


def _compute(measured: Measured) -> dict[str, Sequence[Row]]:
    costs = list(tables.costs(measured))
    acceptances = laws.acceptances(measured.decoded)
    swi = list(tables.swi(measured, costs, acceptances))
    return {
        "table1": [paper.table1_row(row) for row in reference("chen23_table1")],
        "table2": [paper.table2_row(row) for row in reference("chen23_table2")],
        "positions": list(tables.positions(measured)),
        "costs": costs,
        "swi": swi,
        "ablation": list(tables.ablation(swi)),
        "acceptances": acceptances,
        "search": list(tables.searched(costs, acceptances)),
        "orderings": orderings.compute(measured, "Chen23"),
    }


def _opening(found: Tables) -> Sequence[str]:
    return _CLAIM, _found(found), _differs(found) if found["search"] else _NO_CASCADES


def _found(found: Tables) -> str:
    rows = found["table1"]
    follow, *stated = (
        sum(abs(row[name] - row["printed"]) < paper.PRINTED for row in rows)
        for name in ("ewif", "ewif_ms", "ewif_pw")
    )
    missed = [row for row in rows if row["allocation"] != row["best_allocation"]]
    better = listed(
        [
            f"{row['best_allocation']} on {row['dataset']} (not {row['allocation']})"
            for row in missed
        ]
    )
    lengths = [check for check in paper.checks(found) if check.item.endswith(paper.FROM_OTHER)]
    return (
        f"At costs found from Table 1 itself {follow} of its {len(rows)} rows follow, and at the "
        f"paper's own two cost sets {stated[0]} and {stated[1]}. The allocations that it prints "
        f"are the best ones in {len(rows) - len(missed)} of {len(rows)} rows; the law finds better "
        f"ones in {len(missed)}: {better}. "
        f"{sum(check.matches for check in lengths)} of {len(lengths)} best lengths in Table 2 "
        "agree with the acceptance that the table's other half implies. Its SWI cannot be "
        "computed, as no acceptance is printed."
    )


def _differs(found: Tables) -> str:
    claims, searched = found["orderings"], found["search"]
    holds, fails = (
        sum(row["verdict"] == verdict for row in claims) for verdict in ("holds", "fails")
    )
    lowest = min(claims, key=lambda row: row["measured_ratio"])
    costs = {row["model"]: row["as_decoded"] for row in found["costs"]}
    drafts = [cost for prices in paper.COSTS.values() for cost in prices.values()]
    copying = sum(row["full_lengths"].startswith("0 0 ") for row in searched)
    return (
        f"On our models {holds} of {len(claims)} of its orderings hold by prediction and by the "
        f"clock, and {fails} fail. The lowest ratio is that of {lowest['faster']}, which ran at "
        f"{lowest['measured_ratio']:.2f} times the speed of {lowest['slower']}. SWI charges a "
        f"verifying run 1, and the paper a draft run {min(drafts):.2g} to {max(drafts):.2g}; while "
        f"decoding ours took {costs['target']:.2f} and {costs['draft']:.2f} plain steps. "
        f"{copying} of {len(searched)} searches for the best cascade of the law end with Max-Gram "
        "alone."
    )


STUDY = Study(
    "Chen23: Cascade Speculative Drafting",
    _CAPTIONS,
    _PICTURES,
    _compute,
    _opening,
    paper.checks,
)
