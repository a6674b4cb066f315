"""The mixture over tokens that counts speak for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.checks import Floats
from specsim.counts.drafts import DraftCounts
from specsim.extrapolation.counted import counted_rates, counted_tokens, tokens_deviation
from specsim.extrapolation.mixtures import TokenMixture, rate_grid

# Quantiles of the Beta law that starts a fit.
_QUANTILES = 100
# Share of tokens that the start leaves to the whole grid, so that data can move it anywhere.
_ANYWHERE = 0.02
# Weight of the start against the counts, in units of chi-square: 1 to 10 do alike on traces.
_START = 10.0
# Spread of log p and log q of that Beta(p, q) around the uniform law, where counts say nothing.
_PRIOR = 2.0


def fit_mixture(counts: Sequence[DraftCounts]) -> TokenMixture:
    """The mixture that the counts speak for, at one draft length or several.

    Moments do not tell a law, so a smooth one is taken: the Beta law of nu with the highest
    likelihood, and then the law nearest to it, in chi-square, that fits what was counted.  With a
    few thousand rounds Beta alone does as well; with many its misfit to text of two kinds shows.
    The middle of the bounds errs twice as much from one position
    (benchmarks/acceptance_over_gamma.py).  Each count needs a draft length and at least one round.
    """
    start = likeliest_beta(counts)
    spread = np.gradient(rate_grid())
    rates = np.concatenate([start, rate_grid()])
    before = np.concatenate(
        [
            np.full(start.size, (1 - _ANYWHERE) / start.size),
            _ANYWHERE * spread / spread.sum(),
        ]
    )
    known = [each for count in counts for each in counted_rates(count)]
    rows = np.array([each.row(rates, each.rate) / each.error for each in known])
    ridge = np.sqrt(_START / before)
    # Shares sum to one because this row weighs far more than any other.
    one = 1e3 * (1.0 + ridge.max())
    from scipy.optimize import nnls

    shares, _ = nnls(
        np.vstack([rows.reshape(-1, rates.size), np.diag(ridge), np.full((1, rates.size), one)]),
        np.concatenate([np.zeros(len(known)), ridge * before, [one]]),
        maxiter=100 * rates.size,
    )
    return TokenMixture(rates, shares)


def misfit(mixture: TokenMixture, counts: Sequence[DraftCounts]) -> tuple[float, int]:
    """Chi-square of the counted rates about the mixture's, and how many rates that sums over."""
    known = [each for count in counts for each in counted_rates(count)]
    off = [each.row(mixture.rates, each.rate) @ mixture.shares / each.error for each in known]
    return float(np.sum(np.square(off))), len(known)


def likeliest_beta(counts: Sequence[DraftCounts]) -> Floats:
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
    """Of the rounds that stopped at each position, and of the mean of what was not counted so."""
    assert count.gamma is not None
    curve = mixture.survival(count.gamma)
    known = len(count.reached[: count.gamma])
    stopped = -np.diff([count.rounds, *count.reached[:known], 0.0])
    chance = -np.diff(np.append(curve[: known + 1], 0.0))
    found = float(np.maximum(stopped, 0.0) @ np.log(np.maximum(chance, 1e-12)))
    behind = counted_tokens(count)
    if behind is not None:
        later = behind.curve_behind(curve)
        deviation = tokens_deviation(later[1:], behind.trials)
        off = behind.rate - float(later.sum())
        found -= (off / deviation) ** 2 / 2.0 + float(np.log(deviation))
    return found
