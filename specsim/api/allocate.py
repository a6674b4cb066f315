"""``specsim.allocate``: how many tokens each of several drafters should draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy.typing as npt

from specsim.cost import MeasuredVerify, Prices
from specsim.optimizers.allocation import Allocation, PricedDrafter, best_allocation

_MOST = 64
_FREE = (
    "verification is taken as free, as in the papers: any number of draft tokens costs one target "
    "run (verify_slope, --verify-slope, says otherwise)"
)


def allocate(
    drafters: Sequence[PricedDrafter],
    gamma_max: int | None = None,
    *,
    verify_slope: float | None = None,
    verify_cost: npt.ArrayLike | None = None,
    overhead: float | None = None,
) -> Allocation:
    """The exact optimum of the horizontal cascade: which drafter for which position (Chen23).

    gamma_max : most draft tokens per target call; None: 64, or as many as ``verify_cost`` tells of
    verify_slope : v(n) = 1 + verify_slope (n - 1); or ``verify_cost``, v(1), v(2), ... as measured
    overhead : host time of a block, in target runs

    >>> allocate([PricedDrafter("base", 0.8, 0.04), PricedDrafter("small", 0.75, 0.02)]).allocation
    (('base', 4), ('small', 6))
    """
    cost = Prices(None, None, None, verify_slope, verify_cost, overhead).cost({})
    if gamma_max is None:
        gamma_max = _MOST
        if isinstance(cost.verify, MeasuredVerify):
            cost.verify.check_drafts()
            gamma_max = min(_MOST, cost.verify.longest - 1)
    found = best_allocation(drafters, gamma_max, cost.verify, cost.overhead)
    free = verify_slope is None and verify_cost is None
    return replace(
        found,
        inputs={
            "drafters": drafters,
            "gamma_max": gamma_max,
            "verify": cost.verify,
            "overhead": cost.overhead,
        },
        warnings=(_FREE,) if free else (),
    )
