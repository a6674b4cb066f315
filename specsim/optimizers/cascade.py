"""Search over the matrix of lengths and the lenience of a full cascade (Chen23 section 6.1).

Small grids are searched exhaustively.  Larger ones by successive halving of the grid's stride and
of the number of survivors, ending in a climb to a point that no single step improves: a local
optimum, which the result says.  (The paper halves over amounts of data, because it measures; the
law is exact, so here nothing is gained by scoring a candidate less well.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from specsim.checks import InvalidArgumentError
from specsim.cost import Cost
from specsim.predict import renewal
from specsim.schemes.full_cascade import FullCascade
from specsim.schemes.known import Acceptances

EXHAUSTIVE = 4096  # candidates; one to a few milliseconds each
SURVIVORS = 64  # of the coarsest grid

_Point = tuple[int, ...]


@dataclass(frozen=True)
class FoundCascade:
    """The best cascade met.

    scheme : with its lengths
    lenience : the one chosen
    speedup : stationary; it is SWI where the cost has draft costs and nothing else
    candidates : how many the grid holds
    evaluated : how many of them were evaluated
    exhaustive : whether that was all of them, so that the optimum is global
    """

    scheme: FullCascade
    lenience: float
    speedup: float
    candidates: int
    evaluated: int
    exhaustive: bool


def search(
    drafters: Sequence[str],
    acceptances: Mapping[float, Acceptances],
    lengths: Sequence[Sequence[Sequence[int]]],
    cost: Cost,
    exhaustive: int = EXHAUSTIVE,
) -> FoundCascade:
    """The fastest cascade of a grid.

    drafters : as in FullCascade, best first, the copying one last
    acceptances : for each lenience to try, those under it, in the order of FullCascade.pairs
    lengths : in the shape of FullCascade.lengths, for each entry the values to try
    cost : prices; Cost(drafts=...) makes the speedup SWI
    exhaustive : most candidates that are all evaluated
    """
    if not acceptances or any(len(values) == 0 for row in lengths for values in row):
        raise InvalidArgumentError("acceptances and every entry of lengths need a value to try")
    grid = _Grid(tuple(drafters), dict(acceptances), lengths, cost)
    whole_grid = grid.size <= exhaustive
    best = max(grid.points(), key=grid.score) if whole_grid else _halve(grid)
    scheme, lenience = grid.scheme(best)
    return FoundCascade(scheme, lenience, grid.score(best), grid.size, len(grid.scores), whole_grid)


class _Grid:
    """Candidates as points of whole indices, the last one into the leniences; remembers scores."""

    def __init__(
        self,
        drafters: tuple[str, ...],
        acceptances: dict[float, Acceptances],
        lengths: Sequence[Sequence[Sequence[int]]],
        cost: Cost,
    ) -> None:
        self.drafters, self.acceptances, self.cost = drafters, acceptances, cost
        self.leniences = sorted(acceptances)
        self.rows = [len(row) for row in lengths]
        self.values = [sorted(set(values)) for row in lengths for values in row]
        self.axes = [len(values) for values in self.values] + [len(self.leniences)]
        self.size = prod(self.axes)
        self.scores: dict[_Point, float] = {}

    def points(self, stride: int = 1) -> Iterator[_Point]:
        """Every ``stride``-th index of each axis and its last one; every lenience."""
        *sizes, leniences = self.axes
        coarse = [sorted({*range(0, size, stride), size - 1}) for size in sizes]
        return product(*coarse, range(leniences))

    def around(self, point: _Point, stride: int) -> Iterator[_Point]:
        """The point, and those one stride away along one axis (one index, for the lenience)."""
        yield point
        for axis, size in enumerate(self.axes):
            step = 1 if axis == len(self.axes) - 1 else stride
            for index in (point[axis] - step, point[axis] + step):
                if 0 <= index < size:
                    yield (*point[:axis], index, *point[axis + 1 :])

    def scheme(self, point: _Point) -> tuple[FullCascade, float]:
        *indices, chosen = point
        flat = iter([values[i] for values, i in zip(self.values, indices, strict=True)])
        lengths = tuple(tuple(next(flat) for _ in range(size)) for size in self.rows)
        lenience = self.leniences[chosen]
        return FullCascade(self.drafters, lengths), lenience

    def score(self, point: _Point) -> float:
        if point not in self.scores:
            scheme, lenience = self.scheme(point)
            self.scores[point] = renewal.speedup(scheme.law(self.acceptances[lenience]), self.cost)
        return self.scores[point]


def _halve(grid: _Grid) -> _Point:
    stride = max(1, (max(grid.axes) - 1) // 2)
    survivors = sorted(grid.points(stride), key=grid.score, reverse=True)[:SURVIVORS]
    while stride > 1:
        stride //= 2
        near = {point for survivor in survivors for point in grid.around(survivor, stride)}
        keep = max(1, len(survivors) // 2)
        survivors = sorted(near, key=lambda p: (-grid.score(p), p))[:keep]
    return max((_climb(grid, survivor) for survivor in survivors), key=grid.score)


def _climb(grid: _Grid, point: _Point) -> _Point:
    while True:
        best = max(grid.around(point, 1), key=grid.score)
        if grid.score(best) <= grid.score(point):
            return point
        point = best
