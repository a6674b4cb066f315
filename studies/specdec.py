"""Xia22: a drafter that fills in masks, the accepted tokens, the grid of beta and tau, the devices.

The tables of the paper are lost from its text, so only running text is left to compare with.
Costs on accelerators are rooflines of an assumed shape: Transformer-base, counted as a T5, since
the paper names its sizes.  What is not modelled: encoding the source, and host time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim import hardware
from specsim.acceptance import ConstantAcceptance
from specsim.checks import Floats
from specsim.conversions import alpha_from_acceptance_length
from specsim.cost import Cost, MeasuredVerify
from specsim.predict import renewal
from specsim.predict.choice import Workload
from specsim.schemes.speculative import SpecDec
from studies import specdec_figures as figures
from studies.leviathan import RULED_GAMMA, drafters, interval, verify_curve
from studies.study import Check, Measured, Row, Tables, reference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Xia22: Speculative Decoding, Lossless Speedup of Autoregressive Translation"

CAPTIONS = {
    "text": "What is left of the paper's results: numbers in its running text",
    "blocks": "Block size (Xia22 Table 2): masks filled in at once, and drafts token by token "
    "beside them, on the same requests; `accepted` is tokens per call without the target's own, "
    "`block_cost` is what tokens per call and speedup say of a block, in target runs on one token, "
    "`beside_v` what of it is not the target's run",
    "law": "Block size by the law of SpecDec: tokens per call of k masks at one alpha for all "
    "positions, and the speedup here while target runs were timed that wide",
    "grid": "Top-beta and tau (Xia22 Table 3): acceptance, what the law makes of it at k = 8 and "
    "k = 25, and quality (share of held-out tokens that are right; `gain` against greedy decoding "
    "in percentage points, 95 % paired interval); scored text is drafted by the draft of the "
    "profile, beta `-` stands for any rank",
    "devices": "Devices (Xia22 Figure 5): rooflines of Transformer-base, k = 25, prefix 15, source "
    "30 tokens; costs in steps of plain decoding at that batch, `needed` tokens per call for the "
    "paper's speedups over 5 beams",
    "verify": "v(n) of Transformer-base by roofline, n = 1..30 new tokens per sequence",
    "claims": "What the paper says, on our models and rooflines",
}

# The paper's block size, and the widest in its text.
BLOCK, WIDEST = 25, 30
BEAMS = 5  # its speed baseline is beam search
BATCHES = (1, 8, 32)
# Assumed: tokens of the source, and of the translation so far.
SOURCE, PREFIX = 30, 15
# Xia22 section 5.1 and footnote: 6 + 6 layers, 512 / 2048 / 8, a joint vocabulary of 32K.
BASE = hardware.shape_from_config(
    {
        "model_type": "t5",
        "d_model": 512,
        "d_kv": 64,
        "num_heads": 8,
        "d_ff": 2048,
        "num_layers": 6,
        "num_decoder_layers": 6,
        "vocab_size": 32_000,
    }
)
# Figure 5's three and the one its appendix E hopes for; the text does not say which form of each.
P100 = hardware.Accelerator(
    name="P100-PCIe-16GB",
    peak_flops={"float32": 9.3e12, "float16": 18.7e12},
    bandwidth=732e9,
    memory=16e9,
    source="https://images.nvidia.com/content/tesla/pdf/nvidia-tesla-p100-PCIe-datasheet.pdf",
)
DEVICES = (
    (P100, "float32"),
    (hardware.accelerator("V100-SXM2-16GB"), "float16"),
    (hardware.accelerator("A100-40GB-SXM"), "float16"),
    (hardware.accelerator("H100-SXM"), "float16"),
)
TAUS = (0.5, 1.0, 2.0, 3.0, 5.0)
MASKS = re.compile(r"masks (?P<k>\d+)(?:, top (?P<beta>\d+) within (?P<tau>[\d.]+))?")
_RULED = re.compile(r"top (?P<beta>\d+) within (?P<tau>[\d.]+)")
_FIXED = re.compile(r"beta=(?P<beta>\d+), tau=(?P<tau>[\d.]+)")


def compute(measured: Measured) -> Tables:
    blocks = list(_blocks(measured))
    masks = [row for row in blocks if row["drafter"] == "masks"]
    grid = list(_grid(measured))
    devices = list(_devices(_mask_alpha(masks)))
    return {
        "text": list(_text()),
        "blocks": blocks,
        "law": list(_law(measured, masks)),
        "grid": grid,
        "devices": devices,
        "verify": list(_verify()),
        "claims": list(_claims(blocks, grid, devices)),
    }


def _text() -> Iterator[dict[str, Any]]:
    for row in reference("xia22_text_figures"):
        yield {"source": "Xia22 section 5", **{name: value or None for name, value in row.items()}}


# --- our models ----------------------------------------------------------------------------------


def _greedy(measured: Measured) -> Workload | None:
    """The workload at temperature 0, where SpecDec is at home."""
    found = [each for each in measured.workloads if each.measured.sampling.temperature == 0]
    return found[0] if found else None


def _plain_overhead(workload: Workload) -> float:
    """Host time of a step of plain decoding, in target runs on one token."""
    one = float(workload.cost.target(1, np.array([workload.context]))[0])
    return workload.cost.overhead(0) / one


def _blocks(measured: Measured) -> Iterator[dict[str, Any]]:
    workload = _greedy(measured)
    if workload is None:
        return
    curve, step = verify_curve(workload), 1 + _plain_overhead(workload)
    for name, k, row in drafters(measured.decoded):
        if row["temperature"] == 0 and name in ("masks", "draft"):
            tokens = row["measured_tokens_per_call"]
            cost = step * tokens / row["measured_speedup"]
            v = curve[k] if k < len(curve) else None
            yield {
                "source": measured.source,
                "drafter": name,
                "block_size": k,
                "tokens_per_call": tokens,
                "accepted": tokens - 1,
                "alpha": alpha_from_acceptance_length(tokens, k),
                "predicted_speedup": row["predicted_speedup"],
                "measured_speedup": row["measured_speedup"],
                "low": row["measured_low"],
                "high": row["measured_high"],
                "block_cost": cost,
                "v": v,
                "beside_v": None if v is None else cost - v,
                "agreement": row["agreement"],
            }


def _mask_alpha(masks: Sequence[Row]) -> float | None:
    """Of the widest block that was decoded, the nearest to the paper's."""
    return max(masks, key=lambda row: row["block_size"])["alpha"] if masks else None


def tokens_per_call(alpha: float, k: int, bonus: bool = True) -> float:
    """E[N] of k masks at one alpha for all positions."""
    return SpecDec(ConstantAcceptance(alpha), k, bonus=bonus).law().tokens_per_call


def _law(measured: Measured, masks: Sequence[Row]) -> Iterator[dict[str, Any]]:
    alpha, workload = _mask_alpha(masks), _greedy(measured)
    if alpha is None or workload is None:
        return
    curve = verify_curve(workload)
    beside = [row["beside_v"] for row in masks if row["beside_v"] is not None]
    # Draft run and host time together: what blocks cost beside the target's run, on average.
    drafts = {"draft": max(mean(beside), 0.0)} if beside else {}
    cost = Cost(drafts, MeasuredVerify(tuple(curve)), plain_overhead=_plain_overhead(workload))
    for k in range(1, WIDEST + 1):
        law = SpecDec(ConstantAcceptance(alpha), k).law()
        yield {
            "source": measured.source,
            "block_size": k,
            "alpha": alpha,
            "tokens_per_call": law.tokens_per_call,
            "without_bonus": tokens_per_call(alpha, k, bonus=False),
            "speedup_here": renewal.speedup(law, cost) if drafts and k < len(curve) else None,
        }


def _grid(measured: Measured) -> Iterator[dict[str, Any]]:
    for row in measured.decoded:
        masks = MASKS.fullmatch(row["setting"]) if row["scheme"] == "specdec" else None
        ruled = _RULED.fullmatch(row["setting"]) if row["scheme"] == "cascade" else None
        match = masks or ruled
        if match is None or row["temperature"] != 0:
            continue
        strict = match["beta"] is None
        yield {
            "source": measured.source,
            "from": f"decoding, masks {match['k']}" if masks else f"decoding, draft {RULED_GAMMA}",
            "beta": 1 if strict else int(match["beta"]),
            "tau": 0.0 if strict else float(match["tau"]),
            "tokens_per_call": row["measured_tokens_per_call"],
            "measured_speedup": row["measured_speedup"],
            "agreement": row["agreement"],
        }
    scored = measured.positions.get(0.0)
    if scored is None:
        return
    draft, target = (1 - loss for loss in scored.losses("0-1"))
    cells: list[tuple[int | None, float, Floats, Floats]] = [(1, 0.0, 1 - scored.tv, target)]
    for setting, outcome in scored.fixed("0-1").get("TopBeta", {}).items():
        match = _FIXED.fullmatch(setting)
        if match:
            beta, tau = int(match["beta"]), float(match["tau"])
            cells.append((beta, tau, 1 - outcome.rejection, 1 - outcome.loss))
    drafted = scored.columns.get("unscaled_bild_greedy")
    top = scored.columns.get("unscaled_target_max")
    if drafted is not None and top is not None:
        for tau in TAUS:
            # log max p - log p(draft) <= tau, up to rounding of equal numbers.
            near = np.log(top) + drafted <= tau + 1e-6
            cells.append((None, tau, near.astype(float), np.where(near, draft, target)))
    for number, tau, accepted, right in cells:
        alpha = float(accepted.mean())
        low, high = interval(100 * (right - target), scored.starts)
        yield {
            "source": measured.source,
            "from": "scored text",
            "beta": number,
            "tau": tau,
            "acceptance": alpha,
            "accepted_of_8": tokens_per_call(alpha, 8) - 1,
            "accepted_of_25": tokens_per_call(alpha, BLOCK) - 1,
            "accuracy": float(right.mean()),
            "gain": 100 * float((right - target).mean()),
            "low": low,
            "high": high,
        }


# --- devices -------------------------------------------------------------------------------------


def _seconds(
    device: hardware.Accelerator, dtype: str, new_tokens: int, batch: int, context: int
) -> float:
    return hardware.run_seconds(
        BASE.at(hardware.Precision(dtype=dtype)),
        device,
        new_tokens,
        batch,
        context,
        encoder_context=SOURCE,
    )


def _devices(alpha: float | None) -> Iterator[dict[str, Any]]:
    printed = [
        (row["setting"], float(row["speedup_over_beam5"]))
        for row in reference("xia22_text_figures")
        if row["speedup_over_beam5"]
    ]
    for device, dtype in DEVICES:
        for batch in BATCHES:
            plain = _seconds(device, dtype, 1, batch, PREFIX)
            # The drafter keeps no cache (Xia22 appendix D): it reads the prefix and all masks.
            c = _seconds(device, dtype, PREFIX + BLOCK, batch, 0) / plain
            v = _seconds(device, dtype, BLOCK + 1, batch, PREFIX) / plain
            beams = _seconds(device, dtype, 1, batch * BEAMS, PREFIX) / plain
            tokens = None if alpha is None else tokens_per_call(alpha, BLOCK)
            speedup = None if tokens is None else tokens / (c + v)
            yield {
                "source": "computed",
                "device": device.name,
                "dtype": dtype,
                "batch": batch,
                "plain_us": 1e6 * plain,
                "c": c,
                "v": v,
                "beams": beams,
                "cost_over_beams": (c + v) / beams,
                "tokens_per_call": tokens,
                "speedup_over_greedy": speedup,
                "speedup_over_beams": None if speedup is None else speedup * beams,
                **{f"needed, {name}": times * (c + v) / beams for name, times in printed},
            }


def _verify() -> Iterator[dict[str, Any]]:
    columns = {
        f"{device.name}, batch {batch}": [
            _seconds(device, dtype, n, batch, PREFIX) for n in range(1, WIDEST + 1)
        ]
        for device, dtype in DEVICES
        for batch in (BATCHES[0], BATCHES[-1])
    }
    for n in range(1, WIDEST + 1):
        relative = {name: column[n - 1] / column[0] for name, column in columns.items()}
        yield {"source": "computed", "n": n, **relative}


# --- what holds ----------------------------------------------------------------------------------


def _claims(
    blocks: Sequence[Row], grid: Sequence[Row], devices: Sequence[Row]
) -> Iterator[dict[str, Any]]:
    """One row per claim; ``holds`` counts where it does, of the cases at hand."""

    def claim(where: str, says: str, cases: Iterable[tuple[bool, str]]) -> Iterator[dict[str, Any]]:
        listed = list(cases)
        if listed:
            yield {
                "source": f"Xia22 {where}",
                "claim": says,
                "holds": f"{sum(held for held, _ in listed)} of {len(listed)}",
                "here": "; ".join(text for _, text in listed),
            }

    masks = sorted(
        (row for row in blocks if row["drafter"] == "masks"), key=lambda row: row["block_size"]
    )
    yield from claim(
        "section 3",
        "the text is that of greedy decoding",
        (
            (row["agreement"] == 1, f"masks {row['block_size']}: {row['agreement']:.3f} agree")
            for row in masks
        ),
    )
    yield from claim(
        "section 5.3.1",
        "up to k = 25, a larger block has more accepted tokens",
        (
            (
                large["accepted"] > small["accepted"],
                f"{small['accepted']:.2f} of {small['block_size']} (alpha {small['alpha']:.2f}), "
                f"{large['accepted']:.2f} of {large['block_size']} (alpha {large['alpha']:.2f})",
            )
            for small, large in pairwise(masks)
        ),
    )
    drafts = [row for row in blocks if row["drafter"] == "draft"]
    yield from claim(
        "section 4",
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
    )
    decoded = [row for row in grid if row["from"].startswith("decoding, masks")]
    strict = {row["from"]: row for row in decoded if row["beta"] == 1}
    yield from claim(
        "section 5.2",
        "SpecDec++ is faster than SpecDec",
        (
            (
                row["measured_speedup"] > other["measured_speedup"],
                f"top {row['beta']} within {row['tau']:g}: {row['measured_speedup']:.2f} against "
                f"{other['measured_speedup']:.2f}, tokens per call "
                f"{row['tokens_per_call']:.2f} against {other['tokens_per_call']:.2f}",
            )
            for row in decoded
            if row["beta"] > 1 and (other := strict.get(row["from"]))
        ),
    )
    scored = [row for row in grid if row["from"] == "scored text"]
    relaxed = sorted(scored[1:], key=lambda row: row["acceptance"])
    chosen = [row for row in relaxed if (row["beta"], row["tau"]) == (3, 1)]
    best = sorted(relaxed, key=lambda row: -row["gain"])[:1]
    yield from claim(
        "Table 3",
        "a moderate beta and tau beat greedy decoding (the paper's choice, and our best cell)",
        ((row["gain"] > 0, _gain(row)) for row in chosen + best),
    )
    yield from claim(
        "Table 3",
        "over-relaxed, the text gets worse",
        (
            (row["accuracy"] < max(each["accuracy"] for each in scored), _gain(row))
            for row in relaxed[-1:]
        ),
    )
    yield from claim(
        "Figure 5",
        "the stronger the device, the larger the speedup (P100, V100, A100)",
        (
            (
                all(weak > strong for weak, strong in pairwise(costs[:3])),
                f"batch {batch}: a block costs "
                f"{', '.join(f'{cost:.2f}' for cost in costs[:3])} steps of 5 beams",
            )
            for batch in BATCHES
            for costs in [[row["cost_over_beams"] for row in devices if row["batch"] == batch]]
        ),
    )


def _gain(row: Row) -> str:
    rank = "any rank" if row["beta"] is None else f"top {row['beta']}"
    return (
        f"{rank} within {row['tau']:g}: {row['gain']:+.2f} points of accuracy (95 %: "
        f"{row['low']:+.2f} to {row['high']:+.2f})"
    )


def opening(tables: Tables) -> str:
    claims = (
        "The paper claims that a drafter which fills in k = 25 masks in one run makes greedy "
        "translation about 3 times as fast as beam search with the same text, that accepting what "
        "is near the best token (SpecDec++) makes it 3.6 to 4.5 times as fast and at first even "
        "better, and that stronger devices gain more."
    )
    one = next(row for row in tables["devices"] if row["batch"] == 1)
    needed = [f"{value:.1f}" for name, value in one.items() if name.startswith("needed")]
    roof = (
        f"by roofline of a {one['device']} at batch 1 the printed speedups need {needed[0]}, "
        f"{needed[1]} and {needed[2]} tokens per call"
    )
    masks = [row for row in tables["blocks"] if row["drafter"] == "masks"]
    full = [row for row in tables["devices"] if row["batch"] == BATCHES[-1]]
    worst = max(full, key=lambda row: row["cost_over_beams"])
    scale = (
        f"at batch {BATCHES[-1]} drafting and verifying a block costs {worst['c']:.1f} + "
        f"{worst['v']:.1f} steps of plain decoding on a {worst['device']}"
    )
    if not masks:
        return (
            f"{claims} No drafter of masks was decoded with this profile, so only rooflines speak: "
            f"{roof}. By the same rooflines the gain does not last, since {scale}; specsim "
            "validate --scheme specdec makes the missing measurements."
        )
    best = max(masks, key=lambda row: row["measured_speedup"])
    grid = [row for row in tables["grid"] if row["from"] == "decoding, masks 8"]
    loose = [row for row in grid if row["beta"] > 1]
    strict = [row for row in grid if row["beta"] == 1]
    faster = (
        f", and {sum(row['measured_speedup'] > strict[0]['measured_speedup'] for row in loose)} of "
        f"{len(loose)} looser settings are faster still"
        if strict and loose
        else ""
    )
    chosen = [
        row
        for row in tables["grid"]
        if (row["from"], row["beta"], row["tau"]) == ("scored text", 3, 1)
    ]
    quality = f"in quality, for us {_gain(chosen[0])}; " if chosen else ""
    return (
        f"{claims} Our masks of {best['block_size']} make decoding {best['measured_speedup']:.2f} "
        f"times as fast as greedy decoding at {best['tokens_per_call']:.2f} tokens per call{faster}"
        f"; {roof}. We differ in the block size, where a peak at 25 must come from the drafter, "
        f"since by the law accepted tokens never fall with k; {quality}and in scale, where {scale}."
    )


def draw(tables: Tables) -> dict[str, Figure]:
    return figures.draw(tables)


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
