"""Kim23, the Big Little Decoder: quality against the large model's share and against latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from studies import bild_paper as paper
from studies import bild_tables as ours
from studies.orderings import compute as orderings
from studies.study import Check, Measured, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Kim23: the Big Little Decoder"
CAPTIONS = {
    "table1": "Kim23 Table 1: quality, speed and thresholds, as printed",
    "table4": "Kim23 Table 4 by the law: percent of emitted tokens, and the speed that follows",
    "engagement": "Kim23 Figure 2 on our models: quality by the large model's share of the tokens",
    "latency": "Kim23 Figures 4, 5 and 10 on our models: quality and speed by thresholds",
    "fastest": "The fastest thresholds within a loss of accuracy: both policies, and without one",
    "decoded": "Every decoded setting of BiLD, and the best lossless one",
    "fractions": "Kim23 Table 4 on our models, percent of emitted tokens: fallback is target calls,"
    " rollback is blocks in which a token was replaced",
    "operations": "Kim23 Figure 8: operations, memory operations and intensity over plain decoding",
    "alignment": "Kim23 section 3.5.1 on our models: the draft before and after alignment",
    "early": "Kim23 section 4.4 on our models: the target's first layers as the small model",
    "orderings": "Who beats whom according to the paper",
}


def compute(measured: Measured) -> Tables:
    latency, chosen = ours.latency(measured)
    claims = [row for row in orderings(measured.decoded) if row["source"].startswith("Kim23")]
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
        "orderings": [
            {**row, "claimed_in": row["source"], "source": measured.source} for row in claims
        ],
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
    text = (
        "Its Table 4, read as target calls and rolled-back blocks per emitted token, gives by the "
        + "law "
        + " and ".join(
            f"{row['law_speedup']:.2f} times on {row['dataset']} (printed {row['speedup']:.2f})"
            for row in rows
        )
    )
    share = [
        row
        for row in tables["engagement"]
        if (row["decided_by"], row["quality"]) == ("rollback", "accuracy")
    ]
    if share:
        agree = next(
            row["value"]
            for row in tables["engagement"]
            if row["quality"] == "agreement" and row["large_share"] == 0
        )
        fifth = next(row for row in share if abs(row["large_share"] - 0.2) < 1e-9)
        best = max(share, key=lambda row: row["value"])
        enough = next(row for row in share if row["above_large"] >= 0)
        text += (
            f"; our models agree on only {agree:.0%} of positions, so their accuracy, "
            f"{share[-1]['value']:.3f} of the large one and {share[0]['value']:.3f} of the small "
            f"one, is {fifth['value']:.3f} with 20 % of the large one's tokens and needs "
            f"{enough['large_share']:.0%} to be the large one's, and the best mixture "
            f"({best['large_share']:.0%}) is "
            f"{best['above_large']:+.3f} from it (95 % interval {best['above_large_low']:+.3f} to "
            f"{best['above_large_high']:+.3f})"
        )
    return text + "."


def _difference(tables: Tables) -> str:
    fastest = {
        (row["accuracy_lost_at_most"], row["policy"]): row["speedup"] for row in tables["fastest"]
    }
    if not fastest:
        return (
            "With this profile there is no text scored at temperature 0 (specsim score), so "
            "quality and speed of our own models are not compared."
        )

    def said(policy: str, allowed: float) -> str:
        speed = fastest[allowed, policy]
        return "no setting" if speed is None else f"{speed:.2f} times"

    text = (
        "With accuracy no worse than the large model's the fastest thresholds of our models give "
        f"{said('both', 0.0)}, and {said('both', 0.01)} for a hundredth of accuracy, against "
        f"{said('no fallback', 0.01)} without fallback and {said('no rollback', 0.01)} without "
        "rollback"
    )
    decoded = [row for row in tables["decoded"] if row["scheme"] == "bild"]
    early = [row for row in tables["early"] if row["small_model"] != "draft"]
    if decoded:
        best = max(decoded, key=lambda row: row["predicted_speedup"])
        text += (
            f"; decoded, {best['setting'].replace('the same', 'fallback 0.4, rollback 2')} is "
            f"{best['measured_speedup']:.2f} times as fast at temperature {best['temperature']:g}"
        )
        lossless = [row for row in tables["decoded"] if row["lossless"]]
        text += "".join(
            f" (lossless {row['setting']}: {row['measured_speedup']:.2f})"
            for row in lossless
            if row["temperature"] == best["temperature"]
        )
    if early and early[0]["c_as_decoded"] is not None:
        worst, cost = early[0], early[0]["c_as_decoded"]
        text += (
            f", and early exit {worst['measured_speedup']:.2f} times where the paper has up to "
            "1.74, for our exit is a third of the layers, taken as they are, and costs "
            f"{cost:.2f} of a plain step"
        )
    return text + "."


def draw(tables: Tables) -> dict[str, Figure]:
    from studies import bild_figures

    return bild_figures.draw(tables)


def checks(tables: Tables) -> list[Check]:
    return paper.checks(tables)
