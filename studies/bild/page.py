"""Kim23, the Big Little Decoder: quality against the large model's share and against latency."""

from __future__ import annotations

from studies.bild import paper
from studies.bild import tables as ours
from studies.bild.figures import draw
from studies.bild.paper import checks
from studies.common import orderings
from studies.common.study import Measured, Tables

__all__ = ["CAPTIONS", "FIGURES", "TITLE", "checks", "compute", "draw", "opening"]

TITLE = "Kim23: the Big Little Decoder"
CAPTIONS = {
    "table1": "Kim23 Table 1. Quality, speed and thresholds, as printed.",
    "table4": "Kim23 Table 4 by the law. Percent of emitted tokens, and the speed that follows.",
    "fastest": "The fastest thresholds within a loss of accuracy. Both policies, and without one.",
    "decoded": "Every decoded setting of BiLD. And the best lossless one.",
    "fractions": "Kim23 Table 4 on our models. Percent of emitted tokens: fallback is target "
    "calls, rollback is blocks in which a token was replaced.",
    "operations": "Kim23 Figure 8. Operations, memory operations and intensity over plain "
    "decoding.",
    "alignment": "Kim23 section 3.5.1 on our models. The draft before and after alignment.",
    "early": "Kim23 section 4.4 on our models. The target's first layers as the small model.",
    "orderings": "Who beats whom according to the paper. Ratios of the speedup of the one said to "
    "be faster to the other's.",
}

FIGURES = {
    "engagement": "Kim23 Figure 2 on our models: quality by the large model's share of the tokens, "
    "with 95 % bands of the distance from the large model.",
    "latency": "Kim23 Figures 4, 5 and 10 on our models: accuracy and time per token by "
    "thresholds, on real text.",
    "decoded": "Decoding with BiLD, predicted and measured with 95 % intervals.",
    "operations": "Kim23 Figure 8, and the same of our models.",
}


def compute(measured: Measured) -> Tables:
    latency, chosen = ours.latency(measured)
    decoded = ours.decoded(measured)
    return {
        "table1": paper.table1(),
        "table4": paper.table4(),
        "engagement": [row for at in measured.positions for row in ours.engagement(measured, at)],
        "latency": latency,
        "fastest": ours.fastest(latency),
        "decoded": decoded,
        "fractions": ours.fractions(measured, chosen),
        "operations": ours.operations(measured, chosen),
        "alignment": ours.alignment(measured, decoded),
        "early": ours.early(measured, decoded),
        "orderings": orderings.compute(measured, "Kim23"),
    }


def opening(tables: Tables) -> str:
    return " ".join([_CLAIM, _found(tables), _difference(tables)])


_CLAIM = (
    "Kim23 claims that a small model that hands over when it is unsure, and whose tokens are "
    "replaced where the large one finds them improbable, keeps the large model's quality with "
    "about 20 % of its predictions and decodes 1.50 times as fast (1.61 times when aligned)."
)


def _found(tables: Tables) -> str:
    rows = [row for row in tables["table4"] if row["law_speedup"] is not None]
    speeds = " and ".join(
        f"{row['law_speedup']:.2f} times on {row['dataset']} (printed {row['speedup']:.2f})"
        for row in rows
    )
    text = f"The shares of its Table 4 give by the law {speeds}"
    at = {
        (row["quality"], row["large_share"]): row["value"]
        for row in tables["engagement"]
        if row["decided_by"] == "rollback"
    }
    share = [
        row
        for row in tables["engagement"]
        if (row["decided_by"], row["quality"]) == ("rollback", "accuracy")
    ]
    if share:
        fifth = min(share, key=lambda row: abs(row["large_share"] - 0.2))
        enough = next(row for row in share if row["above_large"] >= 0)
        text += (
            f"; our models agree on {at['agreement', 0.0]:.0%} of positions, and with a fifth of "
            f"the large one's tokens have an accuracy of {fifth['value']:.3f}, between "
            f"{share[0]['value']:.3f} (small) and {share[-1]['value']:.3f} (large), which takes "
            f"{enough['large_share']:.0%} of its tokens to reach"
        )
    return text + "."


def _difference(tables: Tables) -> str:
    fastest = tables["fastest"]
    if not fastest:
        return (
            "With this profile there is no text scored at temperature 0 (specsim score), so "
            "quality and speed of our own models are not compared."
        )

    def said(allowed: float) -> str:
        speeds = {
            row["policy"]: row["speedup"]
            for row in fastest
            if row["accuracy_lost_at_most"] == allowed and row["speedup"] is not None
        }
        if not speeds:
            return "no speedup at all"
        policy = max(speeds, key=lambda name: speeds[name])
        others = ", ".join(f"{name} {speeds[name]:.2f}" for name in speeds if name != policy)
        return f"{speeds[policy]:.2f} times ({policy}; {others})"

    text = (
        f"With no accuracy lost the best policy gives {said(0.0)}, and with a hundredth lost "
        f"{said(0.01)}"
    )
    decoded = [row for row in tables["decoded"] if row["scheme"] == "bild"]
    if decoded:
        best = max(decoded, key=lambda row: row["predicted_speedup"])
        name = best["setting"].replace("the same", "fallback 0.4, rollback 2")
        text += (
            f"; decoded, {name} gives {best['measured_speedup']:.2f} times at temperature "
            f"{best['temperature']:g}"
        )
        text += "".join(
            f" and lossless {row['setting']} {row['measured_speedup']:.2f}"
            for row in tables["decoded"]
            if row["lossless"] and row["temperature"] == best["temperature"]
        )
    early = [row for row in tables["early"] if row["small_model"] != "draft"]
    if early and early[0]["c_as_decoded"] is not None:
        text += (
            f", and early exit {early[0]['measured_speedup']:.2f} (the paper: up to 1.74), since "
            f"our exit is untrained and costs {early[0]['c_as_decoded']:.2f} of a plain step"
        )
    return text + "."
