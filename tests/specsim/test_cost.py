"""The cost of a block against the papers' formula."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specsim import formulas
from specsim.cost import Cost, LinearVerify, MeasuredVerify, block_cost
from specsim.laws import TARGET, Run

costs = st.floats(0, 2)


@given(costs, costs, costs)
def test_is_the_papers_formula(c: float, slope: float, overhead: float) -> None:
    gammas = np.arange(9)
    found = block_cost(gammas, c, LinearVerify(slope), overhead)
    wanted = formulas.call_cost(c, gammas, verify_slope=slope, overhead=overhead)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


def test_blocks_are_the_prices_of_their_runs() -> None:
    cost = Cost({"a": 0.1}, MeasuredVerify((2.0, 2.2, 2.6, 2.6)), overhead=0.3, plain_overhead=0.2)
    wanted = [1.2] + [
        gamma * cost.price(Run("a", 1)) + cost.price(Run(TARGET, gamma + 1)) + 0.3
        for gamma in (1, 2, 3)
    ]
    np.testing.assert_allclose(cost.blocks(3, "a"), wanted, rtol=1e-15)
