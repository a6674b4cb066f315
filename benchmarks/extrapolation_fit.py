"""The constants of the trends of acceptance, from the curves that are committed.

The rises of the log odds of a curve from position to position are normal about slope dg, with dg
the steps of the depth, and their covariance is ::

    spread^2 dg dg' + turn^2 min(i - 1, j - 1) + irregular^2 D D' + what chance and rounding do,

where D takes differences (specsim/extrapolation/trends.py).  The constants are posterior means on a
grid, flat in each of them: of the slope itself, of the others of their squares, which is what they
add to a forecast; the spread takes up what is open of the slope, as a prediction for a drafter that
was not seen must (Higgins and others 2009).  Of few curves the likeliest standard deviations are
often 0, their means never are.

Runs weigh the same, however many curves are of them; level rates, which stand for drafters that are
not known, too, are those of heads and of draft models alike, and have no slope.  What falling rates
have is known from longer lengths (extrapolation_accuracy.py), so nothing of it is fitted here.

Read by extrapolation_by_drafter.py, which fits again without the family that is judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks.acceptance_evidence import Curve
from specsim.checks import Floats
from specsim.extrapolation.curve import UNKNOWN_COUNTS
from specsim.extrapolation.trends import (
    LEVEL,
    TRENDS,
    Trend,
    empirical_logits,
)

SLOPES = np.arange(0.0, 2.51, 0.05)
SPREADS = np.array([0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.3, 1.7])
TURNS = np.array([0.0, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3])
IRREGULARS = np.array([0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4])


def fitted(trend: Trend, found: Sequence[Curve]) -> Trend:
    """The trend with the constants of these curves."""
    slopes = _slopes(trend.name)
    curves_of = Counter(curve.run for curve in found)
    runs_of = Counter(drafter for _, drafter in {(curve.run, curve.drafter) for curve in found})
    fewest = min(runs_of.values())
    total = np.sum(
        [
            _likelihood(each, trend.name) * fewest / (runs_of[each.drafter] * curves_of[each.run])
            for each in found
        ],
        axis=0,
    )
    axes = [slopes, SPREADS, TURNS, IRREGULARS]
    weights = np.exp(total - total.max())
    for axis, values in enumerate(axes):
        width = np.gradient(values) if values.size > 1 else np.ones(1)
        weights = np.moveaxis(np.moveaxis(weights, axis, -1) * width, -1, axis)
    weights /= weights.sum()
    each = [
        weights.sum(axis=tuple(other for other in range(4) if other != axis)) for axis in range(4)
    ]
    slope = float(each[0] @ slopes)
    open_slope = float(each[0] @ (slopes - slope) ** 2)
    spread, turn, irregular = (
        float(np.sqrt(part @ values**2)) for part, values in zip(each[1:], axes[1:], strict=True)
    )
    return replace(
        trend,
        slope=round(slope, 2),
        spread=round(float(np.hypot(spread, np.sqrt(open_slope))), 2),
        turn=round(turn, 2),
        irregular=round(irregular, 2),
    )


def _slopes(name: str) -> Floats:
    return np.zeros(1) if name == LEVEL.name else SLOPES


@cache
def _likelihood(curve: Curve, name: str) -> Floats:
    """Its logarithm, but for a constant, at every slope, spread, turn and departure."""
    determinant, squares, products, steps = _forms(curve, name)
    slopes = _slopes(name)[:, None, None, None]
    return np.asarray(-0.5 * (determinant + squares - 2 * slopes * products + slopes**2 * steps))


def _forms(curve: Curve, name: str) -> Floats:
    """log |V|, y' V^-1 y, dg' V^-1 y and dg' V^-1 dg, each by spread, turn and departure."""
    logits, noise = _observed(curve)
    rises = np.diff(logits)
    steps = np.diff(TRENDS[name].depth(np.arange(1.0, logits.size + 1)))
    order = np.arange(rises.size)
    difference = np.diff(np.eye(logits.size), axis=0)
    parts = [np.outer(steps, steps), np.minimum.outer(order, order), difference @ difference.T]
    points = np.array(list(product(SPREADS, TURNS, IRREGULARS)))
    covariance = np.einsum("gp,pij->gij", points**2, np.stack(parts))
    covariance += difference @ np.diag(noise) @ difference.T
    right = np.broadcast_to(np.stack([rises, steps], axis=1), (*covariance.shape[:2], 2))
    forms = np.einsum("gik,gil->gkl", right, np.linalg.solve(covariance, right))
    determinant = np.linalg.slogdet(covariance).logabsdet
    found = np.stack([determinant, forms[:, 0, 0], forms[:, 0, 1], forms[:, 1, 1]])
    return found.reshape(4, SPREADS.size, TURNS.size, IRREGULARS.size)


def _observed(curve: Curve) -> tuple[Floats, Floats]:
    """Log odds by position and their variances, those of the last digit that was printed too."""
    rates = isotonic_regression(np.array(curve.rates), increasing=False).x.clip(0.0, 1.0)
    drafts = np.broadcast_to(np.array(curve.counts or UNKNOWN_COUNTS, dtype=float), rates.shape)
    logits, noise = empirical_logits(rates, drafts)
    alpha = 1 / (1 + np.exp(-logits))
    reached = np.maximum(np.concatenate([[1.0], rates[:-1]]), max(curve.unit, 1e-9))
    rounded = curve.unit**2 / 3 * (1 + alpha**2) / (reached * alpha * (1 - alpha)) ** 2
    return logits, noise + rounded
