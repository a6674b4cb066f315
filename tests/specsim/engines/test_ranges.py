"""Fewest ranges of batches: nothing lost beyond what may be, nothing changed without need."""

from __future__ import annotations

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from specsim.engines import fewest_ranges

MARGIN, LOSS = 0.02, 0.01


def _rows(longest: int) -> st.SearchStrategy[list[float]]:
    """Speedups of one batch by draft length, near enough to each other to lie within a margin."""
    near = st.integers(960, 1040).map(lambda thousandths: thousandths / 1000)
    return st.lists(near, min_size=longest, max_size=longest).map(lambda row: [1.0, *row])


SPEEDUPS = st.integers(1, 4).flatmap(lambda longest: st.lists(_rows(longest), min_size=1))


def allowed(row: list[float]) -> list[int]:
    """The lengths that a batch may have."""
    best = max(row)
    if best < 1 + MARGIN:
        return [0]
    return [g for g in range(1, len(row)) if row[g] >= max(1 + MARGIN, (1 - LOSS) * best)]


def changes(gammas: list[int] | tuple[int, ...]) -> int:
    return sum(one != other for one, other in pairwise(gammas))


def losses(speedups: list[list[float]], gammas: list[int] | tuple[int, ...]) -> float:
    return sum(1 - row[g] / max(row) for row, g in zip(speedups, gammas, strict=True))


@given(SPEEDUPS)
def test_no_batch_loses_more_than_it_may(speedups: list[list[float]]) -> None:
    gammas = fewest_ranges(speedups, MARGIN, LOSS)
    for row, gamma in zip(speedups, gammas, strict=True):
        assert not gamma or row[gamma] >= (1 - LOSS) * max(row)


@given(SPEEDUPS)
def test_drafts_exactly_where_the_best_pays_and_then_pays(speedups: list[list[float]]) -> None:
    gammas = fewest_ranges(speedups, MARGIN, LOSS)
    for row, gamma in zip(speedups, gammas, strict=True):
        assert (gamma > 0) == (max(row) >= 1 + MARGIN)
        assert gamma == 0 or row[gamma] >= 1 + MARGIN


@given(SPEEDUPS)
def test_ranges_are_as_few_as_taking_each_as_far_as_it_goes(speedups: list[list[float]]) -> None:
    """A range that is drawn out as far as some length allows never costs a range later on."""
    count, common = 0, set[int]()
    for row in speedups:
        common &= set(allowed(row))
        if not common:
            count, common = count + 1, set(allowed(row))
    assert changes(fewest_ranges(speedups, MARGIN, LOSS)) + 1 == count


@given(st.lists(_rows(3), min_size=1, max_size=5))
def test_equal_to_trying_everything(speedups: list[list[float]]) -> None:
    ways = list(product(*(allowed(row) for row in speedups)))
    fewest = min(map(changes, ways))
    least = min(losses(speedups, way) for way in ways if changes(way) == fewest)
    found = fewest_ranges(speedups, MARGIN, LOSS)
    assert tuple(found) in ways
    assert changes(found) == fewest
    assert abs(losses(speedups, found) - least) < 1e-12


@given(SPEEDUPS)
def test_without_a_margin_every_batch_has_its_best(speedups: list[list[float]]) -> None:
    for row, gamma in zip(speedups, fewest_ranges(speedups, 0.0, 0.0), strict=True):
        assert row[gamma] == max(row)


def test_by_hand() -> None:
    """Length 2 is within 1 % of the best of batches 1 to 3, and batch 4 does not pay."""
    speedups = [[1, 1.5, 1.499], [1, 1.49, 1.5], [1, 1.4, 1.5], [1, 1.009, 0.9]]
    assert fewest_ranges(speedups, 0.01, 0.01) == [2, 2, 2, 0]
    # Where less may be lost the first batch cannot have length 2: 1.499 / 1.5 = 0.9993.
    assert fewest_ranges(speedups, 0.0005, 0.0005) == [1, 2, 2, 1]
