"""Xia22: a drafter that fills in masks, the accepted tokens, the grid of beta and tau, the devices.

The tables of the paper are lost from its text, so only running text is left to compare with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from studies.common.study import Check, Measured, Row, Tables, reference
from studies.specdec import tables as ours
from studies.specdec.claims import claims, gain
from studies.specdec.devices import BATCHES, devices, verify
from studies.specdec.figures import draw

__all__ = ["CAPTIONS", "FIGURES", "TITLE", "checks", "compute", "draw", "opening"]

TITLE = "Xia22: Speculative Decoding, Lossless Speedup of Autoregressive Translation"

CAPTIONS = {
    "text": "What is left of the paper's results. Numbers in its running text.",
    "blocks": "Block size (Xia22 Table 2). Masks filled in at once, and drafts token by token "
    "beside them, on the same requests; `accepted` is tokens per call without the target's own, "
    "`block_cost` is what tokens per call and speedup say of a block, in target runs on one token, "
    "`beside_v` what of it is not the target's run.",
    "law": "Block size by the law of SpecDec. Tokens per call of k masks at one alpha for all "
    "positions, and the speedup here while target runs were timed that wide; by this law accepted "
    "tokens never fall with k, so a peak at 25, or at 30, must come from the drafter.",
    "grid": "Top-beta and tau (Xia22 Table 3). Acceptance, what the law makes of it at k = 8 and "
    "k = 25, and quality: share of held-out tokens that are right, `gain` against greedy decoding "
    "in percentage points with its 95 % paired interval; scored text is drafted by the draft of "
    "the profile, and beta `-` stands for any rank.",
    "devices": "Devices (Xia22 Figure 5). Rooflines of Transformer-base, k = 25, prefix 15, source "
    "30 tokens; costs in steps of plain decoding at that batch, `needed` tokens per call for the "
    "paper's speedups over 5 beams.",
    "claims": "What the paper says, on our models and rooflines. `holds` counts the cases at hand.",
}

FIGURES = {
    "blocks": "Tokens per call and speedup by block size, measured with 95 % intervals; the line "
    "is the law at the alpha of the widest block and at what blocks cost beside v in the mean, so "
    "it meets the masks there and is tested between and beyond.",
    "grid": "Quality against acceptance on scored text, from strict to loose, with 95 % paired "
    "intervals.",
    "verify": "What a wide run costs: free at batch 1, where weights are read once for all "
    "tokens, and not at batch 32, where devices run out of arithmetic.",
    "devices": "Blocks of 25 masks by device and batch; the P100 has no tensor units and runs in "
    "float32.",
}


def compute(measured: Measured) -> Tables:
    blocks = list(ours.blocks(measured))
    masks = [row for row in blocks if row["drafter"] == "masks"]
    grid = list(ours.grid(measured))
    priced = list(devices(ours.mask_alpha(masks)))
    return {
        "text": list(_text()),
        "blocks": blocks,
        "law": list(ours.law(measured, masks)),
        "grid": grid,
        "devices": priced,
        "verify": list(verify()),
        "claims": claims(blocks, grid, priced),
    }


def _text() -> Iterator[dict[str, Any]]:
    for row in reference("xia22_text_figures"):
        yield {"source": "Xia22 section 5", **{name: value or None for name, value in row.items()}}


def opening(tables: Tables) -> str:
    said = (
        "Xia22 claims that a drafter which fills in k = 25 masks in one run makes greedy "
        "translation about 3 times as fast as beam search with the same text, that accepting what "
        "is near the best token (SpecDec++) makes it 3.6 to 4.5 times as fast and at first even "
        "better, and that stronger devices gain more."
    )
    return f"{said} {_found(tables)} {_difference(tables)}"


def _found(tables: Tables) -> str:
    one = next(row for row in tables["devices"] if row["batch"] == 1)
    needed = [f"{value:.1f}" for name, value in one.items() if name.startswith("needed")]
    roof = (
        f"by roofline of a {one['device']} at batch 1 the printed speedups need "
        f"{', '.join(needed[:-1])} and {needed[-1]} tokens per call"
    )
    masks = _of(tables["blocks"], "drafter", "masks")
    if not masks:
        return (
            f"No drafter of masks was decoded with this profile, so only rooflines speak: {roof}."
        )
    best = max(masks, key=lambda row: row["measured_speedup"])
    found = (
        f"Our masks of {best['block_size']} make greedy decoding {best['measured_speedup']:.2f} "
        f"times as fast at {best['tokens_per_call']:.2f} tokens per call"
    )
    grid = _of(tables["grid"], "from", f"decoding, masks {best['block_size']}")
    loose = [row for row in grid if row["beta"] > 1]
    if loose:
        faster = sum(row["measured_speedup"] > best["measured_speedup"] for row in loose)
        found += f", and {faster} of {len(loose)} looser settings are faster still"
    return f"{found}; {roof}."


def _difference(tables: Tables) -> str:
    full = _of(tables["devices"], "batch", BATCHES[-1])
    costs = {row["device"]: row["c"] + row["v"] for row in full}
    best, worst = min(costs, key=costs.__getitem__), max(costs, key=costs.__getitem__)
    load = (
        f"at batch {BATCHES[-1]} drafting and verifying a block takes {costs[best]:.0f} (on an "
        f"{best}) to {costs[worst]:.0f} (on a {worst}) steps of plain decoding"
    )
    if not _of(tables["blocks"], "drafter", "masks"):
        return f"We differ in load, where {load}; specsim validate makes the missing measurements."
    chosen = [
        row
        for row in _of(tables["grid"], "from", "scored text")
        if (row["beta"], row["tau"]) == (3, 1)
    ]
    quality = f"in quality, where for us {gain(chosen[0])}, and " if chosen else ""
    return f"We differ {quality}in load, where {load}."


def _of(rows: list[dict[str, Any]], column: str, value: object) -> list[Row]:
    return [row for row in rows if row[column] == value]


# --- the paper's numbers -------------------------------------------------------------------------

_BLEU = "BLEU of translation models that were trained and never published; nothing to compute from"
_LARGEST = (
    "a property of how well a larger drafter learns; by the law accepted tokens never fall with k"
)


def checks(tables: Tables) -> list[Check]:
    """One per row of the running text; none can be computed, because the tables are lost."""
    one = next(row for row in tables["devices"] if row["batch"] == 1)
    found = []
    for row in reference("xia22_text_figures"):
        setting = row["setting"]
        if row["speedup_over_beam5"]:
            printed, digits = row["speedup_over_beam5"], 0.05
            reason = (
                "the tokens per call behind it stood in tables that are lost from the text; on a "
                f"roofline of the {one['device']} it needs {one[f'needed, {setting}']:.1f}"
            )
        elif row["bleu_dev"]:
            printed, digits, reason = row["bleu_dev"], 0.005, _BLEU
        else:
            printed, digits, reason = row["block_size"], 0.5, _LARGEST
        found.append(Check("Xia22 section 5", setting, float(printed), None, digits, reason))
    return found
