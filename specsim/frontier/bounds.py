"""What deferring costs in one number, and the papers' bounds on how far plug-in rules miss.

Narasimhan24 eq. (8) prices a rejection at ``cost`` (the paper's alpha).  Its optimum needs the
true distribution P of the next token; the plug-in rules OPT and OPTLog put the models' own
confidence in its place, and lose at most as much as that is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specsim.checks import Floats, UnsupportedError
from specsim.frontier.positions import LabelledPositions, Loss
from specsim.frontier.sweep import Sweep, optimum, relative_to_tv


def deferral_risk(
    defer: npt.ArrayLike, draft: Floats, target: Floats, tv: Floats, cost: npt.ArrayLike
) -> Floats:
    """Narasimhan24 eq. (8): (1 - r) l_q + r (l_p + cost TV), position by position.

    defer : r, 0 or 1; draft, target : expected losses l_q and l_p
    """
    return np.where(np.asarray(defer, dtype=np.bool_), target + np.asarray(cost) * tv, draft)


def least_risk(draft: Floats, target: Floats, tv: Floats, cost: npt.ArrayLike) -> Floats:
    """The minimum of ``deferral_risk`` over r: Narasimhan24 Lemma 6, position by position."""
    return np.minimum(draft, target + np.asarray(cost) * tv)


def bound_0_1(truth: Floats, q: Floats, p: Floats) -> Floats:
    """Narasimhan24 Lemma 7: OPT's risk is above the least by at most this, for the 0-1 loss.

    max_v |P(v) - q(v)| + max_v |P(v) - p(v)|, rows (..., V) to (...).
    """
    return np.asarray(np.abs(truth - q).max(axis=-1) + np.abs(truth - p).max(axis=-1))


def bound_log(truth: Floats, q: Floats, p: Floats) -> Floats:
    """Narasimhan24 Lemma 8: OPTLog's risk is above the least by at most this, for the log loss.

    B_q sum_v |P(v) - q(v)| + B_p sum_v |P(v) - p(v)| with B = max_v |log .|; rows (..., V) to
    (...).  Infinite where a probability is zero.
    """
    return _off_by(truth, q) + _off_by(truth, p)


def _off_by(truth: Floats, model: Floats) -> Floats:
    """One model's part of Lemma 8."""
    gap = np.abs(truth - model).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.abs(np.log(model)).max(axis=-1) * gap
    # A model that is the truth is off by nothing, however large its B: 0 inf is 0.
    return np.asarray(np.where(gap > 0, part, 0.0))


@dataclass(frozen=True)
class PlugInRegret:
    """How far the plug-in rule is from the least risk on labelled positions, the worst cost.

    rule : OPT for the 0-1 loss, OPTLog for the log loss
    cost : the cost of a rejection at which the rule loses most, or right below it
    regret : its mean risk above the least there; the largest of all costs >= 0
    miscalibration : mean of |l_p - its estimate| + |l_q - its estimate|, the proof's own bound
        (eq. 18) before it is widened
    bound : the lemma's, None where the columns do not have it
    """

    rule: str
    cost: float
    regret: float
    miscalibration: float
    bound: float | None


def plug_in_regret(positions: LabelledPositions, loss: Loss) -> PlugInRegret:
    """Narasimhan24 Lemmas 7 and 8 on text, where the truth P is one-hot at the label.

    Then max_v |P - q| = 1 - q(y) and sum_v |P - q| = 2 (1 - q(y)).  Decides on tempered
    statistics, for which the lemmas are stated.
    """
    if loss == "sampled":
        raise UnsupportedError("the regret bounds are for the 0-1 and the log loss, not sampled")
    kind = "max" if loss == "0-1" else "entropy"
    q_hat = positions.statistic("tempered", f"draft_{kind}")
    p_hat = positions.statistic("tempered", f"target_{kind}")
    if q_hat is None or p_hat is None:
        raise UnsupportedError(f"the bounds need the columns tempered_..._{kind}")
    if loss == "0-1":
        q_hat, p_hat = 1.0 - q_hat, 1.0 - p_hat
    draft, target = positions.losses(loss)
    miscalibration = np.abs(target - p_hat) + np.abs(draft - q_hat)
    cost, regret = _worst(draft, target, positions.tv, q_hat - p_hat)
    return PlugInRegret(
        rule="Opt" if loss == "0-1" else "OptLog",
        cost=cost,
        regret=regret,
        miscalibration=float(miscalibration.mean()),
        bound=_one_hot_bound(positions, loss),
    )


def _worst(draft: Floats, target: Floats, tv: Floats, gap: Floats) -> tuple[float, float]:
    """The cost >= 0 with the largest regret of deferring where gap > cost TV, and that regret.

    Exact: the regret is straight in the cost between the scores of the rule and of the optimum,
    and jumps at the rule's, so the largest is next to one of them.
    """
    rule, best = Sweep.of(relative_to_tv(gap, tv)), optimum(tv, draft, target)
    curves = [sweep.curve(tv, draft, target) for sweep in (rule, best)]
    steps = np.concatenate([curve.setting for curve in curves])
    costs = np.unique(np.append(steps[np.isfinite(steps) & (steps >= 0)], 0.0))
    regrets = []
    for side in ("left", "right"):  # scores > cost are deferred, and the limit from below
        risks = []
        for curve in curves:
            at = np.searchsorted(-curve.setting, -costs, side=side)
            at = np.minimum(at, len(curve.setting) - 1)
            risks.append(curve.loss[at] + costs * curve.rejection[at])
        regret = risks[0] - risks[1]
        # Below a cost of 0 nobody asks.
        regrets.append(np.where(costs > 0, regret, -np.inf) if side == "right" else regret)
    regret = np.maximum(*regrets)
    worst = int(regret.argmax())
    return float(costs[worst]), float(regret[worst])


def _one_hot_bound(positions: LabelledPositions, loss: Loss) -> float | None:
    wrong = positions.losses("sampled")
    if loss == "0-1":
        return float((wrong[0] + wrong[1]).mean())
    draft_range = positions.columns.get("draft_log_range")
    target_range = positions.columns.get("target_log_range")
    if draft_range is None or target_range is None:
        return None
    return float((2 * draft_range * wrong[0] + 2 * target_range * wrong[1]).mean())
