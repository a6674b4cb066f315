"""What neighbouring points say of each other, where each is a mean that repeats leave open.

Neighbours differ by a variance that grows with their distance, as far as the points say so
(restricted likelihood) beyond what the repeats of a point scatter: a Gaussian process with a linear
variogram about a constant or a line.  So a point whose repeats scatter is drawn to what its
neighbours say, a jump that the repeats agree on stays, and points without an error are met exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specsim.checks import Floats

if TYPE_CHECKING:
    from scipy.interpolate import RBFInterpolator

# Spreads between points a distance of 1 apart that are tried, in units of the values.
_SPREADS = np.geomspace(1e-3, 0.3, 16)


def interpolated(
    where: Floats, values: Floats, smoothing: Floats, *, degree: int = 0
) -> RBFInterpolator:
    """The process through points.

    where : coordinates, shape (P, A)
    values : shape (P,), or (P, D) of draws
    smoothing : of each point (``smoothing_of``), shape (P,)
    degree : 0 is about a constant, 1 about a line
    """
    from scipy.interpolate import RBFInterpolator  # loads scipy

    return RBFInterpolator(where, values, kernel="linear", degree=degree, smoothing=smoothing)


def smoothing_of(where: Floats, values: Floats, errors: Floats, *, degree: int = 0) -> Floats:
    """Variance of each point's mean over that between points a distance of 1 apart, shape (P,).

    values : shape (P,)
    errors : standard errors of the values, shape (P,)
    """
    trend = np.ones((1, len(values))) if degree == 0 else np.vstack([np.ones(len(values)), where.T])
    if len(values) <= len(trend) or not errors.any():
        return np.zeros(len(values))
    from scipy.linalg import null_space  # loads scipy

    apart = np.linalg.norm(where[:, None] - where, axis=2)
    contrasts = null_space(trend)

    def surprise(spread: float) -> float:
        """-2 log of the restricted likelihood."""
        variance = contrasts.T @ (np.diag(errors**2) - spread**2 * apart) @ contrasts
        seen = contrasts.T @ values
        return float(np.linalg.slogdet(variance)[1] + seen @ np.linalg.solve(variance, seen))

    found: Floats = (errors / min(_SPREADS, key=surprise)) ** 2
    return found
