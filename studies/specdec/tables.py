"""What our models do, for the page: masks by block size, the grid of beta and tau."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

import numpy as np

from specsim.checks import Floats
from specsim.conversions import alpha_from_acceptance_length
from specsim.cost import Cost, MeasuredVerify
from specsim.optimizers.workload import Workload
from specsim.predict import renewal
from specsim.schemes.specdec import SpecDec
from studies.common.claims import mean_over_positions
from studies.common.decoded import single_drafters
from studies.common.measured import Measured, verify_curve
from studies.common.study import Row
from studies.specdec.devices import BLOCK, WIDEST, tokens_per_call

TAUS = (0.5, 1.0, 2.0, 3.0, 5.0)


def _plain_overhead(workload: Workload) -> float:
    """Host time of a step of plain decoding, in target runs on one token."""
    one = float(workload.cost.target(1, np.array([workload.context]))[0])
    return float(workload.cost.overhead(0)) / one


def blocks(measured: Measured) -> Iterator[dict[str, Any]]:
    workload = measured.greedy
    if workload is None:
        return
    curve, step = verify_curve(workload), 1 + _plain_overhead(workload)
    for name, k, row in single_drafters(measured.decoded):
        if row["temperature"] == 0 and name in ("masks", "draft"):
            tokens = row["measured_tokens_per_call"]
            cost = step * tokens / row["measured_speedup"]
            v = curve[k] if k < len(curve) else None
            yield {
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


def mask_alpha(masks: Sequence[Row]) -> float | None:
    """Of the widest block that was decoded, the nearest to the paper's."""
    return max(masks, key=lambda row: row["block_size"])["alpha"] if masks else None


def law(measured: Measured, masks: Sequence[Row]) -> Iterator[dict[str, Any]]:
    alpha, workload = mask_alpha(masks), measured.greedy
    if alpha is None or workload is None:
        return
    curve = verify_curve(workload)
    beside = [row["beside_v"] for row in masks if row["beside_v"] is not None]
    # Draft run and host time together: what blocks cost beside the target's run, on average.
    drafts = {"draft": max(mean(beside), 0.0)} if beside else {}
    cost = Cost(drafts, MeasuredVerify(tuple(curve)), plain_overhead=_plain_overhead(workload))
    for k in range(1, WIDEST + 1):
        block = SpecDec(k).law(alpha)
        yield {
            "block_size": k,
            "alpha": alpha,
            "tokens_per_call": block.tokens_per_call,
            "without_bonus": tokens_per_call(alpha, k, bonus=False),
            "speedup_here": renewal.speedup(block, cost) if drafts and k < len(curve) else None,
        }


def grid(measured: Measured) -> Iterator[dict[str, Any]]:
    for row in measured.decoded:
        ruled = row["rule"] == "TopBeta"
        masks = row["scheme"] == "specdec"
        if row["temperature"] == 0 and (masks or ruled):
            beta, tau = row["threshold"].split(", ") if ruled else (1, 0)
            yield {
                "from": f"decoding, {row['drafters']} {row['gamma']}",
                "beta": int(beta),
                "tau": float(tau),
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
        # As ``specsim.frontier`` names settings: beta=3, tau=1.
        beta, tau = (float(part.partition("=")[2]) for part in setting.split(", "))
        cells.append((int(beta), tau, 1 - outcome.rejection, 1 - outcome.loss))
    drafted = scored.columns.get("unscaled_bild_greedy")
    top = scored.columns.get("unscaled_target_max")
    if drafted is not None and top is not None:
        for tau in TAUS:
            # log max p - log p(draft) <= tau, up to rounding of equal numbers.
            near = np.log(top) + drafted <= tau + 1e-6
            cells.append((None, tau, near.astype(float), np.where(near, draft, target)))
    for number, tau, accepted, right in cells:
        alpha = float(accepted.mean())
        gain = mean_over_positions(100 * (right - target), scored.starts)
        yield {
            "from": "scored text",
            "beta": number,
            "tau": tau,
            "acceptance": alpha,
            "accepted_of_8": tokens_per_call(alpha, 8) - 1,
            "accepted_of_25": tokens_per_call(alpha, BLOCK) - 1,
            "accuracy": float(right.mean()),
            "gain": 100 * float((right - target).mean()),
            "low": gain.low,
            "high": gain.high,
        }
