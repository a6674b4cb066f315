"""Xia22: a drafter that fills in masks, the accepted tokens, the grid of beta and tau, the devices.

The tables of the paper are lost from its text, so only running text is left to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence

from studies.common.claims import counted
from studies.common.measured import Measured
from studies.common.study import Picture, Row, Study, Tables, listed, where
from studies.specdec import devices, figures, paper, tables
from studies.specdec.claims import claims, gain

_CAPTIONS = {
    "text": "What is left of the paper's results. Numbers in its running text.",
    "blocks": "Block size (Xia22 Table 2). Masks filled in at once, and drafts token by token "
    "beside them, on the same requests. `accepted` is tokens per call without the target's own. "
    "`block_cost` is what tokens per call and speedup say of a block, in target runs on one token, "
    "and `beside_v` what of it is not the target's run.",
    "law": "Block size by the law of SpecDec. Tokens per call of k masks at one alpha for all "
    "positions, and the speedup here while target runs were timed that wide. By this law accepted "
    "tokens never fall with k, so a peak at 25, or at 30, must come from the drafter.",
    "grid": "Top-beta and tau (Xia22 Table 3). Acceptance, what the law makes of it at k = 8 and "
    "k = 25, and quality: the share of held-out tokens that are right. `gain` is against greedy "
    "decoding in percentage points, with its 95 % paired interval. Scored text is drafted by the "
    "draft of the profile, and beta `-` stands for any rank.",
    "devices": "Devices (Xia22 Figure 5). Rooflines of Transformer-base, k = 25, prefix 15, source "
    "30 tokens. Costs are in steps of plain decoding at that batch; `needed` is the tokens per "
    "call that the paper's speedups over 5 beams take.",
    "claims": "What the paper says, on our models and rooflines. `holds` counts the cases at hand.",
}

_PICTURES = {
    "blocks": Picture(figures.blocks, ("law", "blocks")),
    "grid": Picture(figures.grid, ("grid",)),
    "verify": Picture(figures.verify, ("verify",)),
    "devices": Picture(figures.devices, ("devices",)),
}

_CLAIM = (
    "In Xia22 a drafter fills in k = 25 masks in one run. It claims that this makes greedy "
    "translation about 3 times as fast as beam search, with the same text. Accepting what is near "
    "the best token (SpecDec++) makes it 3.6 to 4.5 times as fast and at first even better, and "
    "stronger devices gain more."
)
_NO_MASKS = (
    "No drafter of masks was decoded beside this profile (`specsim validate`), so only rooflines "
    "speak."
)


def _compute(measured: Measured) -> dict[str, Sequence[Row]]:
    blocks = list(tables.blocks(measured))
    masks = where(blocks, drafter="masks")
    grid = list(tables.grid(measured))
    priced = list(devices.devices(tables.mask_alpha(masks)))
    return {
        "text": list(paper.text()),
        "blocks": blocks,
        "law": list(tables.law(measured, masks)),
        "grid": grid,
        "devices": priced,
        "verify": list(devices.verify()),
        "claims": counted(claims(blocks, grid, priced)),
    }


def _opening(found: Tables) -> Sequence[str]:
    masks = where(found["blocks"], drafter="masks")
    return _CLAIM, _decoded(found, masks) if masks else _NO_MASKS, _rooflines(found)


def _decoded(found: Tables, masks: Sequence[Row]) -> str:
    best = max(masks, key=lambda row: row["measured_speedup"])
    grid = where(found["grid"], **{"from": f"decoding, masks {best['block_size']}"})
    loose = [row for row in grid if row["beta"] > 1]
    faster = sum(row["measured_speedup"] > best["measured_speedup"] for row in loose)
    chosen = [
        f" On scored text {gain(row)}."
        for row in where(found["grid"], **{"from": "scored text", "beta": 3, "tau": 1})
    ]
    return (
        f"Our masks of {best['block_size']} make greedy decoding {best['measured_speedup']:.2f} "
        f"times as fast, at {best['tokens_per_call']:.2f} tokens per call; {faster} of "
        f"{len(loose)} looser settings are faster still.{''.join(chosen)}"
    )


def _rooflines(found: Tables) -> str:
    one = next(row for row in found["devices"] if row["batch"] == 1)
    needed = listed([f"{value:.1f}" for name, value in one.items() if name.startswith("needed")])
    batch = devices.BATCHES[-1]
    costs = {
        row["device"]: row["c"] + row["v"] for row in found["devices"] if row["batch"] == batch
    }
    best, worst = min(costs, key=costs.__getitem__), max(costs, key=costs.__getitem__)
    return (
        f"By the roofline of a {one['device']} at batch 1 the printed speedups need {needed} "
        f"tokens per call. Load raises the price: at batch {batch} drafting and verifying a block "
        f"takes {costs[best]:.0f} (on an {best}) to {costs[worst]:.0f} (on a {worst}) steps of "
        "plain decoding."
    )


STUDY = Study(
    "Xia22: Speculative Decoding, Lossless Speedup of Autoregressive Translation",
    _CAPTIONS,
    _PICTURES,
    _compute,
    _opening,
    paper.checks,
)
