"""The survival curve beyond the positions that were measured.

The log odds of acceptance go on as the kind of drafter has it (``trends.py``): rising, level or
falling.  A curve can be continued in two ways, and they differ.  *Further positions* are those of
blocks that are counted already, or of drafts from any place of a text: the first positions are
what they are.  *Longer blocks* start where longer blocks end, so S_1 itself falls a little; the
curve meant there is the gain from the i-th draft token, E[N at K = i] - E[N at K = i - 1], whose
sum is the mean acceptance length at the longer K.  The gap law and the mixtures of the modules
beside this one say more of it, for draft models exactly, and for shorter K they are asked.
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
from specsim.checks import Floats, InvalidArgumentError, check_choice, integer, numbers
from specsim.extrapolation.trends import FALLING, TRENDS, Trend, forecast
from specsim.intervals import Interval, normal_quantile, wilson_interval

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
    marginal_rates: npt.ArrayLike,
    k: int,
    counts: npt.ArrayLike | None = None,
    trend: str = "level",
) -> Extrapolation:
    """S_1..S_k from the marginal rates S_1..S_n of the first n positions, by kind of drafter.

    marginal_rates : shape (n,), n >= 1.  Noise is cleaned away first: rates that rise are replaced
        by their mean (isotonic regression, weighted by the counts; it keeps the sum), then cut to
        [0, 1]; rates without noise come back as they are.  More than 0.1 of noise is bad input.
    k : positions wanted, >= 0; up to n nothing is extrapolated
    counts : drafts behind the rates, one number or one per position; they set the intervals and
        the weights.  Rates without counts are weighted like rates from 400 drafts.
    trend : how conditional rates go on with depth, by drafter and by what is asked

        ================================  =========================  ==========================
        drafter                           further positions          longer blocks than counted
        ================================  =========================  ==========================
        heads (EAGLE, MTP, DFlash)        "level"                    "falling"
        draft model                       "rising"                   ``acceptance_from_counts``
        lookup (n-grams, suffixes)        "steep"                    ``acceptance_from_counts``
        not known, but no lookup          "level"                    "falling"
        ================================  =========================  ==========================

    A chain that was never rejected is predicted never to be; ``low`` says how sure that is.

    Intervals are pointwise, at 90 %, and a little wider so that they hold what was not seen.  From
    1, 2, 3 and 5 positions, with slopes and widths chosen without the family that is judged, they
    held 96, 94, 96 and 93 % of the further S_i of public heads; of the embedded draft models 96,
    90, 91 and 94 % at temperature 0 and all at temperature 1; of lookups, embedded and public,
    94 % (of the public ones 21 of 24); and 91, 92, 97 and 93 % of the tokens per call of public
    heads in longer blocks.  Mean errors in tokens per call, beside those of holding the last rate:
    3.2 (3.6), 3.7 (7.1), 1.1 (2.4), 3.2 (6.3) and 9.3 % (16.7 %).  "level" held 95 % of heads and
    96 % of draft models.  Of one embedded head whose rates rise, longer blocks were 3.9 % off
    (3.0 %).  Added up to tokens per call, intervals of further positions held 855 of 863.

    >>> extrapolate([0.7, 0.45, 0.3], 5, counts=2000, trend="falling").survival.round(3)
    array([0.7  , 0.45 , 0.3  , 0.188, 0.112])
    """
    check_choice("trend", trend, TRENDS)
    return continued(marginal_rates, k, counts, TRENDS[trend])


def continued(
    marginal_rates: npt.ArrayLike, k: int, counts: npt.ArrayLike | None, trend: Trend
) -> Extrapolation:
    """``extrapolate`` along any trend."""
    rates = np.atleast_1d(numbers("marginal rates", marginal_rates, low=-NOISE, high=1 + NOISE))
    if rates.ndim > 1:
        raise InvalidArgumentError(f"marginal rates must be one row, got {rates.ndim} dimensions")
    k = integer("k", k)
    trials = _trials(counts, rates.size)
    curve = _clean(rates, trials)
    found = wilson_interval(curve, trials, LEVEL)
    low, high = np.minimum.accumulate(found.low), np.minimum.accumulate(found.high)
    asked = {"marginal_rates": rates, "k": k, "counts": counts, "trend": trend.name}
    ahead = k - curve.size
    if ahead <= 0:
        return Extrapolation(curve[:k], low[:k], high[:k], MEASURED, inputs=asked)
    log_odds, spread = forecast(curve, trials, ahead, trend)
    reach = normal_quantile(LEVEL) * trend.width * spread
    never_rejected = curve[-1] == 1
    return Extrapolation(
        _continue(curve, np.full(ahead, np.inf) if never_rejected else log_odds),
        _continue(low, log_odds - reach),
        _continue(high, np.full(ahead, np.inf) if never_rejected else log_odds + reach),
        DRIFTING,
        inputs=asked,
    )


def drifting(tokens_per_call: float, k: int, drift: float = -FALLING.slope) -> Floats:
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


def _continue(curve: Floats, log_odds: Floats) -> Floats:
    """The curve, and behind it what is left of its end at the given conditional rates."""
    conditional = 0.5 + 0.5 * np.tanh(log_odds / 2)  # the logistic function, without overflow
    return np.concatenate([curve, curve[-1] * np.cumprod(conditional)])
