"""Chen23, Cascade Speculative Drafting: Tables 1 and 2, Figure 1, and both cascades on our models.

SWI counts runs instead of timing them: tokens / sum_i c_i runs_i with c = 1 for the target (Chen23
section 5).  The paper prices runs twice: MS, a ratio of model sizes, and PW, costs of runs as
measured in previous work.  Ours are the ratio of parameters, and what a run cost while decoding.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import calibrate
from specsim.allocation import Drafter, allocate
from specsim.cascade_search import search
from specsim.cost import Cost
from specsim.decide import optimize
from specsim.predict import renewal
from specsim.schemes.full_cascade import FullCascade
from studies import csdrafting_laws as laws
from studies import csdrafting_paper as paper
from studies.orderings import compute as orderings
from studies.study import Check, Measured, Row, Tables, reference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Chen23: Cascade Speculative Drafting"
CAPTIONS = {
    "table1": "Chen23 Table 1: allocations of two drafters, and the best ones",
    "table2": "Chen23 Table 2: the best lengths it prints, and what they say of acceptance",
    "positions": "Chen23 Figure 1 on our models: acceptance by the position in the block",
    "costs": "What a run costs, in target runs: by parameters, timed alone, as decoded",
    "swi": "Chen23 Table 2 on our models: SWI counted, replayed, and from the law",
    "ablation": "No cascade, one, and both: the best decoded setting of each",
    "acceptances": "Who accepts whom: the constant rate that gives what was counted",
    "search": "The best cascade of the law, over matrices of lengths",
    "orderings": "Who beats whom according to the paper",
}

# Lengths of a full cascade that are tried: (k11, k12, Max-Gram), (k22, Max-Gram), Max-Gram.
_LENGTHS = ((range(7), range(5), (0, 5, 10)), ((1, 2, 3), (0, 5)), ((5, 10),))
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
    claims = [row for row in orderings(measured.decoded) if row["source"].startswith("Chen23")]
    return {
        "table1": [paper.table1_row(row) for row in reference("chen23_table1")],
        "table2": [paper.table2_row(row) for row in reference("chen23_table2")],
        "positions": _positions(measured),
        "costs": costs,
        "swi": swi,
        "ablation": _ablation(swi),
        "acceptances": acceptances,
        "search": _search(costs, acceptances, measured.source),
        "orderings": [
            {**row, "claimed_in": row["source"], "source": measured.source} for row in claims
        ],
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


def family_file(measured: Measured, name: str) -> dict[str, Any]:
    """A file of the embedded family's, if that is what was measured; else nothing."""
    if not measured.profile.target.name.startswith("embedded/"):
        return {}
    file = Path(calibrate.__file__).parent / "family" / name
    found: dict[str, Any] = json.loads(file.read_text())
    return found


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
    decoded = laws.costs_as_decoded(measured.decoded)
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
    for temperature in sorted({row["temperature"] for row in swi}):
        # Chen23's claim is about neural drafters: copying alone is a baseline of its own.
        here = [row for row in swi if row["temperature"] == temperature]
        neural = [row for row in here if _drafts_with_a_model(row["setting"])]
        groups = {
            kind: [row for row in neural if row["scheme"] in schemes]
            for kind, schemes in _KINDS.items()
        }
        groups["copying alone"] = [row for row in here if row not in neural]
        for kind, found in groups.items():
            if found:
                best = max(found, key=lambda row: row["predicted_speedup"])
                rows.append({"temperature": temperature, "cascade": kind, **best})
    return rows


def _drafts_with_a_model(setting: str) -> bool:
    return not setting.startswith(("Max-Gram", "prompt lookup", "unigram", "bigram"))


def _search(costs: Sequence[Row], acceptances: Sequence[Row], source: str) -> list[dict[str, Any]]:
    rows = []
    for temperature in sorted({row["temperature"] for row in acceptances}):
        known = laws.rates(acceptances, temperature)
        if len(known) < len(laws.PAIRS):
            continue
        for name, prices in cost_sets(costs).items():
            if not {"middle", "draft", "max-gram"} <= prices.keys():
                continue
            cost = Cost({model: prices[model] for model in ("middle", "draft", "max-gram")})
            table = laws.acceptance_table(known)
            found = search(("middle", "draft", "max-gram"), {1.0: table}, _LENGTHS, cost)
            decoded = FullCascade(found.scheme.drafters, laws.DECODED_FULL, table)
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
                    "decoded_full": renewal.speedup(decoded.law(), cost),
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
    claim = (
        "Chen23 claims that a better drafter should write the first tokens of a block and a "
        "cheaper one the later ones (horizontal), that no model should draft token by token "
        "(vertical), and that both together beat every single drafter, by up to 72 %."
    )
    cascades = [row for row in tables["table1"] if "," in row["allocation"]]
    missed = [row for row in cascades if row["allocation"] != row["best_allocation"]]
    found = (
        f"{sum(abs(row['ewif'] - row['printed']) < paper.PRINTED for row in tables['table1'])} of "
        f"{len(tables['table1'])} rows of its Table 1 follow from the formula to a hundredth, and "
        + (
            "the best allocation is "
            + "; ".join(
                f"{row['best_allocation']} for {row['dataset']} ({row['best_ewif']:.3f}), where "
                f"the paper prints {row['allocation']} ({row['printed']:.2f})"
                for row in missed
            )
            if missed
            else "its allocations are the best ones"
        )
    )
    lengths = [check for check in paper.checks(tables) if check.item.endswith(paper.FROM_OTHER)]
    found += (
        f"; {sum(check.matches for check in lengths)} of {len(lengths)} best lengths of single "
        "models in Table 2 are the best for the acceptance that the other half of the table "
        "implies, while its SWI cannot be computed, for no acceptance is printed."
    )
    return " ".join([claim, found, _difference(tables)])


def _difference(tables: Tables) -> str:
    claims, searched = tables["orderings"], tables["search"]
    if not claims:
        return (
            "Cascades of our own models were not decoded with this profile "
            "(specsim validate --scheme all), so only acceptance by position is shown for them."
        )
    holds = sum(row["verdict"] == "holds" for row in claims)
    failing = [
        f"{row['claim']} ({row['measured_ratio']:.2f} times, temperature {row['temperature']:g})"
        for row in claims
        if row["verdict"] == "fails"
    ]
    text = (
        f"On our models {holds} of {len(claims)} of its orderings hold, predicted and by the clock"
    )
    if failing:
        text += f", and {len(failing)} fail, namely {'; '.join(failing)}"
    target = next((row["as_decoded"] for row in tables["costs"] if row["model"] == "target"), None)
    if target is not None:
        text += f": a verifying run cost {target:.2f} plain steps, where SWI charges 1"
    copying = [row for row in searched if row["full_lengths"].startswith("0 0 ")]
    losing = [row for row in searched if row["best_full"] <= row["best_single"]]
    if searched:
        text += (
            f", and of {len(searched)} searches over matrices of lengths {len(copying)} end with "
            f"Max-Gram as the only drafter and {len(losing)} with nothing better than one model"
        )
    return text + "."


def draw(tables: Tables) -> dict[str, Figure]:
    from studies import csdrafting_figures

    return csdrafting_figures.draw(tables)


def checks(tables: Tables) -> list[Check]:
    return paper.checks(tables)
