"""What rows of a target say of its other rows.

What the law misses of a row, r = log(measured / predicted), is taken as the sum of parts that are
common to all rows of the target, to those of a task, of a configuration and of a head, and one that
is the row's own:

    r = u + task + configuration + head + own

All but u are normal; u, the target's own factor, is normal or has the heavier tails of Student's t
with two degrees of freedom, as one target may be far from the law and most are not.  The
variances, and which of the two, come from other targets by maximum likelihood (empirical Bayes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from studies.fidelity.specbundle_law import Array, Mask, Rows

# Where the target's factor is summed over: log factors, far beyond any that was seen.
_FACTORS = np.linspace(-1.0, 1.0, 401)
NORMAL, STUDENT = "normal", "Student t"
TAILS = (STUDENT, NORMAL)
_DEGREES = 2.0
# Logarithms of the variances of task, configuration, head and row, of how much wider the short
# task's part is, and of the scale of the target's factor.
_START = np.log([0.003, 0.002, 0.001, 0.002, 1.5, 0.06])
_BOUNDS = [(-10.0, 0.0)] * 4 + [(0.0, np.log(5.0)), (-5.0, 0.0)]


@dataclass(frozen=True)
class Spread:
    """Of the parts; ``logarithms`` in the order of ``_START``."""

    tails: str
    logarithms: tuple[float, ...]
    likelihood: float = 0.0


@dataclass(frozen=True)
class _Target:
    """Rows of one target: their residuals and which of them share a part."""

    residuals: Array
    short: Mask
    task: Mask
    configuration: Mask
    draft: Mask


def _target(found: Rows, residuals: Array, target: int) -> _Target:
    of = found.of(target)
    alike = [
        each[of][:, None] == each[of] for each in (found.task, found.configuration, found.draft)
    ]
    return _Target(residuals[of], found.short[of], *alike)


def fit(found: Rows, residuals: Array, targets: list[int], tails: str) -> Spread:
    """The spread that makes the residuals of these targets most likely."""
    each = [_target(found, residuals, target) for target in targets]

    def cost(logarithms: Array) -> tuple[float, Array]:
        parts = [_cost(one, logarithms, tails) for one in each]
        return sum(part[0] for part in parts), np.sum([part[1] for part in parts], axis=0)

    best = minimize(cost, _START, jac=True, method="L-BFGS-B", bounds=_BOUNDS)
    return Spread(tails, tuple(float(value) for value in best.x), -float(best.fun))


def _prior(logarithm: float, tails: str) -> tuple[Array, Array]:
    """Log weights of ``_FACTORS``, and their slope in the logarithm of the scale."""
    square = (_FACTORS / np.exp(logarithm)) ** 2
    if tails == NORMAL:
        log, slope = -0.5 * square, square
    else:
        log = -0.5 * (_DEGREES + 1) * np.log1p(square / _DEGREES)
        slope = (_DEGREES + 1) * square / (_DEGREES + square)
    log = log - logsumexp(log)
    return log, slope - np.exp(log) @ slope


def _covariance(one: _Target, logarithms: Array) -> tuple[Array, list[Array]]:
    """Of the residuals given the target's factor, and its slopes in the first five logarithms."""
    task, configuration, draft, row, wider = np.exp(logarithms[:5])
    width = np.where(one.short, wider, 1.0)
    of_task = task * one.task * np.outer(width, width)
    both = one.short[:, None].astype(float) + one.short
    parts = [of_task, configuration * one.configuration, draft * one.draft]
    parts.append(row * np.eye(len(one.residuals)))
    return np.sum(parts, axis=0), [*parts, of_task * both]


def _cost(one: _Target, logarithms: Array, tails: str) -> tuple[float, Array]:
    """Minus the log likelihood of a target's residuals, and its gradient."""
    covariance, slopes = _covariance(one, logarithms)
    inverse = np.linalg.inv(covariance)
    a, b = inverse @ one.residuals, inverse.sum(axis=1)
    squares = one.residuals @ a - 2 * _FACTORS * a.sum() + _FACTORS**2 * b.sum()
    prior, prior_slope = _prior(logarithms[5], tails)
    joint = prior - 0.5 * squares
    total = float(logsumexp(joint))
    weight = np.exp(joint - total)
    mean, square = weight @ _FACTORS, weight @ _FACTORS**2
    product = np.outer(a, a) - mean * (np.outer(a, b) + np.outer(b, a)) + square * np.outer(b, b)
    gradient = [0.5 * float(np.sum(slope * (inverse - product))) for slope in slopes]
    determinant = float(np.linalg.slogdet(covariance)[1])
    return 0.5 * determinant - total, np.array([*gradient, -float(weight @ prior_slope)])


def from_one(found: Rows, residuals: Array, target: int, spread: Spread) -> Array:
    """Expected residuals of a target's rows given one, (rows, row that is known)."""
    one, logarithms = _target(found, residuals, target), np.array(spread.logarithms)
    covariance, _ = _covariance(one, logarithms)
    variance = np.diag(covariance)
    prior, _ = _prior(logarithms[5], spread.tails)
    joint = prior - 0.5 * (one.residuals[:, None] - _FACTORS) ** 2 / variance[:, None]
    weight = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    factor = weight @ _FACTORS
    expected: Array = factor + covariance / variance * (one.residuals - factor)
    return expected


def from_others(found: Rows, residuals: Array, target: int, spread: Spread) -> Array:
    """Expected residual of each row of a target given all its others."""
    one, logarithms = _target(found, residuals, target), np.array(spread.logarithms)
    covariance, _ = _covariance(one, logarithms)
    prior, _ = _prior(logarithms[5], spread.tails)
    expected = np.zeros(len(one.residuals))
    for row in range(len(expected)):
        known = np.arange(len(expected)) != row
        inverse = np.linalg.inv(covariance[np.ix_(known, known)])
        a, b = inverse @ one.residuals[known], inverse.sum(axis=1)
        joint = prior + _FACTORS * a.sum() - 0.5 * _FACTORS**2 * b.sum()
        factor = np.exp(joint - logsumexp(joint)) @ _FACTORS
        expected[row] = factor + covariance[row, known] @ (a - factor * b)
    return expected
