"""Conversions between the numbers that people quote about acceptance.

Four names for the same block, kept apart here:

* *acceptance length*: mean tokens per target call, the recovered or bonus token counted, so that
  plain decoding is 1 and a block of gamma drafts yields at most gamma + 1;
* *accepted tokens*: the same without that token, 0..gamma;
* *acceptance rate*: n_accepted / n_drafted = accepted tokens / gamma.  It falls with gamma and is
  not alpha;
* *alpha*: the probability that one draft token is accepted, the same at every position (i.i.d.,
  Leviathan23 Def 3.1).

Per position, the *marginal* rate S_i is the share of all blocks whose first i drafts are all
accepted (engines export this one) and the *conditional* rate is alpha_i = S_i / S_{i-1}.  With
N - 1 accepted tokens in a block, E[N] = 1 + sum_i S_i holds with no model at all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from specsim.checks import (
    Floats,
    InvalidArgumentError,
    UnsupportedError,
    integer,
    integers,
    number,
    probabilities,
    probability,
)
from specsim.intervals import Interval, normal_quantile, wilson_interval

# --- acceptance length, accepted tokens, acceptance rate: no model needed ----------------------


def accepted_tokens_from_acceptance_length(length: float) -> float:
    """Mean accepted draft tokens per block, from E[N] >= 1."""
    return number("acceptance length", length, low=1.0) - 1.0


def acceptance_length_from_accepted_tokens(tokens: float) -> float:
    """E[N], from the mean accepted draft tokens per block."""
    return number("accepted tokens", tokens, low=0.0) + 1.0


def acceptance_rate_from_acceptance_length(length: float, gamma: int) -> float:
    """n_accepted / n_drafted = (E[N] - 1) / gamma, for E[N] in [1, gamma + 1], gamma >= 1."""
    gamma = _drafting(gamma, "the acceptance rate has no drafted tokens to divide by")
    return (number("acceptance length", length, low=1.0, high=gamma + 1.0) - 1.0) / gamma


def acceptance_length_from_acceptance_rate(rate: float, gamma: int) -> float:
    """E[N] = 1 + gamma n_accepted / n_drafted; 1 at gamma = 0."""
    return 1.0 + integer("gamma", gamma) * probability("acceptance rate", rate)


# --- alpha: under i.i.d. acceptance ------------------------------------------------------------


def acceptance_length_from_alpha(alpha: float, gamma: int) -> float:
    """E[N] = (1 - alpha^(gamma+1)) / (1 - alpha) (Leviathan23 eq 1); gamma + 1 at alpha = 1."""
    return 1.0 + _accepted(probability("alpha", alpha), integer("gamma", gamma))


def alpha_from_acceptance_length(length: float, gamma: int) -> float:
    """The alpha whose E[N] at ``gamma`` is ``length``, in [1, gamma + 1]; gamma >= 1."""
    gamma = _drafting(gamma, "the acceptance length is 1 whatever alpha is")
    length = number("acceptance length", length, low=1.0, high=gamma + 1.0)
    return _solve_alpha(length - 1.0, gamma)


def acceptance_rate_from_alpha(alpha: float, gamma: int) -> float:
    """n_accepted / n_drafted = alpha (1 - alpha^gamma) / ((1 - alpha) gamma), gamma >= 1.

    >>> round(acceptance_rate_from_alpha(0.8, 3), 2), round(acceptance_rate_from_alpha(0.8, 8), 2)
    (0.65, 0.42)
    """
    gamma = _drafting(gamma, "the acceptance rate has no drafted tokens to divide by")
    return _accepted(probability("alpha", alpha), gamma) / gamma


def alpha_from_acceptance_rate(rate: float, gamma: int) -> float:
    """The alpha whose n_accepted / n_drafted at ``gamma`` >= 1 is ``rate``, in [0, 1]."""
    gamma = _drafting(gamma, "the acceptance rate has no drafted tokens to divide by")
    return _solve_alpha(gamma * probability("acceptance rate", rate), gamma)


def _drafting(gamma: int, why: str) -> int:
    if integer("gamma", gamma) == 0:
        raise UnsupportedError(f"gamma must be >= 1, got 0: {why}")
    return integer("gamma", gamma)


def _accepted(alpha: float, gamma: int) -> float:
    """sum_{i=1..gamma} alpha^i without cancellation at either end."""
    if alpha in (0.0, 1.0):
        return alpha * gamma
    return float(-alpha * np.expm1(gamma * np.log(alpha)) / (1.0 - alpha))


def _solve_alpha(accepted: float, gamma: int) -> float:
    return _root(lambda alpha: _accepted(alpha, gamma) - accepted, 0.0, 1.0)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """The root of an increasing function on [low, high], to the last digits of a float."""
    if function(low) >= 0:
        return low
    if function(high) <= 0:
        return high
    from scipy.optimize import brentq  # only inversions pay for importing it

    return float(brentq(function, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps))


# --- per position: marginal, conditional, histogram --------------------------------------------


def acceptance_length_from_marginal(marginal: npt.ArrayLike) -> float:
    """E[N] = 1 + sum_i S_i.  Not invertible: a length is one number, a curve is gamma of them."""
    return 1.0 + float(_marginal(marginal).sum())


def marginal_from_conditional(conditional: npt.ArrayLike) -> Floats:
    """S_i = alpha_1 ... alpha_i, shape (gamma,)."""
    rates = np.atleast_1d(probabilities("conditional rates", conditional))
    return np.cumprod(rates, dtype=np.float64)


def conditional_from_marginal(marginal: npt.ArrayLike) -> Floats:
    """alpha_i = S_i / S_{i-1}, shape (gamma,); undefined behind a position never reached."""
    curve = _marginal(marginal)
    before = np.concatenate([[1.0], curve[:-1]])
    if (before == 0).any():
        reached = int(np.argmax(before == 0))
        raise UnsupportedError(
            f"conditional rates end at position {reached}: no block gets further, so the rate at "
            f"position {reached + 1} is 0/0; pass the first {reached} marginal rates"
        )
    rates: Floats = curve / before
    return rates


def accepted_law_from_marginal(marginal: npt.ArrayLike) -> Floats:
    """P(j drafts accepted) = S_j - S_{j+1} for j = 0..gamma, shape (gamma + 1,)."""
    curve = np.concatenate([[1.0], _marginal(marginal), [0.0]])
    law: Floats = curve[:-1] - curve[1:]
    return law


def marginal_from_histogram(histogram: npt.ArrayLike) -> Floats:
    """S_1..S_gamma, shape (gamma,), from the number of blocks with 0..gamma accepted drafts."""
    survivors = _survivors(histogram)
    marginal: Floats = survivors[1:] / survivors[0]
    return marginal


def acceptance_length_from_histogram(histogram: npt.ArrayLike) -> float:
    """E[N] from the number of blocks with 0..gamma accepted drafts."""
    survivors = _survivors(histogram)
    return 1.0 + float(survivors[1:].sum() / survivors[0])


def _marginal(marginal: npt.ArrayLike) -> Floats:
    curve = np.atleast_1d(probabilities("marginal rates", marginal))
    rises = np.flatnonzero(np.diff(curve) > 0)
    if rises.size:
        raise InvalidArgumentError(
            f"marginal rates must be non-increasing, got {curve[rises[0]]:g} and then "
            f"{curve[rises[0] + 1]:g}; conditional rates go through marginal_from_conditional"
        )
    return curve


def _survivors(histogram: npt.ArrayLike) -> Floats:
    """Number of blocks with at least j accepted drafts, j = 0..gamma."""
    blocks = np.atleast_1d(integers("histogram", histogram))
    if not blocks.sum():
        raise InvalidArgumentError("histogram must count at least one block, got 0")
    return np.cumsum(blocks[::-1], dtype=np.float64)[::-1]


# --- counts to intervals -----------------------------------------------------------------------


def rate_from_counts(successes: int, trials: int, level: float = 0.95) -> Interval[float]:
    """successes / trials with its Wilson interval, for independent trials."""
    trials = integer("trials", trials, low=1)
    successes = integer("successes", successes, high=trials)
    rate = successes / trials
    found = wilson_interval(np.array(rate), np.array(trials), level)
    return Interval(float(found.low), rate, float(found.high))


def marginal_estimate_from_histogram(
    histogram: npt.ArrayLike, level: float = 0.95
) -> Interval[Floats]:
    """S_1..S_gamma with pointwise Wilson intervals: each S_i is a rate over all the blocks."""
    return wilson_interval(marginal_from_histogram(histogram), _survivors(histogram)[0], level)


def alpha_from_histogram(histogram: npt.ArrayLike, level: float = 0.95) -> Interval[float]:
    """alpha under i.i.d. acceptance, by maximum likelihood, with its Wilson interval.

    A block examines its accepted drafts and, unless all gamma were accepted, one rejected draft:
    alpha = accepted / examined, a plain rate over independent trials.
    """
    survivors = _survivors(histogram)
    if survivors.size == 1:
        raise UnsupportedError("gamma must be >= 1, got 0: a histogram of one bin tells no alpha")
    # A position is examined by every block that survived the one before it.
    return rate_from_counts(int(survivors[1:].sum()), int(survivors[:-1].sum()), level)


def alpha_from_counts(
    accepted: int, drafted: int, gamma: int, level: float = 0.95
) -> Interval[float]:
    """alpha under i.i.d. acceptance from n_accepted and n_drafted at a fixed ``gamma``.

    Drafts of one block are not independent trials, so this is not the interval of a rate:
    the score test on the mean of drafted / gamma blocks is inverted, |x - m(alpha)| <=
    z sd(alpha) / sqrt(blocks), which is Wilson's interval at gamma = 1.
    """
    gamma = _drafting(gamma, "the acceptance rate has no drafted tokens to divide by")
    drafted = integer("drafted", drafted, low=1)
    if drafted % gamma:
        raise InvalidArgumentError(f"drafted must be a multiple of gamma = {gamma}, got {drafted}")
    blocks = drafted // gamma
    mean = integer("accepted", accepted, high=drafted) / blocks
    width = normal_quantile(level) / np.sqrt(blocks)

    def inside(alpha: float) -> bool:
        away = abs(_accepted(alpha, gamma) - mean)
        return bool(away <= width * _accepted_spread(alpha, gamma))

    best = _solve_alpha(mean, gamma)
    return Interval(_edge(inside, best, 0.0), best, _edge(inside, best, 1.0))


def _accepted_spread(alpha: float, gamma: int) -> float:
    """Standard deviation of the accepted tokens of one block."""
    law = accepted_law_from_marginal(np.power(alpha, np.arange(1.0, gamma + 1)))
    deviation = np.arange(gamma + 1.0) - _accepted(alpha, gamma)
    return float(np.sqrt(law @ deviation**2))


def _edge(inside: Callable[[float], bool], within: float, beyond: float) -> float:
    """Where an interval that holds ``within`` ends on the way to ``beyond``, by bisection."""
    while (middle := (within + beyond) / 2) not in (within, beyond):
        if inside(middle):
            within = middle
        else:
            beyond = middle
    return within
