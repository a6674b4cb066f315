"""What our models do, for the page: acceptance by position, costs, SWI, and the best cascade.

SWI counts runs instead of timing them: tokens / sum_i c_i runs_i with c = 1 for the target (Chen23
section 5).  The paper prices runs twice: MS, a ratio of model sizes, and PW, costs of runs as
measured in previous work.  Ours are the ratio of parameters, and what a run cost while decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from specsim import PricedDrafter, allocate, optimize
from specsim.cost import Cost
from specsim.laws import TARGET
from specsim.optimizers import cascade
from specsim.predict import renewal
from studies.common.decoded import TIMED, WITHOUT_MODEL, by_temperature, costs_as_decoded
from studies.common.measured import Measured
from studies.common.orderings import FULL
from studies.common.study import Row
from studies.csdrafting import laws, paper

# Lengths of a full cascade that are tried: (k11, k12, Max-Gram), (k22, Max-Gram), Max-Gram.
_LENGTHS = ((range(7), range(5), (0, 5, 10)), ((1, 2, 3), (0, 5)), ((5, 10),))
_KINDS = {
    "none": ("speculative",),
    "horizontal": ("horizontal-cascade",),
    "vertical": ("vertical-cascade",),
    "both": ("full-cascade",),
}


def positions(measured: Measured) -> Iterator[dict[str, Any]]:
    for workload in measured.workloads:
        known = workload.measured
        for i, (rate, curve) in enumerate(zip(known.conditional, known.survival, strict=True), 1):
            yield {
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
            }


def costs(measured: Measured) -> Iterator[dict[str, Any]]:
    """Of every drafter, in target runs: parameters, timed alone, and as decoded."""
    target, draft = measured.profile.target, measured.profile.draft
    parameters = {"draft": draft.parameters, **dict.fromkeys(WITHOUT_MODEL, 0)}
    family = measured.family_file("training.json").get("parameters", {})
    parameters |= {model: count for model, count in family.items() if model == "middle"}
    decoded = costs_as_decoded(measured.decoded)
    timed = float(np.mean([each.draft_cost for each in measured.workloads]))
    for model in dict.fromkeys(["draft", *sorted(decoded)]):
        size = parameters.get(model)
        yield {
            "model": model,
            "parameters": size,
            "parameter_ratio": None if size is None else size / target.parameters,
            "timed_alone": timed if model == "draft" else None,
            "as_decoded": decoded.get(model),
        }


def cost_sets(costs: Sequence[Row]) -> dict[str, dict[str, float]]:
    """The two sets of c of our models, by what the tables call them; only what is known."""
    drafters = [row for row in costs if row["model"] != TARGET]
    return {
        name: {row["model"]: row[column] for row in drafters if row[column] is not None}
        for name, column in (("parameters", "parameter_ratio"), ("measured", "as_decoded"))
    }


def swi(
    measured: Measured, costs: Sequence[Row], acceptances: Sequence[Row]
) -> Iterator[dict[str, Any]]:
    """SWI of the runs that were counted, that were replayed and of the law, at both costs."""
    schemes = sum(_KINDS.values(), ())
    for each in measured.decoded:
        if each["scheme"] not in schemes:
            continue
        law = laws.law_of(each, laws.rates(acceptances, each["temperature"]))
        row = {key: each[key] for key in ("temperature", "scheme", "setting")}
        for name, prices in cost_sets(costs).items():
            known = each["measured_runs"].keys() <= {TARGET, *prices}
            row[f"swi_{name}"] = _priced(each["measured_runs"], prices) if known else None
            row[f"swi_{name}_replayed"] = _priced(each["predicted_runs"], prices) if known else None
            by_law = renewal.speedup(law, Cost(prices)) if known and law is not None else None
            row[f"swi_{name}_law"] = by_law
        yield {**row, "drafters": each["drafters"], **{key: each[key] for key in TIMED}}


def _priced(runs: Mapping[str, float], prices: Mapping[str, float]) -> float:
    """SWI of runs per 100 tokens; a target run costs 1, however many tokens it reads."""
    return 100 / sum(count * prices.get(model, 1.0) for model, count in runs.items())


def ablation(swi: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The setting of each kind that was predicted fastest: chosen before it was decoded."""
    for temperature, here in by_temperature(swi):
        # Chen23's claim is about neural drafters: counts and copies are a baseline of their own.
        neural = [row for row in here if row["drafters"] not in WITHOUT_MODEL]
        groups = {
            kind: [row for row in neural if row["scheme"] in schemes]
            for kind, schemes in _KINDS.items()
        }
        groups["no neural model"] = [row for row in here if row not in neural]
        for kind, found in groups.items():
            if found:
                best = max(found, key=lambda row: row["predicted_speedup"])
                yield {"temperature": temperature, "cascade": kind, **best}


def searched(costs: Sequence[Row], acceptances: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The best single drafter, the best two in a row, and the best full cascade of the law."""
    models = ("middle", "draft", laws.GRAM)
    for temperature, found_at in by_temperature(acceptances):
        known = laws.rates(found_at, temperature)
        if len(known) < len(laws.PAIRS):
            continue
        accepted = laws.known_acceptances(known)
        for name, prices in cost_sets(costs).items():
            if not prices.keys() >= set(models):
                continue
            cost = Cost({model: prices[model] for model in models})
            found = cascade.search(models, {1.0: accepted}, _LENGTHS, cost)
            # Token by token, and no copying: Max-Gram is what a cascade adds.
            team = [
                PricedDrafter(model, known[TARGET, model], prices[model])
                for model in ("middle", "draft")
            ]
            single = [optimize(alpha=each.alpha, c=each.c, gamma_max=30) for each in team]
            horizontal = allocate(team, gamma_max=30)
            yield {
                "temperature": temperature,
                "costs": name,
                "best_single": max(each.speedup for each in single),
                "best_horizontal": horizontal.speedup,
                "horizontal_lengths": paper.named(horizontal.allocation),
                "best_full": found.speedup,
                "full_lengths": _matrix(found.scheme.lengths),
                "decoded_full": renewal.speedup(FULL.law(accepted), cost),
                "decoded_lengths": _matrix(FULL.lengths),
                "candidates": found.candidates,
                "evaluated": found.evaluated,
                "exhaustive": found.exhaustive,
            }


def _matrix(lengths: Sequence[Sequence[int]]) -> str:
    return " / ".join(" ".join(map(str, row)) for row in lengths)
