"""The frontier of what a card and a user get."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specsim.report.points import frontier

POINTS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=30)


@given(POINTS)
def test_the_frontier_is_of_points_that_no_other_beats(points: list[tuple[int, int]]) -> None:
    x, y = (np.array(each, dtype=float) for each in zip(*points, strict=True))
    slow = sorted(
        {
            (a, b)
            for a, b in points
            if not any((c >= a and d >= b) and (c, d) != (a, b) for c, d in points)
        }
    )
    found = frontier(x, y)
    assert list(zip(*(each.tolist() for each in found), strict=True)) == slow
