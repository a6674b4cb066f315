"""How acceptance goes on with depth, by the kind of drafter, and the rates that follow.

The log odds of the conditional rate alpha_i = S_i / S_{i-1} go along a smooth trend, from which
every position departs a little (a structural model of time series, Harvey 1989, section 2.3)::

    logit alpha_i = m_i + e_i,                             e_i ~ N(0, irregular^2)
              m_i = m_{i-1} + b (g(i) - g(i-1)) + v_{i-1} + u_i,
              v_i = v_{i-1} + w_i,    v_1 = 0,             b ~ N(slope, spread^2)
                                      u_i ~ N(0, walk^2),   w_i ~ N(0, turn^2)

The slope b is a random effect of the drafter and the text (Laird and Ware 1982): ``slope`` and
``spread`` are known of it before a curve is seen, every known position narrows it, and as the trend
may turn by v, the last positions say most of how a curve goes on.  All of it is a Kalman filter on
empirical logits, whose noise is what chance does to so many drafts: few leave b at what its kind of
drafter has, many let the curve have its own.  g fades more or less fast.

* Further positions of blocks that are counted already are reached in easier text, the deeper the
  more, so rates *rise* with a draft model, which loses nothing with depth: of a Beta law of rates
  over text the odds are (p + i - 1) / q, so its log odds rise about as b log i.  With a lookup,
  which finds the right place or none, they rise *steeply* and are soon what they are there: -1 / i.
* Heads (EAGLE, MTP) draft from what they drafted, and their acceptance falls; the two about
  cancel: *level*.
* Longer blocks than were counted start in harder text, too (S_1 itself is 0.83 at K = 1 and 0.76 at
  K = 8 for one model in vllm-project/vllm PR#48892), so with heads the odds of the gain from the
  i-th draft token *fall* by nearly the same factor at every position.

What a forecast leaves open is told of log S_k, all at once: an error of b moves every position
alike, and a rate near one leaves little of it, for d log alpha = (1 - alpha) d logit alpha.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from specsim.checks import Floats


@dataclass(frozen=True)
class Trend:
    """What is known of a curve before it is seen; standard deviations are in log odds.

    name : of the kind
    slope, spread : mean and standard deviation of b between curves
    power : how g fades, g(i) = (i^power - 1) / power (Box and Cox 1964): 1 not at all, 0 as log i,
        -1 as 1 - 1 / i.  Where it does not, rates that rose are not trusted to go on rising.
    turn : standard deviation by which the trend turns from one position to the next
    irregular : standard deviation by which one position departs from it
    walk : standard deviation by which it is another from one position on
    width : of intervals, in what the model itself says
    """

    name: str
    slope: float
    spread: float
    power: float
    turn: float = 0.0
    irregular: float = 0.0
    walk: float = 0.0
    width: float = 1.0

    def depth(self, positions: Floats) -> Floats:
        """g at positions 1, 2, ..."""
        if self.power == 0:
            return np.log(positions)
        return np.asarray((positions**self.power - 1.0) / self.power)


# Slopes, spreads, turns and departures of rising, steep and level rates are posterior means that
# ``python -m benchmarks.extrapolation_by_drafter`` finds again in the committed curves, and judges
# on families that were left out.  Level rates have no slope.  The slope of falling ones is that of
# least mean error of the mean acceptance length at K = 7 given the one at K = 3, over 81 chains of
# 11 model families; between those chains it differs by 0.05, over other drafters, too, 0.06 to 0.1
# does best, and of its walk anything up to 0.1 (benchmarks/extrapolation_accuracy.py).  Its width
# is the least that holds 95 % of the tokens per call of longer blocks: lengths are counted apart
# from each other, so that chance does more to their gains than their counts say.
RISING = Trend("rising", 0.35, 0.17, power=0, turn=0.05, irregular=0.02)
STEEP = Trend("steep", 1.57, 1.49, power=-1, turn=0.09, irregular=0.2)
LEVEL = Trend("level", 0.0, 0.36, power=0, turn=0.05, irregular=0.04)
FALLING = Trend("falling", -0.14, 0.06, power=1, walk=0.1, width=2.5)

TRENDS = {trend.name: trend for trend in (RISING, STEEP, LEVEL, FALLING)}


class Forecast(NamedTuple):
    """How a curve goes on from S_1..S_n to S_k, k = n + 1..n + ahead, each of shape (ahead,).

    log_odds : logit alpha_k, the mean
    deviation : standard deviation of log(S_k / S_n), to first order
    correlation : of its error with the error by chance of log S_n as it was counted, 0 to 1
    """

    log_odds: Floats
    deviation: Floats
    correlation: Floats


def empirical_logits(curve: Floats, trials: Floats) -> tuple[Floats, Floats]:
    """Log odds of alpha_1..alpha_n and their variances by chance, each of shape (n,).

    log((x + 1/2) / (m - x + 1/2)) with variance 1/(x + 1/2) + 1/(m - x + 1/2) for x of m accepted
    are finite at 0 and at m, and there weigh next to nothing (Cox 1970).
    """
    reached = trials * np.concatenate([[1.0], curve[:-1]])
    accepted = np.minimum(trials * curve, reached) + 0.5
    rejected = np.maximum(reached - trials * curve, 0.0) + 0.5
    return np.log(accepted / rejected), 1 / accepted + 1 / rejected


def rejection(log_odds: Floats) -> Floats:
    """1 - alpha, without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, log_odds)))


def forecast(curve: Floats, trials: Floats, ahead: int, trend: Trend) -> Forecast:
    """How a curve S_1..S_n goes on of which each position was counted in so many drafts."""
    logits, noise = empirical_logits(curve, trials)
    rejected = rejection(logits)
    depth = trend.depth(np.arange(1.0, curve.size + ahead + 1))
    departs, moved = trend.irregular**2, np.diag([trend.walk**2, 0.0, trend.turn**2, 0.0])
    state = np.array([logits[0], trend.slope, 0.0])
    # Errors of m, b, v and of log S_i as counted, of which nothing is filtered.
    taken = np.array([1.0, 0.0, 0.0, rejected[0]])
    covariance = np.diag([departs, trend.spread**2, 0.0, 0.0]) + noise[0] * np.outer(taken, taken)
    for i in range(1, curve.size):
        move = np.eye(4)
        move[0, 1:3] = depth[i] - depth[i - 1], 1.0
        covariance = move @ covariance @ move.T + moved
        state = move[:3, :3] @ state
        wide = covariance[0, 0] + departs + noise[i]
        gain = np.append(covariance[:3, 0] / wide, 0.0)
        state = state + gain[:3] * (logits[i] - state[0])
        keep = np.eye(4)
        keep[:, 0] -= gain
        taken = gain + np.array([0.0, 0.0, 0.0, rejected[i]])
        covariance = keep @ covariance @ keep.T + noise[i] * np.outer(taken, taken)
        covariance += departs * np.outer(gain, gain)
    steps = np.arange(1.0, ahead + 1)
    further = depth[curve.size :] - depth[curve.size - 1]
    rise = state[1] * further + state[2] * steps
    log_odds = np.asarray(state[0] + (np.minimum(rise, 0.0) if trend.power == 1 else rise))
    # What errors of m, b and v come to in log(S_k / S_n).
    left = rejection(log_odds)
    sums = np.cumsum(np.stack([left, left * further, left * steps]), axis=1)
    variance = np.sum(sums * (covariance[:3, :3] @ sums), axis=0)
    variance += departs * np.cumsum(left**2)
    variance += trend.walk**2 * _walked(sums[0]) + trend.turn**2 * _turned(sums[0], sums[2])
    deviation = np.sqrt(np.maximum.accumulate(variance))
    shared = covariance[3, :3] @ sums / (np.sqrt(covariance[3, 3]) * deviation)
    return Forecast(log_odds, deviation, np.clip(shared, 0.0, 1.0))


def _walked(by_level: Floats) -> Floats:
    """What the walk ahead, of variance one at each step, adds to the variance of log(S_k / S_n).

    The move at step s comes to D_k - D_{s-1} at k, with D what one of m at n comes to: squared and
    summed over s = 1..k, term by term.
    """
    before = np.concatenate([[0.0], by_level[:-1]])
    steps = np.arange(1.0, by_level.size + 1)
    total = steps * by_level**2 - 2 * by_level * np.cumsum(before) + np.cumsum(before**2)
    return np.asarray(np.maximum(total, 0.0))


def _turned(by_level: Floats, by_turn: Floats) -> Floats:
    """What turns ahead, each of variance one, add to it.

    The turn at step s moves what follows by one, two, ... and so comes to B_k - B_s - s (D_k - D_s)
    at k, with B what one of v at n comes to.
    """
    steps = np.arange(1.0, by_level.size + 1)
    rest = steps * by_level - by_turn
    total = (
        steps * by_turn**2
        + by_level**2 * np.cumsum(steps**2)
        + np.cumsum(rest**2)
        + 2 * by_turn * (np.cumsum(rest) - by_level * np.cumsum(steps))
        - 2 * by_level * np.cumsum(steps * rest)
    )
    return np.asarray(np.maximum(total, 0.0))
