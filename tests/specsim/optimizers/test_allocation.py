"""Horizontal allocation: two exact methods and brute force, ties, limits."""

from __future__ import annotations

from itertools import accumulate, combinations_with_replacement, product
from operator import mul

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.acceptance import ConstantAcceptance
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.cost import Cost, LinearVerify, MeasuredVerify, VerifyCost
from specsim.optimizers.allocation import Allocation, PricedDrafter, best_allocation
from specsim.predict import renewal
from specsim.schemes import Acceptances, HorizontalCascade

# Grids make ties and equal drafters likely; the rest is anything.
rates = st.one_of(st.sampled_from([0.0, 0.5, 0.8, 1.0]), st.floats(0, 1, allow_subnormal=False))
prices = st.one_of(st.sampled_from([0.0, 0.02, 0.1, 0.5]), st.floats(1e-6, 2))
teams = st.lists(st.tuples(rates, prices), min_size=1, max_size=4).map(
    lambda pairs: [PricedDrafter("abcd"[i], alpha, c) for i, (alpha, c) in enumerate(pairs)]
)
curves = st.one_of(
    st.floats(0, 0.2).map(LinearVerify),
    st.lists(st.floats(0.5, 3), min_size=13, max_size=13).map(
        lambda curve: MeasuredVerify(tuple(curve))
    ),
)


def by_law(found: Allocation, drafters: list[PricedDrafter], cost: Cost) -> float:
    """The speed of an allocation, by the law of its block."""
    if not found.allocation:
        return 1.0
    team = {drafter.name: drafter for drafter in drafters}
    names, lengths = zip(*found.allocation, strict=True)
    known = tuple(ConstantAcceptance(team[name].alpha) for name in names)
    law = HorizontalCascade(names, lengths).law(Acceptances(known))
    assert law.tokens_per_call == pytest.approx(found.tokens_per_call, rel=1e-12)
    return renewal.speedup(law, cost)


def allocate_exhaustively(
    drafters: list[PricedDrafter], gamma_max: int, verify: VerifyCost, overhead: float
) -> tuple[float, int]:
    """The same optimum over all counts, best drafter first: its speed, and the fewest tokens."""
    ranked = sorted(drafters, key=lambda drafter: -drafter.alpha)
    speeds = [(1.0, 0)]
    for tokens in range(1, gamma_max + 1):
        read = float(verify(tokens + 1)) + overhead
        for team in combinations_with_replacement(ranked, tokens):
            gain = sum(accumulate((drafter.alpha for drafter in team), mul))
            speeds.append(((1 + gain) / (read + sum(drafter.c for drafter in team)), tokens))
    fastest, _ = max(speeds)
    return fastest, min(tokens for speed, tokens in speeds if speed >= fastest * (1 - 1e-13))


@settings(max_examples=100)
@given(teams, st.integers(0, 12), curves, st.floats(0, 0.5))
def test_two_methods_agree(drafters, gamma_max, verify, overhead) -> None:
    found = best_allocation(drafters, gamma_max, verify, overhead)
    other = allocate_exhaustively(drafters, gamma_max, verify, overhead)
    assert found.speedup == pytest.approx(other[0], rel=1e-12)
    assert length(found) == other[1]
    cost = Cost({d.name: d.c for d in drafters}, verify, overhead)
    assert by_law(found, drafters, cost) == pytest.approx(found.speedup, rel=1e-12)
    assert found.at_gamma_max == (length(found) == gamma_max > 0)


@settings(max_examples=60)
@given(teams.filter(lambda team: len(team) <= 3), st.integers(1, 4))
def test_no_order_of_any_drafters_is_faster(drafters, gamma_max) -> None:
    """Brute force over all sequences, so over all orders: the proof in the docstring."""
    best = 1.0
    for size in range(1, gamma_max + 1):
        for sequence in product(drafters, repeat=size):
            tokens = alive = 1.0
            for drafter in sequence:
                alive *= drafter.alpha
                tokens += alive
            best = max(best, tokens / (1 + sum(drafter.c for drafter in sequence)))
    assert best_allocation(drafters, gamma_max).speedup == pytest.approx(best, rel=1e-12)


def length(found: Allocation) -> int:
    return sum(tokens for _, tokens in found.allocation)


def test_among_equally_fast_the_shortest() -> None:
    # alpha = c: drafting one token is exactly as fast as none.
    assert best_allocation([PricedDrafter("a", 0.25, 0.25)]) == Allocation((), 1.0, 1.0, False)
    # A drafter that is free and never accepted changes nothing.
    found = best_allocation([PricedDrafter("a", 0.8, 0.1), PricedDrafter("useless", 0.0, 0.0)])
    assert [name for name, _ in found.allocation] == ["a"]
    # Of equal drafters the cheaper one, whatever their order.
    for team in ([("a", 0.2), ("b", 0.1)], [("b", 0.1), ("a", 0.2)]):
        found = best_allocation([PricedDrafter(name, 0.8, c) for name, c in team])
        assert [name for name, _ in found.allocation] == ["b"]


def test_limits() -> None:
    free = best_allocation([PricedDrafter("a", 0.9, 0.0)], 10)
    assert free.allocation == (("a", 10),)
    assert free.at_gamma_max
    assert best_allocation([PricedDrafter("a", 1.0, 0.1)], 7).speedup == pytest.approx(8 / 1.7)
    assert best_allocation([PricedDrafter("a", 0.3, 0.5)]).allocation == ()
    assert best_allocation([PricedDrafter("a", 0.9, 0.1)], 0) == Allocation((), 1.0, 1.0, False)


def test_what_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="names must be different"):
        best_allocation([PricedDrafter("a", 0.5, 0.1), PricedDrafter("a", 0.6, 0.1)])
    with pytest.raises(InvalidArgumentError, match="at least one"):
        best_allocation([])
    with pytest.raises(InvalidArgumentError, match=r"alpha of a must be in \[0, 1\], got 1.5"):
        PricedDrafter("a", 1.5, 0.1)
    with pytest.raises(UnsupportedError, match=r"verify cost is known for 1\.\.3 tokens"):
        best_allocation([PricedDrafter("a", 0.5, 0.1)], 4, MeasuredVerify((1.0, 1.1, 1.2)))
