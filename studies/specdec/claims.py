"""What Xia22 says, held against our models and rooflines one case at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from studies.common.claims import Case, beyond
from studies.common.study import Row, where
from studies.specdec.devices import BATCHES

_ROUNDING = 1e-9


def claims(blocks: Sequence[Row], grid: Sequence[Row], devices: Sequence[Row]) -> Iterator[Case]:
    """Every claim in every case at hand."""
    masks = sorted(where(blocks, drafter="masks"), key=lambda row: row["block_size"])
    for row in masks:
        yield (
            "Xia22 section 3",
            "the text is that of greedy decoding",
            row["agreement"] == 1,
            f"masks {row['block_size']}: {row['agreement']:.3f} agree",
        )
    for small, large in pairwise(masks):
        yield (
            "Xia22 section 5.3.1",
            "up to k = 25, a larger block has more accepted tokens",
            large["accepted"] > small["accepted"],
            f"{small['accepted']:.2f} of {small['block_size']} (alpha {small['alpha']:.2f}), "
            f"{large['accepted']:.2f} of {large['block_size']} (alpha {large['alpha']:.2f})",
        )
    for row, other in product(masks, where(blocks, drafter="draft")):
        if row["block_size"] == other["block_size"]:
            yield (
                "Xia22 section 4",
                "masks filled in at once beat a draft that goes token by token",
                row["measured_speedup"] > other["measured_speedup"],
                f"k = {row['block_size']}: {row['measured_speedup']:.2f} at a block cost of "
                f"{row['block_cost']:.2f}, against {other['measured_speedup']:.2f} at "
                f"{other['block_cost']:.2f}",
            )
    decoded = [row for row in grid if row["from"].startswith("decoding, masks")]
    strict = {row["from"]: row for row in decoded if row["beta"] == 1}
    for row in decoded:
        if row["beta"] > 1 and (exact := strict.get(row["from"])):
            yield (
                "Xia22 section 5.2",
                "SpecDec++ is faster than SpecDec",
                row["measured_speedup"] > exact["measured_speedup"],
                f"top {row['beta']} within {row['tau']:g}: {row['measured_speedup']:.2f} against "
                f"{exact['measured_speedup']:.2f}, tokens per call {row['tokens_per_call']:.2f} "
                f"against {exact['tokens_per_call']:.2f}",
            )
    scored = [row for row in grid if row["from"] == "scored text"]
    relaxed = sorted(scored[1:], key=lambda row: row["acceptance"])
    for row in where(relaxed, beta=3, tau=1):
        moderate = "a moderate beta and tau (the paper's choice) beat greedy decoding"
        yield "Xia22 Table 3", moderate, beyond(row["low"], row["high"], 0.0), gain(row)
    for row in relaxed[-1:]:
        worse = beyond(-row["high"], -row["low"], 0.0)
        yield "Xia22 Table 3", "over-relaxed, the text gets worse", worse, gain(row)
    for batch in BATCHES:
        costs = [row["cost_over_beams"] for row in where(devices, batch=batch)][:3]
        yield (
            "Xia22 Figure 5",
            "the stronger the device, the larger the speedup (P100, V100, A100)",
            # Where both are bound by memory costs are equal, up to the last bit.
            all(weak > (1 + _ROUNDING) * strong for weak, strong in pairwise(costs)),
            f"batch {batch}: a block costs {', '.join(f'{cost:.2f}' for cost in costs)} steps of "
            "5 beams",
        )


def gain(row: Row) -> str:
    rank = "any rank" if row["beta"] is None else f"top {row['beta']}"
    return (
        f"{rank} within {row['tau']:g} gives {row['gain']:+.2f} points of accuracy (95 %: "
        f"{row['low']:+.2f} to {row['high']:+.2f})"
    )
