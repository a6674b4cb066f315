"""Narasimhan24, Faster Cascades via Speculative Decoding: quality against deferral.

Table 1's rules on random distributions (``cascades_rules``), and quality against rejections,
calls and latency on text that ``specsim score`` has scored (``cascades_tables``).  The optimum
knows the text: the knapsack of ``specsim.frontier.optimum``, which no deferral rule can beat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specsim.frontier import OPTIMUM, BlockPrices, Comparison
from specsim.optimizers.workload import Workload
from studies.cascades import rules as cascades_rules
from studies.cascades import tables as ours
from studies.cascades.figures import draw
from studies.cascades.tables import GAMMA
from studies.common.measured_rows import LOSSLESS, by_temperature
from studies.common.study import Check, Measured, Tables, reference

__all__ = ["CAPTIONS", "FIGURES", "TITLE", "checks", "compute", "draw", "opening"]

TITLE = "Narasimhan24: speculative cascades, quality against deferral"

CAPTIONS: Mapping[str, str] = {
    "equal_quality": "Narasimhan24 Table 2, ours. Speedup at the target's quality, and the best "
    "quality that is no slower than the target, all on held-out text, where drafts are rejected "
    "more often than on the target's own; settings are chosen on that same text, out of thousands "
    "for deferral rules and of a dozen for the others. At a temperature that was not calibrated "
    "run times are the nearest one's.",
    "regret": "Distance from the optimum. Loss above it, averaged over all budgets of rejection.",
    "token_against_deferral": "Token rules against Diff and OPT at equal quality. A ratio of "
    "rejections below 1 is a win of the token rule.",
    "bounds": "Narasimhan24 Lemmas 7 and 8. How far the plug-in rules miss, and what they may.",
    "executions": "The same rules decoded for real. Speculatively, token by token, by answers.",
    "laws": "Narasimhan24 Table 1. What each rule says it emits, and what its sampler emits.",
    "lossy_example": "Lossy with a = 0.3 and b = 1 on three tokens. Its pi is no distribution.",
    "lossy_star": "The b that Lossy* needs. By looseness, over random pairs of distributions.",
    "token_v3": "TokenV3 by threshold. Threshold 0 is not lossless.",
}

FIGURES: Mapping[str, str] = {
    "deferral": "Narasimhan24 Figure 1, ours: quality against calls of the target, for rules run "
    "token by token and speculatively.",
    "rejection": "Quality against rejections of every rule, on held-out text; dots are rules with "
    "fixed thresholds.",
    "latency": "Narasimhan24 Figures 2, 3, 6, 7 and 9, ours: quality against time per token, by "
    "block size.",
    "token_rules": "Rejections of the token rules over those of Diff at the same quality, with "
    "95 % intervals.",
}

GAMMAS = (3, 5, 7)
_SCHEMES = ("cascade", "token-cascade", "sequence-cascade")
_EXECUTIONS = (
    "temperature",
    "scheme",
    "setting",
    "predicted_tokens_per_call",
    "measured_tokens_per_call",
    "predicted_speedup",
    "measured_speedup",
    "measured_low",
    "measured_high",
    "accuracy",
    "log_loss",
    "agreement",
)


def compute(measured: Measured) -> Tables:
    tables: Tables = {name: [] for name in (*CAPTIONS, "deferral", "frontier")}
    tables["laws"] = cascades_rules.laws()
    tables["lossy_example"] = cascades_rules.example()
    tables["lossy_star"] = cascades_rules.lossy_star()
    tables["token_v3"] = cascades_rules.token_v3()
    tables["executions"] = _executions(measured)
    for temperature, positions in sorted(measured.positions.items()):
        comparison = Comparison.of(positions, ours.LOSS, "unscaled")
        workload = _workload(measured.workloads, temperature)
        longest = measured.profile.gamma_max
        gammas = [gamma for gamma in GAMMAS if gamma <= longest] or [longest]
        prices = {gamma: BlockPrices.of_workload(workload, gamma) for gamma in gammas}
        parts = {
            "equal_quality": ours.equal_quality(positions, prices),
            "regret": ours.regret(comparison),
            "token_against_deferral": ours.token_against_deferral(comparison),
            "bounds": ours.bounds(positions),
            "deferral": ours.deferral(comparison, workload, temperature),
            "frontier": ours.frontier(comparison, prices, workload),
        }
        for name, rows in parts.items():
            tables[name] += [
                {"temperature": temperature, **row, "source": measured.source} for row in rows
            ]
    # The paper's block size first: a page shows the beginning of a long table.
    tables["equal_quality"].sort(key=lambda row: (row["gamma"] != GAMMA, row["gamma"]))
    return tables


def _workload(workloads: Sequence[Workload], temperature: float) -> Workload:
    """The one of that temperature, or of the nearest above, or of the nearest.

    Run times do not depend on the temperature; the host's part does, by whether it samples.
    """

    def away(workload: Workload) -> tuple[bool, float]:
        gap = workload.measured.sampling.temperature - temperature
        return gap < 0, abs(gap)

    return min(workloads, key=away)


def _executions(measured: Measured) -> list[dict[str, Any]]:
    """Rows of the decoders that run a rule, beside plain speculative decoding."""
    return [
        {**{name: row.get(name) for name in _EXECUTIONS}, "source": measured.source}
        for row in measured.decoded
        if row["scheme"] in _SCHEMES or (row["scheme"], row["setting"]) == LOSSLESS
    ]


def opening(tables: Tables) -> str:
    said = (
        "Narasimhan24 claims that a cascade run speculatively buys more quality for its latency "
        "than either a cascade or lossless speculation, that its token rule (V3) does so best with "
        "OPT second, and that the rules draw together as the temperature falls."
    )
    return f"{said} {_found(tables)} {_differs(tables)}"


def _differs(tables: Tables) -> str:
    wrong = [row for row in tables["laws"] if not row["emits_pi"]]
    largest = max(row["sum_pi_largest"] for row in wrong)
    names = list(dict.fromkeys(str(row["rule"]).partition("(")[0] for row in wrong))
    zero = tables["token_v3"][0]["rejection_of_the_target_itself"]
    return (
        f"V3 at threshold 0 rejects {zero:.0%} of a draft that is the target itself; of "
        f"{len(tables['laws'])} settings of Table 1 {len(wrong)} ({_listed(names)}) emit something "
        f"else than they say (pi sums to up to {largest:.2f}), and Table 2 needs models that are "
        "not public."
    )


def _found(tables: Tables) -> str:
    """Who reaches the target's quality with the fewest rejections, and how V3 stands."""
    least, lossless, ranks = [], [], []
    for temperature, rows in by_temperature(tables["equal_quality"]):
        # Rejections are the same at every gamma.
        reached = {row["rule"]: row["rejection"] for row in rows if row["rejection"] is not None}
        ranked = sorted(set(reached) - {OPTIMUM}, key=lambda rule: (reached[rule], rule))
        if not ranked:
            continue
        least.append(f"{reached[ranked[0]]:.2f} ({ranked[0]}, temperature {temperature:g})")
        if "Lossless" in reached:
            lossless.append(f"{reached['Lossless']:.2f}")
        if "TokenV3" in ranked:
            ranks.append(f"{ranked.index('TokenV3') + 1} of {len(ranked)}")
    if not least:
        return "No text was scored beside this profile (specsim score), so quality is not shown."
    pairs = [row for row in tables["token_against_deferral"] if row["rule"] == "TokenV3"]
    compared = [row["rejection_ratio"] for row in pairs if row["rejection_ratio"] is not None]
    text = (
        "The fewest rejections that keep the target's quality on held-out text are for us "
        f"{_listed(least)}"
    )
    if lossless:
        text += f", against {_listed(lossless)} of lossless speculation"
    if ranks:
        text += (
            f"; V3 is number {_listed(ranks)}, and at equal quality rejects less than Diff or OPT "
            f"in {sum(ratio < 1 for ratio in compared)} of {len(compared)} pairs "
            f"({sum(row['its_rejection'] is None for row in pairs)} more are out of their reach)"
        )
    return text + "."


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# What Table 2 needs that the paper does not print.
_NO_MODELS = (
    "needs the authors' fine-tuned T5 models and data: the paper prints no deferral rates, "
    "run times or responses to compute it from"
)


def checks(tables: Tables) -> list[Check]:
    """Table 2 as far as its text survives (errata: Narasimhan24 8), and two numbers of E.4."""
    found = []
    for row in reference("narasimhan24_table2_partial"):
        item = f"{row['method']}, small to {row['large_model']}, {row['dataset']}"
        for column in ("latency_reduction", "best_quality"):
            what = f"{item}, {column.replace('_', ' ')}"
            # Half a unit of the last printed digit.
            found.append(
                Check("Narasimhan24 Table 2", what, float(row[column]), None, 0.005, _NO_MODELS)
            )
    for model, printed in (("small", 0.64), ("large", 0.85)):
        item = f"XSum, Lossy, gamma 3, relative latency at the {model} model's quality"
        found.append(Check("Narasimhan24 E.4", item, printed, None, 0.005, _NO_MODELS))
    return found
