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
from specsim.extrapolation.trends import FALLING, TRENDS, Forecast, Trend, forecast
from specsim.intervals import Interval, normal_quantile, wilson_interval

# Weight of rates that come without counts: best on the same curves with their counts withheld,
# where anything from 200 to 1000 does as well.
UNKNOWN_COUNTS = 400.0
# How far noise may carry a rate outside [0, 1], or above the one before it.
NOISE = 0.1
# Level of the intervals.
INTERVAL_LEVEL = 0.9

# Of log(-log S): the widest that is told apart from not knowing at all.
_UNKNOWN = 100.0

# What the figures at a draft length come from.
MEASURED, CONTINUED = "measured", "log-odds trend"


@dataclass(frozen=True, eq=False)
class Extrapolation(Result):
    """S_1..S_k with intervals; behaves as the array ``survival``.

    survival, low, high : shape (k,), in [0, 1], non-increasing
    model : "measured" where nothing had to be extrapolated, else "log-odds trend"
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
        f"{found.best:.3f} tokens per call by the {model}, {INTERVAL_LEVEL:.0%} interval "
        f"{found.low:.3f} to {found.high:.3f}"
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
        the weights.  Rates without counts are weighted like rates from 400 drafts.  Meant are
        independent ones: where requests are few and repeat themselves, as greedy texts do, rounds
        are worth less than their number (a tenth to a half is common).
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

    Intervals are pointwise, at 90 %, for other texts of the kind.  From 1, 2, 3 and 5 positions,
    with constants chosen without the family that is judged, they held 96, 91, 96 and 94 % of the
    further S_i of public heads (28 runs); of the embedded draft models 98, 100, 100 and 94 % at
    temperature 0 (5 runs) and all 162 at temperature 1 (7 runs).  In those, chance in S_n is in
    what is known and in what is asked, so nothing of it is missed: of S_i / S_n they held 96, 89,
    93 and 91 %, 96, 93, 100 and 89 %, and 98, 98, 95 and 100 %.  So few runs tell none of these
    from 90 %.  Counts were those that requests are worth; with all rounds at temperature 0 counted
    in full, 96, 95, 74 and 94 % of S_i were held.

    Of lookups, embedded and public, 90 % were held (of public ones 21 of 24, of one whose second
    rate is four times its first 2 of 7), and 91, 92, 96 and 93 % of the tokens per call of public
    heads in longer blocks.  Mean errors in tokens per call, beside those of holding the last rate:
    3.3 (3.6), 3.4 (7.1), 1.1 (2.4), 3.2 (6.3) and 9.3 % (16.7 %).  "level" held 95 % of heads and
    97 % of draft models.  Off by more than holding are one public draft model whose rates are level
    (1.6 %, 0.8 %; 3 of 6 held), one embedded head in longer blocks (4.0 %, 3.2 %), and draft models
    at temperature 1 from five positions (0.10 %, 0.08 %).

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
    known = wilson_interval(curve, trials, INTERVAL_LEVEL)
    low, high = np.minimum.accumulate(known.low), np.minimum.accumulate(known.high)
    asked = {"marginal_rates": rates, "k": k, "counts": counts, "trend": trend.name}
    ahead = k - curve.size
    if ahead <= 0:
        return Extrapolation(curve[:k], low[:k], high[:k], MEASURED, inputs=asked)
    found = forecast(curve, trials, ahead, trend)
    lost, log_odds = cumulative_hazard(found, trend.width), found.log_odds
    if curve[-1] == 1:  # never rejected, so predicted never to be
        nothing = np.zeros(ahead)
        lost, log_odds = Interval(nothing, nothing, lost.high), np.full(ahead, np.inf)
    survival = _continue(curve, log_odds)
    below, above = np.maximum.accumulate(lost.high - lost.best), lost.best - lost.low
    overlap = _overlap(curve[-1], low[-1], below, found.correlation)
    lowest = low[-1] * np.exp(overlap - lost.best - below)
    overlap = _overlap(high[-1], curve[-1], above, found.correlation)
    highest = high[-1] * np.exp(-overlap - lost.low)
    return Extrapolation(
        survival,
        np.minimum(np.minimum.accumulate(np.concatenate([low, lowest])), survival),
        np.maximum(np.minimum.accumulate(np.concatenate([high, highest])), survival),
        CONTINUED,
        inputs=asked,
    )


def cumulative_hazard(found: Forecast, width: float = 1.0) -> Interval[Floats]:
    """-log(S_k / S_n) of a forecast, with its interval, each of shape (ahead,).

    width : of the interval, in what the forecast itself says

    It is taken to be log-normal, as for curves of survival (Kalbfleisch and Prentice 1980, section
    1.4), so that the ends are those of shares, too.
    """
    best = np.cumsum(np.logaddexp(0.0, -found.log_odds))
    reach = normal_quantile(INTERVAL_LEVEL) * width * found.deviation / best
    factor = np.exp(np.minimum(reach, _UNKNOWN))
    return Interval(
        np.maximum.accumulate(best / factor), best, np.maximum.accumulate(best * factor)
    )


def _overlap(upper: float, lower: float, rest: Floats, correlation: Floats) -> Floats:
    """By how much less than both together S_k may be off, where S_n may be off by upper / lower.

    S_k = S_n (S_k / S_n), and in logarithms the two are off by the root of the sum of their squares
    and twice their product by the correlation: variances recovered from the ends of intervals
    (Donner and Zou 2012), which need not be symmetric.  Of nothing there is no ratio: 0.
    """
    if lower == 0:
        return np.zeros_like(rest)
    known = np.log(upper) - np.log(lower)
    joint = np.sqrt(known**2 + rest**2 + 2 * correlation * known * rest)
    return np.asarray(np.clip(known + rest - joint, 0.0, known))


def curve_of_tokens(tokens_per_call: float, k: int, slope: float = FALLING.slope) -> Floats:
    """S_1..S_k of one level and one slope per position, with these tokens per call; shape (k,).

    For totals that were counted without positions: 1 <= tokens_per_call <= k + 1, k >= 1.
    """
    from scipy.optimize import brentq

    steps = slope * np.arange(k)

    def curve(level: float) -> Floats:
        return _continue(np.ones(1), np.asarray(level + steps, dtype=np.float64))[1:]

    # Log odds at which every rate is 1 to the last digit, or 0.
    end = 60.0 + float(np.ptp(steps))
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
