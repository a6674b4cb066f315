"""Narasimhan24 Table 1: what each rule says it emits, and what its sampler emits.

On pairs of random distributions, because a law is a statement about every pair; the rows of a
language model are no exception to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.checks import Floats
from specsim.rules import (
    BildStar,
    Chow,
    ChowLog,
    Diff,
    DiffLog,
    Distributions,
    DraftDeferralRule,
    Lossless,
    Lossy,
    LossyStar,
    Opt,
    OptLog,
    Rule,
    TokenV1,
    TokenV2,
    TokenV3,
)

# Table 1 and Table 3, with the target distribution as printed there.
_TABLE = (
    (Lossless(), "p"),
    (Lossy(0.3), "max(min(q, p/(1-a)), p/b), a = 0.3, b = 1"),
    (Lossy(0.7), "the same, a = 0.7, b = 1"),
    (LossyStar(0.3), "the same, a = 0.3, b solved for sum pi = 1"),
    (LossyStar(0.7), "the same, a = 0.7, b solved for sum pi = 1"),
    (Chow(0.5), "q, or p where max q < 1 - 0.5"),
    (ChowLog(1.5), "q, or p where H(q) > 1.5"),
    (Diff(0.1), "q, or p where max q < max p - 0.1"),
    (DiffLog(0.1), "q, or p where H(q) > H(p) + 0.1"),
    (Opt(0.1), "q, or p where max q < max p - 0.1 TV"),
    (OptLog(0.1), "q, or p where H(q) > H(p) + 0.1 TV"),
    (BildStar(2.0), "q, or p where -log p(argmax q) > 2"),
    (BildStar(2.0, "expectation"), "q, or p where -sum q log p > 2"),
    (TokenV1(0.3), "q(1 - r) + p eta, r = 1[q(v) < max p - 0.3]"),
    (TokenV2(0.3), "the same, r = 1[p(v) < max p - 0.3]"),
    (TokenV3(0.3), "the same, r = 1[p(v) < max p (1 - 0.3)]"),
    (TokenV3(0.0), "the same, r = 1[p(v) < max p]"),
)
_DRAWS, _VOCABULARY = 4000, 32
# The grid that the authors search the scale b of Lossy* on ends here (E.6).
_GRID_END = 10.0
# The pair of the errata's worked example.
EXAMPLE_Q, EXAMPLE_P = (0.5, 0.3, 0.2), (0.3, 0.4, 0.3)
# Sums of some dozen float64 numbers.
_ROUNDING = 1e-12


def pairs(seed: int = 0) -> Distributions:
    """Random p and q that agree in part, shape (draws, V)."""
    rng = np.random.default_rng(seed)
    shared, own_p, own_q = rng.normal(size=(3, _DRAWS, _VOCABULARY))
    return Distributions.checked(_softmax(2 * shared + own_p), _softmax(2 * shared + own_q))


def _softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def laws() -> list[dict[str, Any]]:
    """One row a rule: is pi a distribution, and is it what comes out?

    tv_to_pi : TV between the emitted law m and pi over its sum, the largest of all draws
    tv_to_target : TV between m and p, mean; 0 is lossless
    """
    rows = pairs()
    return [_law(rule, says, rows) for rule, says in _TABLE]


def _law(rule: Rule, says: str, rows: Distributions) -> dict[str, Any]:
    pi, emitted = np.asarray(rule.pi(rows)), np.asarray(rule.emitted(rows))
    total = pi.sum(axis=-1)
    apart = np.abs(emitted - pi / total[:, None]).sum(axis=-1) / 2
    from_target = np.abs(emitted - rows.p).sum(axis=-1) / 2
    return {
        "rule": type(rule).__name__,
        "target_distribution": says,
        "runs_token_by_token": isinstance(rule, DraftDeferralRule),
        "sum_pi_mean": float(total.mean()),
        "sum_pi_largest": float(total.max()),
        "pi_is_distribution": bool(np.abs(total - 1).max() < _ROUNDING),
        "emits_pi": bool(apart.max() < _ROUNDING),
        "tv_to_pi": float(apart.max()),
        "tv_to_target": float(from_target.mean()),
        "acceptance": float(np.asarray(rule.acceptance(rows)).mean()),
        "source": "computed",
    }


def example() -> list[dict[str, Any]]:
    """Lossy with b = 1 on three tokens: pi, pi over its sum, and what is emitted."""
    rows = Distributions.checked(np.array(EXAMPLE_P), np.array(EXAMPLE_Q))
    pi, emitted = (np.asarray(part) for part in (Lossy(0.3).pi(rows), Lossy(0.3).emitted(rows)))
    columns = zip(EXAMPLE_Q, EXAMPLE_P, pi, pi / pi.sum(), emitted, strict=True)
    return [
        {
            "token": place,
            "q": q,
            "p": p,
            "pi": float(mass),
            "pi_over_its_sum": float(normal),
            "emitted": float(out),
            "source": "computed",
        }
        for place, (q, p, mass, normal, out) in enumerate(columns)
    ]


def lossy_star() -> list[dict[str, Any]]:
    """The scale b that Lossy* needs, per looseness, against the grid that the authors search."""
    rows = pairs()
    found = []
    for looseness in (0.1, 0.3, 0.5, 0.7, 0.9, 0.98):
        inverse = np.asarray(LossyStar(looseness).inverse_scale(rows))
        with np.errstate(divide="ignore"):
            scale = 1 / inverse
        found.append(
            {
                "looseness": looseness,
                "median_b": float(np.median(scale)),
                "share_b_above_1": float((scale > 1).mean()),
                "share_b_beyond_grid": float((scale > _GRID_END).mean()),
                "share_no_residual_at_b_10": float(_without_residual(rows, looseness).mean()),
                "source": "computed",
            }
        )
    return found


def _without_residual(rows: Distributions, looseness: float) -> Floats:
    """Where b at the grid's end leaves no residual although tokens are rejected."""
    rule = Lossy(looseness, _GRID_END)
    rejects = np.asarray(rule.acceptance(rows)) < 1 - _ROUNDING
    return np.asarray(rejects & (np.asarray(rule.excess(rows)).sum(axis=-1) == 0), dtype=float)


def token_v3() -> list[dict[str, Any]]:
    """TokenV3 by threshold: what it rejects of a draft that is the target itself, and of ours.

    At threshold 0 with q = p a token is rejected with probability p(top)(1 - p(top)), where
    lossless speculation rejects nothing (errata: Narasimhan24 3).
    """
    rows = pairs()
    same = Distributions(rows.p, rows.p)
    top = np.asarray(rows.p).max(axis=-1)
    found = []
    for threshold in (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0):
        rule = TokenV3(threshold)
        at_zero = float((top * (1 - top)).mean()) if threshold == 0 else None
        found.append(
            {
                "threshold": threshold,
                "rejection": float(1 - np.asarray(rule.acceptance(rows)).mean()),
                "rejection_of_the_target_itself": float(
                    1 - np.asarray(rule.acceptance(same)).mean()
                ),
                "p_top_times_rest": at_zero,
                "lossless_rejection": float(1 - np.asarray(Lossless().acceptance(rows)).mean()),
                "source": "computed",
            }
        )
    return found
