"""What Xia22 says, held against our models and rooflines one claim at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from studies.common.claims import beyond, claim
from studies.common.study import Row
from studies.specdec.devices import BATCHES

_ROUNDING = 1e-9


def claims(
    blocks: Sequence[Row], grid: Sequence[Row], devices: Sequence[Row]
) -> list[dict[str, Any]]:
    """One row per claim; ``holds`` counts where it does, of the cases at hand."""

    masks = sorted(
        (row for row in blocks if row["drafter"] == "masks"), key=lambda row: row["block_size"]
    )
    drafts = [row for row in blocks if row["drafter"] == "draft"]
    decoded = [row for row in grid if row["from"].startswith("decoding, masks")]
    strict = {row["from"]: row for row in decoded if row["beta"] == 1}
    scored = [row for row in grid if row["from"] == "scored text"]
    relaxed = sorted(scored[1:], key=lambda row: row["acceptance"])
    chosen = [row for row in relaxed if (row["beta"], row["tau"]) == (3, 1)]
    return [
        *claim(
            "Xia22 section 3",
            "the text is that of greedy decoding",
            (
                (row["agreement"] == 1, f"masks {row['block_size']}: {row['agreement']:.3f} agree")
                for row in masks
            ),
        ),
        *claim(
            "Xia22 section 5.3.1",
            "up to k = 25, a larger block has more accepted tokens",
            (
                (
                    large["accepted"] > small["accepted"],
                    f"{small['accepted']:.2f} of {small['block_size']} (alpha "
                    f"{small['alpha']:.2f}), {large['accepted']:.2f} of {large['block_size']} "
                    f"(alpha {large['alpha']:.2f})",
                )
                for small, large in pairwise(masks)
            ),
        ),
        *claim(
            "Xia22 section 4",
            "masks filled in at once beat a draft that goes token by token",
            (
                (
                    row["measured_speedup"] > other["measured_speedup"],
                    f"k = {row['block_size']}: {row['measured_speedup']:.2f} at a block cost of "
                    f"{row['block_cost']:.2f}, against {other['measured_speedup']:.2f} at "
                    f"{other['block_cost']:.2f}",
                )
                for row in masks
                for other in drafts
                if row["block_size"] == other["block_size"]
            ),
        ),
        *claim(
            "Xia22 section 5.2",
            "SpecDec++ is faster than SpecDec",
            (
                (
                    row["measured_speedup"] > other["measured_speedup"],
                    f"top {row['beta']} within {row['tau']:g}: {row['measured_speedup']:.2f} "
                    f"against {other['measured_speedup']:.2f}, tokens per call "
                    f"{row['tokens_per_call']:.2f} against {other['tokens_per_call']:.2f}",
                )
                for row in decoded
                if row["beta"] > 1 and (other := strict.get(row["from"]))
            ),
        ),
        *claim(
            "Xia22 Table 3",
            "a moderate beta and tau (the paper's choice) beat greedy decoding",
            ((beyond(row["low"], row["high"], 0.0), gain(row)) for row in chosen),
        ),
        *claim(
            "Xia22 Table 3",
            "over-relaxed, the text gets worse",
            ((beyond(-row["high"], -row["low"], 0.0), gain(row)) for row in relaxed[-1:]),
        ),
        *claim(
            "Xia22 Figure 5",
            "the stronger the device, the larger the speedup (P100, V100, A100)",
            (
                (
                    # Where both are bound by memory costs are equal, up to the last bit.
                    all(weak > (1 + _ROUNDING) * strong for weak, strong in pairwise(costs[:3])),
                    f"batch {batch}: a block costs "
                    f"{', '.join(f'{cost:.2f}' for cost in costs[:3])} steps of 5 beams",
                )
                for batch in BATCHES
                for costs in [[row["cost_over_beams"] for row in devices if row["batch"] == batch]]
            ),
        ),
    ]


def gain(row: Row) -> str:
    rank = "any rank" if row["beta"] is None else f"top {row['beta']}"
    return (
        f"{rank} within {row['tau']:g} gives {row['gain']:+.2f} points of accuracy (95 %: "
        f"{row['low']:+.2f} to {row['high']:+.2f})"
    )
