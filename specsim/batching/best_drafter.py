"""Which of several drafters is best, by ranges of batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from specsim.batching.point import BatchPoint
from specsim.batching.schedule import Plan, range_words
from specsim.batching.workload import BatchWorkload
from specsim.engines.schedule import Schedule


@dataclass(frozen=True)
class BestRange:
    """Neighbours among the batches that were looked at with one best drafter.

    drafter : None where none gains the margin
    lengths : the first and the last batch of neighbours with one best draft length, and that
    """

    drafter: str | None
    lengths: Schedule

    @property
    def first(self) -> int:
        """The smallest batch."""
        return self.lengths[0][0]

    @property
    def last(self) -> int:
        """The largest."""
        return self.lengths[-1][1]


@dataclass(frozen=True)
class BestDrafters:
    """At one context."""

    context: int
    ranges: tuple[BestRange, ...]

    def row(self) -> dict[str, Any]:
        """For programs."""
        return {
            "context": self.context,
            "ranges": [
                {
                    "first_batch": each.first,
                    "last_batch": each.last,
                    "drafter": each.drafter,
                    "lengths": [
                        {"first_batch": first, "last_batch": last, "gamma": gamma}
                        for first, last, gamma in each.lengths
                    ],
                }
                for each in self.ranges
            ],
        }

    @property
    def sentence(self) -> str:
        """``context 512: best by batch: eagle3 (gamma 8 at 1-16, 6 at 32), no drafter at 64``."""
        words = []
        for each in self.ranges:
            if each.drafter is None:
                words.append(f"no drafter at {range_words(each.first, each.last)}")
                continue
            at = [f"{gamma} at {range_words(first, last)}" for first, last, gamma in each.lengths]
            words.append(f"{each.drafter} (gamma {', '.join(at)})")
        return f"context {self.context:,}: best by batch: {', '.join(words)}"


def best_drafters(
    settings: Sequence[tuple[BatchWorkload, Sequence[Plan]]],
) -> tuple[BestDrafters, ...]:
    """The drafter with the best speedup at every batch that was looked at, of equals the first;
    nothing where there are no drafters to compare, or where one draft length or none was asked for.
    """
    if not any(workload.gamma_max for workload, _ in settings):
        return ()
    named = [(workload.drafter, plans) for workload, plans in settings]
    if len(named) < 2 or any(name is None for name, _ in named):
        return ()
    by_cell: dict[int, dict[int, list[tuple[str, BatchPoint]]]] = {}
    for name, plans in named:
        for planned in plans:
            if planned.gamma is not None:
                return ()
            cells = by_cell.setdefault(planned.context, {})
            for point in planned.points:
                cells.setdefault(point.batch, []).append((str(name), point))
    return tuple(
        BestDrafters(context, tuple(_ranges(_of_all(cells))))
        for context, cells in sorted(by_cell.items())
    )


def _of_all(
    cells: dict[int, list[tuple[str, BatchPoint]]],
) -> dict[int, list[tuple[str, BatchPoint]]]:
    """Batches at which every drafter was looked at that was looked at on both sides of them: where
    there are many, each drafter is looked at where its own draft length changes.
    """
    batches: dict[str, list[int]] = {}
    for batch, found in sorted(cells.items()):
        for name, _ in found:
            batches.setdefault(name, []).append(batch)
    spans = {name: (several[0], several[-1]) for name, several in batches.items()}

    def whole(batch: int, found: list[tuple[str, BatchPoint]]) -> bool:
        spanning = {name for name, (first, last) in spans.items() if first <= batch <= last}
        return spanning == {name for name, _ in found}

    return {batch: found for batch, found in cells.items() if whole(batch, found)}


def _ranges(cells: dict[int, list[tuple[str, BatchPoint]]]) -> list[BestRange]:
    best: list[tuple[str | None, BatchPoint]] = []
    for _, found in sorted(cells.items()):
        name, point = max(found, key=lambda each: each[1].speedup)
        best.append((name if point.gamma else None, point))
    ranges = []
    for drafter, group in groupby(best, key=lambda each: each[0]):
        lengths: Schedule = []
        for gamma, alike in groupby((point for _, point in group), key=lambda each: each.gamma):
            batches = [point.batch for point in alike]
            lengths.append((batches[0], batches[-1], gamma))
        ranges.append(BestRange(drafter, lengths))
    return ranges
