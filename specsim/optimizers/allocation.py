"""Which drafter for which draft position: the exact optimum of the horizontal cascade (Chen23).

With position i drafted by a drafter of acceptance alpha_i and cost c_i, n tokens in all,

    EWIF = (sum_{i=0..n} prod_{j<=i} alpha_j) / (v(n + 1) + o + sum_i c_i)    (Chen23 Thm 4.1).

Order.  Exchange two neighbours with alpha_i < alpha_{i+1}: the sum keeps every term but the one
that ends between them, whose last factor grows from alpha_i to alpha_{i+1}; cost is unchanged.  So
some optimum has its drafters in falling order of acceptance, and an allocation is a vector of
counts, best drafter first.

Mixing two drafters at a position never helps (Thm 4.4): EWIF is linear-fractional in the mixing
probability, so it is monotone in it and an end is at least as good.

The tests hold the dynamic programme here to a search over all counts with a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from specsim.api.result import Result, Row
from specsim.checks import InvalidArgumentError, integer, number, probability
from specsim.cost import LinearVerify, VerifyCost, block_cost

# Speeds nearer than this, relatively, are equal: the sums hold a few hundred rounded terms.
_EQUAL = 1e-13
_PAPERS_VERIFY = LinearVerify()  # v = 1
# Plans of every length are kept.
_LONGEST = 4096


@dataclass(frozen=True)
class PricedDrafter:
    """One drafter.

    name : of the draft model
    alpha : acceptance rate of its tokens by the target, in [0, 1]
    c : cost of one of its runs in target runs, >= 0
    """

    name: str
    alpha: float
    c: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", probability(f"alpha of {self.name}", self.alpha))
        object.__setattr__(self, "c", number(f"c of {self.name}", self.c, low=0.0))


@dataclass(frozen=True)
class Allocation(Result):
    """The best allocation; among equally fast ones, one with the fewest tokens.

    allocation : (drafter's name, tokens) in the order of drafting, drafters with no token left out
    speedup : against plain decoding
    tokens_per_call : the recovered or bonus token counted
    at_gamma_max : whether the bound on the length is what stops it
    """

    schema: ClassVar[str] = "specsim.allocation"

    allocation: tuple[tuple[str, int], ...]
    speedup: float
    tokens_per_call: float
    at_gamma_max: bool

    def rows(self) -> list[Row]:
        words = [f"{name} {tokens}" for name, tokens in self.allocation]
        return [
            {
                "allocation": " + ".join(words) or "none: plain decoding",
                "speedup": self.speedup,
                "tokens_per_call": self.tokens_per_call,
                "at_gamma_max": self.at_gamma_max,
            }
        ]

    def summary(self) -> Row:
        parts = [{"drafter": name, "tokens": tokens} for name, tokens in self.allocation]
        return {"allocation": parts}


class _Plan(NamedTuple):
    """Tokens expected after the first one are ``gain``, at ``price``; counts per drafter."""

    gain: float
    price: float
    counts: tuple[int, ...]


def best_allocation(
    drafters: Sequence[PricedDrafter],
    gamma_max: int = 64,
    verify: VerifyCost = _PAPERS_VERIFY,
    overhead: float = 0.0,
) -> Allocation:
    """The fastest allocation of at most ``gamma_max`` draft tokens, by dynamic programming.

    A plan of the last drafters, entered with probability s, adds s gain - price * (any rate) to
    the numerator less rate times the denominator, so only plans on the upper hull of (price, gain)
    can be part of an optimum, whatever comes before them.  A token of drafter d in front maps every
    plan to (alpha (1 + gain), c + price), an increasing affine map, so hulls stay hulls:

        hull(d, n) = hull of hull(d + 1, n) and d's token before hull(d, n - 1).

    Raises UnsupportedError where ``verify`` is not known for gamma_max + 1 tokens.
    """
    ranked, gamma_max = _ranked(drafters), integer("gamma_max", gamma_max, high=_LONGEST)
    # hulls[n]: plans of exactly n tokens from the drafters met so far, worst first.
    hulls: list[list[_Plan]] = [[] for _ in range(gamma_max + 1)]
    hulls[0] = [_Plan(0.0, 0.0, (0,) * len(ranked))]
    for d in reversed(range(len(ranked))):
        for n in range(1, gamma_max + 1):
            hulls[n] = _hull(hulls[n] + [_before(ranked[d], d, plan) for plan in hulls[n - 1]])
    return _best(ranked, [p for plans in hulls for p in plans], gamma_max, verify, overhead)


def _ranked(drafters: Sequence[PricedDrafter]) -> list[PricedDrafter]:
    names = [drafter.name for drafter in drafters]
    if not names or len(set(names)) < len(names):
        raise InvalidArgumentError(f"drafter names must be different, at least one, got {names}")
    return sorted(drafters, key=lambda drafter: (-drafter.alpha, drafter.c))


def _before(drafter: PricedDrafter, index: int, plan: _Plan) -> _Plan:
    counts = (*plan.counts[:index], plan.counts[index] + 1, *plan.counts[index + 1 :])
    return _Plan(drafter.alpha * (1 + plan.gain), drafter.c + plan.price, counts)


def _hull(plans: list[_Plan]) -> list[_Plan]:
    """The plans on the upper hull, by rising price and strictly rising gain."""
    kept: list[_Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.price, -plan.gain)):
        if kept and plan.gain <= kept[-1].gain:
            continue
        while len(kept) > 1 and _below(kept[-2], kept[-1], plan):
            kept.pop()
        kept.append(plan)
    return kept


def _below(left: _Plan, middle: _Plan, right: _Plan) -> bool:
    """Whether ``middle`` lies strictly under the line from ``left`` to ``right``."""
    rise, run = right.gain - left.gain, right.price - left.price
    return (middle.gain - left.gain) * run < rise * (middle.price - left.price)


def _best(
    ranked: Sequence[PricedDrafter],
    plans: Sequence[_Plan],
    gamma_max: int,
    verify: VerifyCost,
    overhead: float,
) -> Allocation:
    overhead = number("overhead", overhead, low=0.0)
    # v(n + 1) + o for n = 1..gamma_max; plain decoding, n = 0, costs 1.
    fixed: list[float] = block_cost(np.arange(gamma_max + 1), 0.0, verify, overhead).tolist()
    speeds = [(1 + plan.gain) / (fixed[sum(plan.counts)] + plan.price) for plan in plans]
    enough = max(speeds) * (1 - _EQUAL)
    equal = [i for i, speed in enumerate(speeds) if speed >= enough]
    chosen = min(equal, key=lambda i: (sum(plans[i].counts), plans[i].price, -speeds[i]))
    plan = plans[chosen]
    return Allocation(
        allocation=tuple(
            (drafter.name, count)
            for drafter, count in zip(ranked, plan.counts, strict=True)
            if count
        ),
        speedup=speeds[chosen],
        tokens_per_call=1 + plan.gain,
        at_gamma_max=gamma_max > 0 and sum(plan.counts) == gamma_max,
    )
