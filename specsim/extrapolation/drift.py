"""The survival curve beyond the positions that were measured.

A chain of drafts loses its grip with depth: each draft is made from drafts.  On public engines'
curves the odds of the conditional rate alpha_i = S_i / S_{i-1} fall by nearly the same factor at
every position, whatever the rate (0.6 to 0.95), model and task.  So the model is::

    logit alpha_i = logit alpha_{i-1} - d + walk,   d ~ N(DRIFT, DRIFT_SPREAD^2),
                                                 walk ~ N(0, WALK^2)

Level and d are read from all the given rates, weighted by how many drafts reached each position
(a Kalman filter on empirical logits), so few counts leave d at its pooled value and many let the
curve have its own.  i.i.d. acceptance is the case DRIFT = DRIFT_SPREAD = WALK = 0.

The drafts of a run with K tokens start where its blocks end, so S_1 itself falls a little as K
grows (0.83 at K = 1 and 0.76 at K = 8 for the same model in vllm-project/vllm PR#48892): the gap
law and the mixtures of the modules beside this one say how much, and for shorter K they are
asked.  The curve meant here is the gain from the i-th draft token,
E[N at K = i] - E[N at K = i - 1]: its sum is the mean acceptance length at the longer K.
Rates beyond the first dozen positions are outside anything that was checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from specsim.acceptance import SurvivalAcceptance
from specsim.api.result import Result, Row
from specsim.checks import Floats, InvalidArgumentError, integer, numbers
from specsim.intervals import Interval, normal_quantile, wilson_interval

# The constants come from tests/reference/acceptance_curves.csv; extrapolation_accuracy.py in
# benchmarks/ prints them again, with the errors of the models that were not chosen.

# Fall of the log odds of acceptance per position: least mean error of the mean acceptance length
# at K = 7 given the one at K = 3, over 81 chains of 11 model families (0.14 without any of them).
DRIFT = 0.14
# Standard deviation of that fall between curves: 0.05 among those chains, which are all EAGLE;
# over other drafters, too, 0.06 to 0.1 does best.
DRIFT_SPREAD = 0.06
# Departure of one position from the straight line, in log odds: anything up to 0.1 does as well,
# and 0.1 gives the intervals their level.
WALK = 0.1
# Weight of rates that come without counts: best on the same curves with their counts withheld,
# where anything from 200 to 1000 does as well.
UNKNOWN_COUNTS = 400.0
# How far noise may carry a rate outside [0, 1], or above the one before it.
NOISE = 0.1
# Level of the intervals.
LEVEL = 0.9

# What the figures at a draft length come from.
MEASURED, DRIFTING = "measured", "log-odds drift"


@dataclass(frozen=True, eq=False)
class Extrapolation(Result):
    """S_1..S_k with intervals; behaves as the array ``survival``.

    survival, low, high : shape (k,), in [0, 1], non-increasing
    model : "measured" where nothing had to be extrapolated, else "log-odds drift"
    """

    schema: ClassVar[str] = "specsim.extrapolation"

    survival: Floats
    low: Floats
    high: Floats
    model: str

    def rows(self) -> list[Row]:
        return [
            {"position": i, "survival": best, "low": low, "high": high}
            for i, (best, low, high) in enumerate(
                zip(self.survival, self.low, self.high, strict=True), 1
            )
        ]

    def summary(self) -> Row:
        return {"model": self.model, "tokens_per_call": self.tokens_per_call}

    @property
    def tokens_per_call(self) -> float:
        """E[N] = 1 + sum_i S_i, the mean acceptance length at gamma = k."""
        return 1.0 + float(self.survival.sum())

    def over_gamma(self) -> SurvivalAcceptance:
        """The curve, at every draft length alike and no further than it goes."""
        return SurvivalAcceptance(tuple(self.survival.tolist()))

    def interval(self, gamma: int) -> Interval[float]:
        """Tokens per call at gamma = 0..k, added up from the curves' ends."""
        low, best, high = (
            1.0 + float(curve[:gamma].sum()) for curve in (self.low, self.survival, self.high)
        )
        return Interval(low, best, high)

    def notes(self, gamma: int) -> tuple[str, ...]:
        """How far beyond what was measured this draft length is, and how sure the curve there."""
        measured = np.size(self.inputs.get("marginal_rates", self.survival))
        if not measured < gamma <= len(self):
            return ()
        return (carried_note([measured], gamma, self.model, self.interval(gamma)),)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.survival, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.survival)

    def __iter__(self) -> Iterator[float]:
        return iter(self.survival.tolist())

    def __getitem__(self, index: Any) -> Any:
        return self.survival[index]


def carried_note(
    measured: Sequence[int], gamma: int, model: str, tokens_per_call: Interval[float]
) -> str:
    """How far from what was measured a draft length is, and how sure the answer there.

    measured : draft lengths, rising
    model : what the answer comes from
    """
    where = f"gamma {gamma} was not measured"
    if gamma > measured[-1]:
        where = f"gamma {gamma} is {gamma - measured[-1]} beyond what was measured"
    found = tokens_per_call
    return (
        f"acceptance was measured at gamma {', '.join(map(str, measured))}; {where}: "
        f"{found.best:.3f} tokens per call by the {model}, {LEVEL:.0%} interval {found.low:.3f} to "
        f"{found.high:.3f}"
    )


def extrapolate(
    marginal_rates: npt.ArrayLike, k: int, counts: npt.ArrayLike | None = None
) -> Extrapolation:
    """S_1..S_k from the marginal rates S_1..S_n of the first n positions.

    marginal_rates : shape (n,), n >= 1.  Noise is cleaned away first: rates that rise are replaced
        by their mean (isotonic regression, weighted by the counts; it keeps the sum), then cut to
        [0, 1]; rates without noise come back as they are.  More than 0.1 of noise is bad input.
    k : positions wanted, >= 0; up to n nothing is extrapolated
    counts : drafts behind the rates, one number or one per position; they set the intervals and
        the weights.  Rates without counts are weighted like rates from 400 drafts.

    A chain that was never rejected is predicted never to be; ``low`` says how sure that is.
    Intervals are pointwise, at 90 %: they held 89 % of the later S_i of the public curves.  Added
    up to a mean acceptance length they are wider than that (they held all of those).

    >>> extrapolate([0.7, 0.45, 0.3], 5, counts=2000).survival.round(3)
    array([0.7  , 0.45 , 0.3  , 0.188, 0.112])
    """
    rates = np.atleast_1d(numbers("marginal rates", marginal_rates, low=-NOISE, high=1 + NOISE))
    if rates.ndim > 1:
        raise InvalidArgumentError(f"marginal rates must be one row, got {rates.ndim} dimensions")
    k = integer("k", k)
    trials = _trials(counts, rates.size)
    curve = _clean(rates, trials)
    found = wilson_interval(curve, trials, LEVEL)
    low, high = np.minimum.accumulate(found.low), np.minimum.accumulate(found.high)
    asked = {"marginal_rates": rates, "k": k, "counts": counts}
    ahead = k - curve.size
    if ahead <= 0:
        return Extrapolation(curve[:k], low[:k], high[:k], MEASURED, inputs=asked)
    log_odds, spread = _forecast(curve, trials, ahead)
    reach = normal_quantile(LEVEL) * spread
    never_rejected = curve[-1] == 1
    return Extrapolation(
        _continue(curve, np.full(ahead, np.inf) if never_rejected else log_odds),
        _continue(low, log_odds - reach),
        _continue(high, np.full(ahead, np.inf) if never_rejected else log_odds + reach),
        DRIFTING,
        inputs=asked,
    )


def drifting(tokens_per_call: float, k: int, drift: float = DRIFT) -> Floats:
    """S_1..S_k of one level and one drift, with these tokens per call; shape (k,).

    For totals that were counted without positions: 1 <= tokens_per_call <= k + 1, k >= 1.
    """
    from scipy.optimize import brentq

    steps = drift * np.arange(k)

    def curve(level: float) -> Floats:
        return _continue(np.ones(1), np.asarray(level - steps, dtype=np.float64))[1:]

    end = 60.0  # log odds whose rate is 1 to the last digit
    gained = tokens_per_call - 1.0
    if gained <= float(curve(-end).sum()):
        return np.zeros(k)
    if gained >= float(curve(end).sum()):
        return np.ones(k)
    return curve(brentq(lambda level: float(curve(level).sum()) - gained, -end, end))


def _trials(counts: npt.ArrayLike | None, size: int) -> Floats:
    trials = numbers("counts", UNKNOWN_COUNTS if counts is None else counts, low=1)
    if trials.shape not in ((), (size,)):
        raise InvalidArgumentError(
            f"counts must be one number or one per rate ({size}), got {trials.size}"
        )
    return np.broadcast_to(trials, (size,))


def _clean(rates: Floats, trials: Floats) -> Floats:
    rise = float((rates - np.minimum.accumulate(rates)).max())
    if rise > NOISE:
        raise InvalidArgumentError(
            f"marginal rates must fall with the position, up to {NOISE:g} of noise, got a rise "
            f"of {rise:g}; conditional rates go through marginal_from_conditional"
        )
    if rise > 0:
        from scipy.optimize import isotonic_regression  # only noisy curves pay for importing it

        rates = isotonic_regression(rates, weights=trials, increasing=False).x
    return np.clip(rates, 0.0, 1.0)


def _forecast(curve: Floats, trials: Floats, ahead: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation of logit alpha at the next positions, each of shape (ahead,).

    Empirical logits, log((x + 1/2) / (m - x + 1/2)) with variance 1/(x + 1/2) + 1/(m - x + 1/2)
    for x of m accepted, are finite at 0 and at m, and there weigh next to nothing (Cox 1970).
    """
    reached = trials * np.concatenate([[1.0], curve[:-1]])
    accepted = np.minimum(trials * curve, reached) + 0.5
    rejected = np.maximum(reached - trials * curve, 0.0) + 0.5
    observed, noise = np.log(accepted / rejected), 1 / accepted + 1 / rejected
    state = np.array([observed[0], -DRIFT])
    covariance = np.diag([noise[0], DRIFT_SPREAD**2])
    move = np.array([[1.0, 1.0], [0.0, 1.0]])  # the slope is added to the level
    for position in range(1, curve.size):
        state, covariance = move @ state, move @ covariance @ move.T
        covariance[0, 0] += WALK**2
        gain = covariance[:, 0] / (covariance[0, 0] + noise[position])
        state = state + gain * (observed[position] - state[0])
        covariance = covariance - np.outer(gain, covariance[0])
    step = np.arange(1.0, ahead + 1)
    variance = covariance[0, 0] + 2 * step * covariance[0, 1] + step**2 * covariance[1, 1]
    # Rates that rose (requests that differ do that) are not trusted to go on rising.
    return state[0] + step * min(state[1], 0.0), np.sqrt(variance + step * WALK**2)


def _continue(curve: Floats, log_odds: Floats) -> Floats:
    """The curve, and behind it what is left of its end at the given conditional rates."""
    conditional = 0.5 + 0.5 * np.tanh(log_odds / 2)  # the logistic function, without overflow
    return np.concatenate([curve, curve[-1] * np.cumprod(conditional)])
