"""The least and the most tokens per call that counts at some draft lengths allow at another.

1 / tokens per call is linear in the share nu of tokens at each rate (``mixtures.py``), and so is
every equation of a counted rate: a linear programme over nu >= 0, on a grid of rates that is dense
at both ends.  Its bounds are sharp among mixtures, and hold for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, UnsupportedError, integer, number
from specsim.counts.drafts import DraftCounts
from specsim.extrapolation.counted import counted_rates
from specsim.extrapolation.mixtures import TokenMixture, calls, rate_grid
from specsim.intervals import Interval

# How closely the bounds of exact rates hold them: the feasibility tolerance of the solver.
_EXACT = 1e-7
# Of what scipy.optimize.linprog says.
_SOLVED, _INFEASIBLE = 0, 2


def mixture_bounds(
    mixture: TokenMixture, counts: Sequence[DraftCounts], gamma: int, level: float
) -> Interval[float]:
    """Tokens per call at ``gamma``: least, the mixture's own, and most that the counts allow.

    Over all mixtures whose rates lie inside the confidence intervals of all the counted ones,
    which together hold at ``level`` (Bonferroni; rounds are taken as independent).  Counts that no
    mixture fits widen the intervals as far as to ``mixture``, which must be the fitted one.
    """
    known = [each for count in counts for each in counted_rates(count)]
    each_level = 1.0 - (1.0 - level) / max(len(known), 1)
    # With the mixture's own rates among them there is always an answer: the mixture itself.
    rates = np.union1d(rate_grid(), mixture.rates)
    rows = []
    for each in known:
        low, high = each.interval(each_level)
        own = each.value(mixture)
        rows.append(each.row(rates, min(low, own)))
        rows.append(-each.row(rates, max(high, own)))
    own = float(mixture.tokens_per_call(gamma)[-1])
    found = _programme(rates, rows, gamma)
    return Interval(min(found.low, own), own, max(found.high, own))


def tokens_per_call_bounds(measured: Mapping[int, float], gamma: int) -> Interval[float]:
    """Least and most tokens per call at ``gamma`` of all mixtures with these at other lengths.

    measured : tokens per call by draft length, without error; ``best`` is the middle

    Raises InvalidArgumentError where no mixture has them all.

    >>> found = tokens_per_call_bounds({3: 2.925}, 8)
    >>> round(found.low, 2), round(found.high, 2)
    (4.17, 4.55)
    """
    gamma = integer("gamma", gamma)
    rows: list[Floats] = []
    for length, tokens in measured.items():
        length = integer("a draft length of measured", length)
        tokens = number(f"tokens per call at gamma {length}", tokens, low=1.0, high=length + 1.0)
        row = tokens * calls(rate_grid(), length) - 1.0
        rows += [row, -row]
    found = _programme(rate_grid(), rows, gamma)
    return Interval(found.low, (found.low + found.high) / 2.0, found.high)


def _programme(rates: Floats, rows: Sequence[Floats], gamma: int) -> Interval[float]:
    """Tokens per call at gamma, over shares >= 0 that sum to one, with row @ shares >= 0."""
    price = calls(rates, gamma)
    ends = []
    for sign in (1.0, -1.0):
        shares = _best_shares(sign * price, np.array(rows).reshape(-1, price.size))
        ends.append(1.0 / float(price @ shares))
    low, high = sorted(ends)
    return Interval(low, (low + high) / 2.0, high)


def _best_shares(price: Floats, rows: Floats) -> Floats:
    """The shares >= 0 that sum to one at which ``price`` is least, with row @ shares >= 0.

    On about one in a thousand counts the simplex method stops before it knows its optimum for one
    (HiGHS' status unknown), though all is well; interior points then find it.
    """
    from scipy.optimize import linprog

    for method in ("highs", "highs-ipm"):
        found = linprog(
            price,
            A_ub=-rows,
            b_ub=np.full(len(rows), _EXACT),
            A_eq=np.ones((1, price.size)),
            b_eq=[1.0],
            bounds=(0, None),
            method=method,
        )
        if found.status == _SOLVED:
            return np.asarray(found.x)
        if found.status == _INFEASIBLE:
            raise InvalidArgumentError(
                "no mixture over tokens has these tokens per call: at most i.i.d. acceptance "
                "gains from longer drafts as they do"
            )
    raise UnsupportedError(f"the bounds of these counts were not found: {found.message}")
