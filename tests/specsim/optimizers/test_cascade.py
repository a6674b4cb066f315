"""The search over lengths and lenience of a full cascade."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from specsim.checks import InvalidArgumentError
from specsim.cost import Cost
from specsim.optimizers.cascade import search
from specsim.predict import renewal
from specsim.schemes import Acceptances, FullCascade

NAMES = ("base", "small", "mag")
COST = Cost({"base": 0.0195, "small": 0.0053, "mag": 0.0})  # Leviathan23's costs, as Chen23's MS
GRID = ((range(1, 6), range(5), (0, 3, 6)), ((0, 1, 2), (5,)), ((5,),))
SMALL = ((range(1, 4), range(3), (0, 3)), ((0, 2), (5,)), ((5,),))


def known_acceptances(base: float, small: float, inner: float) -> Acceptances:
    return Acceptances.of_pairs(base, small, 0.2, inner, 0.3, 0.4)


def by_lenience(seed: int) -> dict[float, Acceptances]:
    """Lenience accepts more inside, and what it lets through suits the target a little less."""
    rng = np.random.default_rng(seed)
    base, small, inner = rng.uniform(0.7, 0.9), rng.uniform(0.5, 0.7), rng.uniform(0.5, 0.8)
    return {
        1.0: known_acceptances(base, small, inner),
        1.5: known_acceptances(base - 0.01, small, inner + 0.1),
    }


def test_a_small_grid_is_searched_exhaustively() -> None:
    known = by_lenience(0)
    found = search(NAMES, known, SMALL, COST)
    best = max(
        renewal.speedup(
            FullCascade(NAMES, ((k11, k12, k13), (k22, 5), (5,))).law(known[lenience]), COST
        )
        for lenience, k11, k12, k13, k22 in product(known, *SMALL[0], SMALL[1][0])
    )
    assert found.speedup == best == renewal.speedup(found.scheme.law(known[found.lenience]), COST)
    assert found.exhaustive
    assert found.evaluated == found.candidates == 72


@pytest.mark.parametrize("seed", range(2))
def test_successive_halving_finds_the_optimum_of_these_grids(seed) -> None:
    whole = search(NAMES, by_lenience(seed), GRID, COST)
    halved = search(NAMES, by_lenience(seed), GRID, COST, exhaustive=10)
    assert not halved.exhaustive
    assert halved.evaluated < 0.7 * halved.candidates
    assert halved.speedup == pytest.approx(whole.speedup, rel=1e-12)


def test_an_empty_grid_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="need a value to try"):
        search(NAMES, by_lenience(0), (((), (1,), (1,)), ((1,), (1,)), ((1,),)), COST)
