"""Acceptance that differs from place to place of the text, as a mixture over its tokens.

Let the share nu(a) of all tokens lie in stretches of text that are accepted at rate a.  Blocks of
gamma drafts that start there yield 1 + a + ... + a^gamma tokens, so a token there costs
r(a) = 1 / (1 + a + ... + a^gamma) target calls, and with nu the same at every draft length::

    1 / tokens per call = E_nu[r]           S_j = E_nu[a^j r] / E_nu[r],    j = 0..gamma

Blocks start in pi ~ nu r, the more in hard text the longer they are.  1 / r is what the papers'
formula says of rate a (Leviathan23 eq 1), and r is convex: at the same mean rate over TOKENS, as
the mean of a trace is, a mixture yields FEWER tokens per call than the formula says; at the same
mean over CALLS, S_1, it yields MORE.

Both figures are linear in nu or ratios of such, so counts at some draft lengths bound the tokens
per call at another: a linear programme, solved on a grid of rates that is dense at both ends.
Its bounds are sharp among mixtures.  They are no law of nature: texts whose stretches are shorter
than a block, and drafters whose rates fall with depth, can lie outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.checks import Floats, InvalidArgumentError, number, numbers, probabilities
from specsim.counts.drafts import DraftCounts
from specsim.intervals import Interval, normal_quantile, wilson_interval

# Quantiles of the Beta law that starts a fit.
_QUANTILES = 100
# Share of tokens that the start leaves to the whole grid, so that data can move it anywhere.
_ANYWHERE = 0.02
# Weight of the start against the counts, in units of chi-square: 1 to 10 do alike on traces.
_START = 10.0
# Spread of log p and log q of that Beta(p, q) around the uniform law, where counts say nothing.
_PRIOR = 2.0
# How closely the bounds of exact rates hold them: the feasibility tolerance of the solver.
_EXACT = 1e-7


@cache
def rate_grid() -> Floats:
    """Rates in [0, 1], rising, dense at both ends; shape (n,)."""
    middle = (1.0 - np.cos(np.pi * np.linspace(0.0, 1.0, 201))) / 2.0
    near = np.geomspace(1e-6, 0.1, 60)
    return np.unique(np.concatenate([middle, near[near < 0.05], 1.0 - near]))


@dataclass(frozen=True, eq=False)
class TokenMixture:
    """Rates and the share of tokens at each; an acceptance that answers for every draft length.

    rates : in [0, 1], shape (n,)
    shares : of the tokens, >= 0, shape (n,); scaled to sum to 1
    """

    rates: Floats
    shares: Floats

    def __post_init__(self) -> None:
        rates = np.atleast_1d(probabilities("rates", self.rates))
        shares = np.atleast_1d(numbers("shares", self.shares, low=0.0))
        if rates.shape != shares.shape or rates.ndim > 1 or not shares.sum() > 0:
            raise InvalidArgumentError(
                "shares must be one for each rate, with a sum > 0, got "
                f"{shares.size} that sum to {shares.sum():g} for {rates.size} rates"
            )
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "shares", shares / shares.sum())

    def tokens_per_call(self, longest: int) -> Floats:
        """At gamma = 0..longest, the recovered or bonus token counted, shape (longest + 1,)."""
        yields = np.cumsum(_powers(self.rates, longest), axis=0)
        return np.asarray(1.0 / (self.shares / yields).sum(axis=1))

    def survival(self, length: int) -> Floats:
        """S_0..S_length of blocks that draft ``length`` tokens, shape (length + 1,)."""
        powers = _powers(self.rates, length)
        starts = self.shares / powers.sum(axis=0)
        # E[a^j] with a weight that sums to one; the clip takes roundings off.
        return np.minimum.accumulate(np.minimum(powers @ starts / starts.sum(), 1.0))

    def conditional(self, length: int) -> Floats:
        """alpha_1..alpha_length of such blocks; 0 behind a position that is never reached."""
        curve = self.survival(length)
        return np.divide(curve[1:], curve[:-1], out=np.zeros(length), where=curve[:-1] > 0)


def fit_mixture(counts: Sequence[DraftCounts]) -> TokenMixture:
    """The mixture that the counts speak for, at one draft length or several.

    Moments do not tell a law, so a smooth one is taken: the Beta law of nu with the highest
    likelihood, and then the law nearest to it, in chi-square, that fits what was counted.  Beta
    alone misses text of two kinds, the nearest law to the uniform one follows the noise of few
    rounds, and the middle of the bounds errs by 5 % from one position; this errs least on replayed
    traces and simulated text.  Each count needs a draft length and at least one round.
    """
    start = _likeliest_beta(counts)
    spread = np.gradient(rate_grid())
    rates = np.concatenate([start, rate_grid()])
    before = np.concatenate(
        [
            np.full(start.size, (1 - _ANYWHERE) / start.size),
            _ANYWHERE * spread / spread.sum(),
        ]
    )
    equations = [each for count in counts for each in _equations(count)]
    rows = np.array([each.row(rates, each.rate) / each.error for each in equations])
    ridge = np.sqrt(_START / before)
    # Shares sum to one because this row weighs far more than any other.
    one = 1e3 * (1.0 + ridge.max())
    from scipy.optimize import nnls

    shares, _ = nnls(
        np.vstack([rows.reshape(-1, rates.size), np.diag(ridge), np.full((1, rates.size), one)]),
        np.concatenate([np.zeros(len(equations)), ridge * before, [one]]),
        maxiter=100 * rates.size,
    )
    return TokenMixture(rates, shares)


def misfit(mixture: TokenMixture, counts: Sequence[DraftCounts]) -> tuple[float, int]:
    """Chi-square of the counted rates about the mixture's, and how many rates that sums over."""
    equations = [each for count in counts for each in _equations(count)]
    off = [each.row(mixture.rates, each.rate) @ mixture.shares / each.error for each in equations]
    return float(np.sum(np.square(off))), len(equations)


def mixture_bounds(
    mixture: TokenMixture, counts: Sequence[DraftCounts], gamma: int, level: float
) -> Interval[float]:
    """Tokens per call at ``gamma``: least, the mixture's own, and most that the counts allow.

    Over all mixtures whose rates lie inside the confidence intervals of all the counted ones,
    which together hold at ``level`` (Bonferroni; rounds are taken as independent).  Counts that no
    mixture fits widen the intervals as far as to ``mixture``, which must be the fitted one.
    """
    equations = [each for count in counts for each in _equations(count)]
    each_level = 1.0 - (1.0 - level) / max(len(equations), 1)
    rows = []
    for each in equations:
        low, high = each.interval(each_level)
        own = each.value(mixture)
        rows.append(each.row(rate_grid(), min(low, own)))
        rows.append(-each.row(rate_grid(), max(high, own)))
    own = float(mixture.tokens_per_call(gamma)[-1])
    found = _programme(np.array(rows).reshape(-1, rate_grid().size), gamma)
    return Interval(min(found.low, own), own, max(found.high, own))


def tokens_per_call_bounds(measured: Mapping[int, float], gamma: int) -> Interval[float]:
    """Least and most tokens per call at ``gamma`` of all mixtures with these at other lengths.

    measured : tokens per call by draft length, without error; ``best`` is the middle

    Raises InvalidArgumentError where no mixture has them all.

    >>> found = tokens_per_call_bounds({3: 2.925}, 8)
    >>> round(found.low, 2), round(found.high, 2)
    (4.17, 4.55)
    """
    rows = []
    for length, tokens in measured.items():
        tokens = number(f"tokens per call at gamma {length}", tokens, low=1.0, high=length + 1.0)
        row = tokens * _calls(rate_grid(), length) - 1.0
        rows += [row, -row]
    found = _programme(np.array(rows).reshape(-1, rate_grid().size), gamma)
    return Interval(found.low, (found.low + found.high) / 2.0, found.high)


def _programme(rows: Floats, gamma: int) -> Interval[float]:
    """Tokens per call at gamma over shares >= 0 of the grid that sum to one, rows @ shares >= 0."""
    from scipy.optimize import linprog

    price = _calls(rate_grid(), gamma)
    ends = []
    for sign in (1.0, -1.0):
        found = linprog(
            sign * price,
            A_ub=-rows if rows.size else None,
            b_ub=np.full(len(rows), _EXACT) if rows.size else None,
            A_eq=np.ones((1, price.size)),
            b_eq=[1.0],
            bounds=(0, None),
            method="highs",
        )
        if found.status:
            raise InvalidArgumentError(
                "no mixture over tokens has these tokens per call: at most i.i.d. acceptance "
                "gains from longer drafts as they do"
            )
        ends.append(1.0 / float(price @ found.x))
    low, high = sorted(ends)
    return Interval(low, (low + high) / 2.0, high)


@dataclass(frozen=True)
class _Equation:
    """One counted rate: E_nu[(a^j - rate a^(j-1)) r] = 0 is alpha_j = rate in blocks of gamma.

    position : j, or 0 where only totals were counted: then E_nu[rate r] = 1, tokens per call
    tokens : per call at this gamma; scales all equations alike
    reached : S_(j-1)
    trials : rounds that got to position j - 1, or all of them
    """

    gamma: int
    position: int
    rate: float
    tokens: float
    reached: float
    trials: float

    def row(self, rates: Floats, rate: float) -> Floats:
        """Of the equation with another rate, by the acceptance of each share, shape (n,)."""
        calls = _calls(rates, self.gamma)
        if not self.position:
            return np.asarray(1.0 - rate * calls)
        last = rates ** (self.position - 1)
        return np.asarray((rates - rate) * last * calls * self.tokens)

    def value(self, mixture: TokenMixture) -> float:
        """What the mixture has for this rate."""
        if not self.position:
            return float(mixture.tokens_per_call(self.gamma)[-1])
        return float(mixture.conditional(self.gamma)[self.position - 1])

    @property
    def error(self) -> float:
        """Standard deviation of the equation's left side by chance; half an event is added."""
        if not self.position:
            return self._deviation / self.rate
        rate = (self.rate * self.trials + 0.5) / (self.trials + 1.0)
        return self.reached * float(np.sqrt(rate * (1.0 - rate) / (self.trials + 1.0)))

    def interval(self, level: float) -> tuple[float, float]:
        if not self.position:
            half = normal_quantile(level) * self._deviation
            return max(self.rate - half, 1.0), min(self.rate + half, self.gamma + 1.0)
        found = wilson_interval(np.array(self.rate), np.array(self.trials), level)
        return float(found.low), float(found.high)

    @property
    def _deviation(self) -> float:
        """Of a mean of tokens per call whose spread was not counted: that of i.i.d. acceptance."""
        curve = np.power(_iid_rate(self.tokens, self.gamma), np.arange(1.0, self.gamma + 1.0))
        return tokens_deviation(np.asarray(curve), self.trials)


def tokens_deviation(curve: Floats, rounds: float) -> float:
    """Standard deviation of the mean tokens of so many independent rounds with S_1..S_K = curve.

    Var N = sum_i (2 i - 1) S_i - (sum_i S_i)^2; never quite zero, as if half a round differed.
    """
    odd = 2.0 * np.arange(1, curve.size + 1) - 1.0
    variance = max(float(odd @ curve - curve.sum() ** 2), 0.5 / rounds)
    return float(np.sqrt(variance / rounds))


def _equations(count: DraftCounts) -> Iterable[_Equation]:
    """What one count says: rates by position as far as any round got, else the mean of tokens."""
    assert count.gamma is not None
    tokens = min(count.tokens_per_call, count.gamma + 1.0)
    before = count.rounds
    for position, reached in enumerate(count.reached[: count.gamma], 1):
        if before < 0.5:
            return
        rate = min(reached / before, 1.0)
        yield _Equation(count.gamma, position, rate, tokens, before / count.rounds, before)
        before = reached
    if len(count.reached) < count.gamma:
        yield _Equation(count.gamma, 0, tokens, tokens, 1.0, count.rounds)


def _likeliest_beta(counts: Sequence[DraftCounts]) -> Floats:
    """Quantiles of the Beta law of nu that makes the counts likeliest, shape (_QUANTILES,)."""
    from scipy.optimize import minimize
    from scipy.special import betaincinv

    middle = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    equal = np.full(_QUANTILES, 1.0 / _QUANTILES)

    def quantiles(logs: Floats) -> Floats:
        p, q = np.exp(np.clip(logs, -6.0, 8.0))
        return np.asarray(np.clip(betaincinv(p, q, middle), 0.0, 1.0))

    def surprise(logs: Floats) -> float:
        mixture = TokenMixture(quantiles(logs), equal)
        lost = float(np.square(logs / _PRIOR).sum()) / 2.0
        return lost - sum(_log_likelihood(mixture, count) for count in counts)

    settings: dict[str, Any] = {"xatol": 1e-3, "fatol": 1e-4, "maxiter": 400}
    found = [
        minimize(surprise, start, method="Nelder-Mead", options=settings)
        for start in ((1.0, 0.0), (3.0, 2.0))
    ]
    return quantiles(min(found, key=lambda each: float(each.fun)).x)


def _log_likelihood(mixture: TokenMixture, count: DraftCounts) -> float:
    """Of the rounds that stopped at each position, or of the mean where only that was counted."""
    assert count.gamma is not None
    curve = mixture.survival(count.gamma)
    known = len(count.reached[: count.gamma])
    stopped = -np.diff([count.rounds, *count.reached[:known], 0.0])
    chance = -np.diff(np.append(curve[: known + 1], 0.0))
    found = float(np.maximum(stopped, 0.0) @ np.log(np.maximum(chance, 1e-12)))
    if known < count.gamma:
        off = count.tokens_per_call - float(curve.sum())
        found -= (off / tokens_deviation(curve[1:], count.rounds)) ** 2 / 2.0
    return found


def _iid_rate(tokens: float, gamma: int) -> float:
    """The one rate with these tokens per call, Leviathan23 eq 1 solved."""
    from scipy.optimize import brentq

    if not 1.0 < tokens < gamma + 1.0:
        return float(tokens > 1.0)
    return float(brentq(lambda a: float((a ** np.arange(gamma + 1)).sum()) - tokens, 0.0, 1.0))


def _calls(rates: Floats, gamma: int) -> Floats:
    """r(a): target calls of a token, at rate a and draft length gamma, shape (n,)."""
    return np.asarray(1.0 / _powers(rates, gamma).sum(axis=0))


def _powers(rates: npt.ArrayLike, gamma: int) -> Floats:
    """a^0..a^gamma of each rate, shape (gamma + 1, n)."""
    return np.asarray(np.power(np.asarray(rates)[None, :], np.arange(gamma + 1.0)[:, None]))
