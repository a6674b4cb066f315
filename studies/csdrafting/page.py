"""Chen23, Cascade Speculative Drafting: Tables 1 and 2, Figure 1, and both cascades on our models.

SWI counts runs instead of timing them: tokens / sum_i c_i runs_i with c = 1 for the target (Chen23
section 5).  The paper prices runs twice: MS, a ratio of model sizes, and PW, costs of runs as
measured in previous work.  Ours are the ratio of parameters, and what a run cost while decoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specsim.cost import Cost
from specsim.optimizers.allocation import Drafter, allocate
from specsim.optimizers.cascade import search
from specsim.optimizers.gamma import optimize
from specsim.predict import renewal
from specsim.schemes.full_cascade import FullCascade
from studies.common import orderings
from studies.common.measured_rows import by_temperature, costs_as_decoded, family_file
from studies.common.study import Measured, Row, Tables, reference
from studies.csdrafting import laws, paper
from studies.csdrafting.figures import draw
from studies.csdrafting.paper import checks

__all__ = ["CAPTIONS", "FIGURES", "TITLE", "checks", "compute", "draw", "opening"]

TITLE = "Chen23: Cascade Speculative Drafting"
CAPTIONS = {
    "table1": "Chen23 Table 1. Allocations of two drafters, and the best ones; `ewif` at the costs "
    "that give the printed numbers, `ewif_ms` and `ewif_pw` at the paper's two cost sets.",
    "table2": "Chen23 Table 2. The best lengths it prints; for a single drafter the alphas under "
    "which the printed length is the best, and the best lengths there at the other costs.",
    "positions": "Chen23 Figure 1 on our models. Acceptance by the position in the block.",
    "costs": "What a run costs, in target runs. By parameters, timed alone, and as decoded.",
    "swi": "Chen23 Table 2 on our models. SWI counted, replayed, and from the law, whose rates "
    "come from the single drafters and reviewers among these rows: those rows it repeats, the "
    "cascades it predicts.",
    "ablation": "No cascade, one, and both. The setting of each kind that was predicted fastest.",
    "acceptances": "Who accepts whom. The constant rate that gives what was counted, which the law "
    "and the search are fed with.",
    "search": "The best cascade of the law. Searched over matrices of lengths.",
    "orderings": "Who beats whom according to the paper. Ratios of the speedup of the one said to "
    "be faster to the other's.",
}

FIGURES = {
    "allocation": "Chen23 Table 1: EWIF by the second drafter's share, printed and best.",
    "positions": "Chen23 Figure 1 on our models: off the dashed lines acceptance is not the same "
    "alpha everywhere.",
    "swi": "Chen23 Table 2 on our models: SWI, which charges every verifying run 1, beside the "
    "speedup by the clock.",
    "search": "The best cascade of the law at both sets of costs, with its matrix of lengths "
    "(first line: before the target).",
}

# Lengths of a full cascade that are tried: (k11, k12, Max-Gram), (k22, Max-Gram), Max-Gram.
_LENGTHS = ((range(7), range(5), (0, 5, 10)), ((1, 2, 3), (0, 5)), ((5, 10),))
# What runs of T5-small and T5-base cost by either of the paper's cost sets.
_DRAFT_COSTS = " to ".join(
    f"{end(cost for costs in paper.COSTS.values() for cost in costs.values()):.2g}"
    for end in (min, max)
)
_KINDS = {
    "none": ("speculative",),
    "horizontal": ("horizontal",),
    "vertical": ("vertical",),
    "both": ("full",),
}


def compute(measured: Measured) -> Tables:
    costs = _costs(measured)
    acceptances = laws.acceptances(measured.decoded, measured.source)
    swi = _swi(measured, costs, acceptances)
    return {
        "table1": [paper.table1_row(row) for row in reference("chen23_table1")],
        "table2": [paper.table2_row(row) for row in reference("chen23_table2")],
        "positions": _positions(measured),
        "costs": costs,
        "swi": swi,
        "ablation": _ablation(swi),
        "acceptances": acceptances,
        "search": _search(costs, acceptances, measured.source),
        "orderings": orderings.compute(measured, "Chen23"),
    }


# --- our models ----------------------------------------------------------------------------------


def _positions(measured: Measured) -> list[dict[str, Any]]:
    rows = []
    for workload in measured.workloads:
        known = workload.measured
        for i, (rate, curve) in enumerate(zip(known.conditional, known.survival, strict=True), 1):
            rows.append(
                {
                    "temperature": known.sampling.temperature,
                    "position": i,
                    "conditional": rate.best,
                    "conditional_low": rate.low,
                    "conditional_high": rate.high,
                    "survival": curve.best,
                    "survival_low": curve.low,
                    "survival_high": curve.high,
                    "alpha": known.alpha.best,
                    "iid_survival": known.alpha.best**i,
                    "source": measured.source,
                }
            )
    return rows


def _costs(measured: Measured) -> list[dict[str, Any]]:
    """Of every drafter, in target runs: parameters, timed alone, and as decoded."""
    target, draft = measured.profile.target, measured.profile.draft
    parameters = {
        "draft": draft.parameters,
        **dict.fromkeys(laws.WITHOUT_PARAMETERS, 0),
        **{
            role: count
            for role, count in family_file(measured, "training.json").get("parameters", {}).items()
            if role == "middle"
        },
    }
    decoded = costs_as_decoded(measured.decoded)
    timed = float(np.mean([each.draft_cost for each in measured.workloads]))
    return [
        {
            "model": model,
            "parameters": parameters.get(model),
            "parameter_ratio": parameters[model] / target.parameters
            if model in parameters
            else None,
            "timed_alone": timed if model == "draft" else None,
            "as_decoded": decoded.get(model),
            "source": measured.source,
        }
        for model in dict.fromkeys(["draft", *sorted(decoded)])
    ]


def cost_sets(costs: Sequence[Row]) -> dict[str, dict[str, float]]:
    """The two sets of c of our models, by what the tables call them; only what is known."""
    return {
        name: {
            row["model"]: row[column]
            for row in costs
            if row[column] is not None and row["model"] != "target"
        }
        for name, column in (("parameters", "parameter_ratio"), ("measured", "as_decoded"))
    }


def _swi(
    measured: Measured, costs: Sequence[Row], acceptances: Sequence[Row]
) -> list[dict[str, Any]]:
    schemes = sum(_KINDS.values(), ())
    rows = []
    for each in measured.decoded:
        if each["scheme"] not in schemes:
            continue
        law = laws.law_of(each["setting"], laws.rates(acceptances, each["temperature"]))
        row = {key: each[key] for key in ("temperature", "scheme", "setting")}
        for name, prices in cost_sets(costs).items():
            drafts = {
                model: prices.get(model) for model in each["measured_runs"] if model != "target"
            }
            known = None not in drafts.values()
            row[f"swi_{name}"] = _priced(each["measured_runs"], prices) if known else None
            row[f"swi_{name}_replayed"] = _priced(each["predicted_runs"], prices) if known else None
            row[f"swi_{name}_law"] = (
                renewal.speedup(law, Cost(prices)) if known and law is not None else None
            )
        for key in ("predicted_speedup", "measured_speedup", "measured_low", "measured_high"):
            row[key] = each[key]
        rows.append({**row, "source": measured.source})
    return rows


def _priced(runs: Mapping[str, float], prices: Mapping[str, float]) -> float:
    """SWI of runs per 100 tokens; a target run costs 1, however many tokens it reads."""
    return 100 / sum(count * prices.get(model, 1.0) for model, count in runs.items())


def _ablation(swi: Sequence[Row]) -> list[dict[str, Any]]:
    """The setting of each kind that was predicted fastest: chosen before it was decoded."""
    rows = []
    for temperature, here in by_temperature(swi):
        # Chen23's claim is about neural drafters: counts and copies are a baseline of their own.
        neural = [row for row in here if _drafts_with_a_model(row["setting"])]
        groups = {
            kind: [row for row in neural if row["scheme"] in schemes]
            for kind, schemes in _KINDS.items()
        }
        groups["no neural model"] = [row for row in here if row not in neural]
        for kind, found in groups.items():
            if found:
                best = max(found, key=lambda row: row["predicted_speedup"])
                rows.append({"temperature": temperature, "cascade": kind, **best})
    return rows


def _drafts_with_a_model(setting: str) -> bool:
    return not setting.startswith(("Max-Gram", "prompt lookup", "unigram", "bigram"))


def _search(costs: Sequence[Row], acceptances: Sequence[Row], source: str) -> list[dict[str, Any]]:
    rows = []
    for temperature, found_at in by_temperature(acceptances):
        known = laws.rates(found_at, temperature)
        if len(known) < len(laws.PAIRS):
            continue
        for name, prices in cost_sets(costs).items():
            if not {"middle", "draft", "max-gram"} <= prices.keys():
                continue
            cost = Cost({model: prices[model] for model in ("middle", "draft", "max-gram")})
            accepted = laws.known_acceptances(known)
            found = search(("middle", "draft", "max-gram"), {1.0: accepted}, _LENGTHS, cost)
            decoded = FullCascade(found.scheme.drafters, laws.DECODED_FULL)
            single = [
                optimize(alpha=known["target", model], c=prices[model], gamma_max=30)
                for model in ("middle", "draft")
            ]
            # Token by token, and no copying: Max-Gram is what a cascade adds.
            team = [
                Drafter(model, known["target", model], prices[model])
                for model in ("middle", "draft")
            ]
            horizontal = allocate(team, max_length=30)
            rows.append(
                {
                    "temperature": temperature,
                    "costs": name,
                    "best_single": max(each.speedup for each in single),
                    "best_horizontal": horizontal.speedup,
                    "horizontal_lengths": paper.named(horizontal.allocation),
                    "best_full": found.speedup,
                    "full_lengths": _matrix(found.scheme.lengths),
                    "decoded_full": renewal.speedup(decoded.law(accepted), cost),
                    "decoded_lengths": _matrix(laws.DECODED_FULL),
                    "candidates": found.candidates,
                    "evaluated": found.evaluated,
                    "exhaustive": found.exhaustive,
                    "source": source,
                }
            )
    return rows


def _matrix(lengths: Sequence[Sequence[int]]) -> str:
    return " / ".join(" ".join(map(str, row)) for row in lengths)


# --- what it says --------------------------------------------------------------------------------


def opening(tables: Tables) -> str:
    said = (
        "Chen23 claims that a better drafter should write the first tokens of a block and a "
        "cheaper one the later ones (horizontal), that no model should draft token by token "
        "(vertical), and that both together beat every single drafter, by up to 72 %."
    )
    return " ".join([said, _found(tables), _difference(tables)])


def _found(tables: Tables) -> str:
    rows = tables["table1"]
    following = sum(abs(row["ewif"] - row["printed"]) < paper.PRINTED for row in rows)
    stated = sum(
        abs(row[f"ewif_{costs}"] - row["printed"]) < paper.PRINTED
        for row in rows
        for costs in ("ms", "pw")
    )
    missed = [row for row in rows if row["allocation"] != row["best_allocation"]]
    better = "".join(
        f", though on {row['dataset']} {row['best_allocation']} beats {row['allocation']}"
        for row in missed
    )
    lengths = [check for check in checks(tables) if check.item.endswith(paper.FROM_OTHER)]
    return (
        f"{following} of {len(rows)} rows of its Table 1 follow at costs found from that table "
        f"({stated} at either of its stated costs){better}; "
        f"{sum(check.matches for check in lengths)} of {len(lengths)} best lengths in "
        "Table 2 agree with the acceptance that its other half implies, and its SWI cannot be "
        "computed, as no acceptance is printed."
    )


def _difference(tables: Tables) -> str:
    claims, searched = tables["orderings"], tables["search"]
    if not claims:
        return (
            "Cascades of our own models were not decoded with this profile "
            "(specsim validate --scheme all), so only acceptance by position is shown for them."
        )
    holds = sum(row["verdict"] == "holds" for row in claims)
    failing = [row for row in claims if row["verdict"] == "fails"]
    text = f"On our models {holds} of {len(claims)} of its orderings hold by prediction and clock"
    if failing:
        worst = min(failing, key=lambda row: row["measured_ratio"])
        text += (
            f" and {len(failing)} fail (the worst: {worst['faster']} at "
            f"{worst['measured_ratio']:.2f} times the speed of {worst['slower']})"
        )
    costs = {row["model"]: row["as_decoded"] for row in tables["costs"]}
    if costs["draft"] is not None and costs.get("target") is not None:
        text += (
            f", where a verifying run took {costs['target']:.2f} plain steps (SWI charges 1) and a "
            f"draft run {costs['draft']:.2f} (in the paper {_DRAFT_COSTS})"
        )
    if searched:
        copying = sum(row["full_lengths"].startswith("0 0 ") for row in searched)
        text += f"; {copying} of {len(searched)} searches end with Max-Gram alone"
    return text + "."
