"""How acceptance goes on with depth, by the kind of drafter, and the rates that follow.

The log odds of the conditional rate alpha_i = S_i / S_{i-1} go along a line in a depth g, of which
every curve departs a little at every position::

    logit alpha_i = logit alpha_{i-1} + b (g(i) - g(i-1)) + walk,   b ~ N(slope, spread^2),
                                                                 walk ~ N(0, walk^2)

Level and b are read from all the known rates, weighted by how many drafts reached each position (a
Kalman filter on empirical logits): few counts leave b at what its kind of drafter has, many let the
curve have its own.  g is i itself or log i, whose steps fade.

* Further positions of blocks that are counted already are reached in easier text, the deeper the
  more, so rates *rise* with a draft model, which loses nothing with depth, and *steeply* with a
  lookup, which finds the right place or none.  A Beta law of rates over text has the odds
  (p + i - 1) / q, so its log odds rise about as b log i.
* Heads (EAGLE, MTP) draft from what they drafted and lose hold; the two about cancel: *level*.
* Longer blocks than were counted start in harder text, too (S_1 itself is 0.83 at K = 1 and 0.76 at
  K = 8 for one model in vllm-project/vllm PR#48892), so with heads the odds of the gain from the
  i-th draft token *fall* by nearly the same factor at every position.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats

# The constants come from two files in tests/reference, acceptance_by_drafter.csv and
# acceptance_curves.csv, and from the embedded pairs.  extrapolation_by_drafter.py in benchmarks/
# chooses slopes and widths again and judges them on families that were left out;
# extrapolation_accuracy.py prints DRIFT and the models that were not chosen.

# Fall of the log odds of acceptance per position: least mean error of the mean acceptance length
# at K = 7 given the one at K = 3, over 81 chains of 11 model families (0.14 without any of them).
DRIFT = 0.14
# Standard deviation of that fall between curves: 0.05 among those chains, which are all EAGLE;
# over other drafters, too, 0.06 to 0.1 does best.
DRIFT_SPREAD = 0.06
# Departure of one position from the straight line, in log odds: anything up to 0.1 does as well.
WALK = 0.1


@dataclass(frozen=True)
class Trend:
    """What is known of a curve before it is seen.

    name : of the kind
    slope, spread : mean and standard deviation of b between curves, in log odds
    walk : standard deviation of the departure at one position, in log odds
    width : of intervals, in what the model itself says: the least that holds 95 % of the evidence
    fades : whether g(i) = log i; otherwise g(i) = i, and rates that rose are not trusted to go on
        rising
    """

    name: str
    slope: float
    spread: float
    walk: float
    width: float
    fades: bool

    def depth(self, positions: Floats) -> Floats:
        """g at positions 1, 2, ..."""
        return np.log(positions) if self.fades else positions


RISING = Trend("rising", 0.3, 0.1, 0.1, 1.2, fades=True)
STEEP = Trend("steep", 1.0, 0.4, 0.4, 1.1, fades=True)
LEVEL = Trend("level", 0.0, 0.3, 0.15, 1.0, fades=True)
FALLING = Trend("falling", -DRIFT, DRIFT_SPREAD, WALK, 2.4, fades=False)

TRENDS = {trend.name: trend for trend in (RISING, STEEP, LEVEL, FALLING)}


def empirical_logits(curve: Floats, trials: Floats) -> tuple[Floats, Floats]:
    """Log odds of alpha_1..alpha_n and their variances by chance, each of shape (n,).

    log((x + 1/2) / (m - x + 1/2)) with variance 1/(x + 1/2) + 1/(m - x + 1/2) for x of m accepted
    are finite at 0 and at m, and there weigh next to nothing (Cox 1970).
    """
    reached = trials * np.concatenate([[1.0], curve[:-1]])
    accepted = np.minimum(trials * curve, reached) + 0.5
    rejected = np.maximum(reached - trials * curve, 0.0) + 0.5
    return np.log(accepted / rejected), 1 / accepted + 1 / rejected


def forecast(curve: Floats, trials: Floats, ahead: int, trend: Trend) -> tuple[Floats, Floats]:
    """Mean and standard deviation of logit alpha at the next positions, each of shape (ahead,)."""
    observed, noise = empirical_logits(curve, trials)
    depth = trend.depth(np.arange(1.0, curve.size + ahead + 1))
    state = np.array([observed[0], trend.slope])
    covariance = np.diag([noise[0], trend.spread**2])
    for position in range(1, curve.size):
        # The slope is added to the level, once for every unit of depth.
        move = np.array([[1.0, depth[position] - depth[position - 1]], [0.0, 1.0]])
        state, covariance = move @ state, move @ covariance @ move.T
        covariance[0, 0] += trend.walk**2
        gain = covariance[:, 0] / (covariance[0, 0] + noise[position])
        state = state + gain * (observed[position] - state[0])
        covariance = covariance - np.outer(gain, covariance[0])
    further = depth[curve.size :] - depth[curve.size - 1]
    variance = covariance[0, 0] + 2 * further * covariance[0, 1] + further**2 * covariance[1, 1]
    slope = state[1] if trend.fades else min(state[1], 0.0)
    steps = np.arange(1.0, ahead + 1)
    return state[0] + further * slope, np.sqrt(variance + steps * trend.walk**2)
