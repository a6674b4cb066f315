"""Kim23, the Big Little Decoder: quality against the large model's share and against latency."""

from __future__ import annotations

from collections.abc import Sequence

from studies.bild import figures, paper, tables
from studies.common import orderings
from studies.common.measured import Measured
from studies.common.study import NOT_SCORED, Picture, Row, Study, Tables, listed, where

_CAPTIONS = {
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
    "orderings": orderings.CAPTION,
}

_PICTURES = {
    "engagement": Picture(figures.engagement, ("engagement",)),
    "latency": Picture(figures.latency, ("latency",)),
    "decoded": Picture(figures.decoded, ("decoded",)),
    "operations": Picture(figures.operations, ("operations",)),
}

_CLAIM = (
    "In Kim23 a small model hands over when it is unsure, and its tokens are replaced where the "
    "large model finds them improbable. It claims that this keeps the large model's quality with "
    "about 20 % of its predictions and decodes 1.50 times as fast (1.61 times when aligned)."
)


def _compute(measured: Measured) -> dict[str, Sequence[Row]]:
    latency, chosen = tables.latency(measured)
    decoded = tables.decoded(measured)
    return {
        "table1": paper.table1(),
        "table4": list(paper.table4()),
        "engagement": [row for at in measured.positions for row in tables.engagement(measured, at)],
        "latency": latency,
        "fastest": list(tables.fastest(latency)),
        "decoded": decoded,
        "fractions": list(tables.fractions(measured, chosen)),
        "operations": [*paper.figure8(), *tables.operations(measured, chosen)],
        "alignment": list(tables.alignment(measured, decoded)),
        "early": list(tables.early(measured, decoded)),
        "orderings": orderings.compute(measured, "Kim23"),
    }


def _opening(found: Tables) -> Sequence[str]:
    by_law = listed(
        [
            f"{row['law_speedup']:.2f} times on {row['dataset']} (printed {row['speedup']:.2f})"
            for row in found["table4"]
            if row["law_speedup"] is not None
        ]
    )
    table4 = f"The shares of its Table 4 give by the law {by_law}."
    if not found["fastest"]:
        return _CLAIM, table4, NOT_SCORED
    return _CLAIM, f"{table4} {_quality(found)}", f"{_speed(found)} {_decoded(found)}".rstrip()


def _quality(found: Tables) -> str:
    shares = {
        quality: where(found["engagement"], decided_by="rollback", quality=quality)
        for quality in ("accuracy", "agreement")
    }
    small, *_, large = accuracy = shares["accuracy"]
    fifth = min(accuracy, key=lambda row: abs(row["large_share"] - 0.2))
    enough = next(row for row in accuracy if row["above_large"] >= 0)
    return (
        f"Our two models agree on {shares['agreement'][0]['value']:.0%} of positions. With a fifth "
        f"of the large model's tokens accuracy is {fifth['value']:.3f}, between "
        f"{small['value']:.3f} of the small model and {large['value']:.3f} of the large one, which "
        f"takes {enough['large_share']:.0%} of its tokens to reach."
    )


def _speed(found: Tables) -> str:
    def said(allowed: float) -> str:
        rows = where(found["fastest"], accuracy_lost_at_most=allowed)
        return listed(
            [f"{row['speedup']:.2f} times with {row['policy']}" for row in rows if row["speedup"]]
        )

    return (
        "By the policies (both, no fallback, no rollback) the fastest thresholds that lose no "
        f"accuracy give {said(0.0)}; with a hundredth lost they give {said(0.01)}."
    )


def _decoded(found: Tables) -> str:
    """What was decoded beside the scored text, if anything was."""
    said = []
    rows = where(found["decoded"], scheme="bild")
    if rows:
        best = max(rows, key=lambda row: row["predicted_speedup"])
        lossless = listed(
            [
                f"{row['setting']} at {row['measured_speedup']:.2f}"
                for row in where(found["decoded"], lossless=True, temperature=best["temperature"])
            ]
        )
        said.append(
            f"Decoded, the setting that was predicted fastest ({best['setting']}, temperature "
            f"{best['temperature']:g}) ran at {best['measured_speedup']:.2f} times plain decoding, "
            f"beside the best lossless one, {lossless}."
        )
    early = [row for row in found["early"] if row["small_model"] != "draft" and row["c_as_decoded"]]
    if early:
        said.append(
            f"With early exit it was {early[0]['measured_speedup']:.2f} (the paper: up to 1.74); "
            f"our exit is untrained and costs {early[0]['c_as_decoded']:.2f} of a plain step."
        )
    return " ".join(said)


STUDY = Study(
    "Kim23: the Big Little Decoder", _CAPTIONS, _PICTURES, _compute, _opening, paper.checks
)
