"""Expected runs of models: how many, how wide, and whether another model ran just before."""

from __future__ import annotations

from typing import NamedTuple


class RunKind(NamedTuple):
    """Runs of one model; those ``after_other_model`` follow another model's and so take longer."""

    model: str
    after_other_model: bool


class RunCounts:
    """Expected runs, and expected positions read in them, by kind; additive."""

    def __init__(self) -> None:
        self.counts: dict[RunKind, float] = {}
        self.positions: dict[RunKind, float] = {}

    def add(self, kind: RunKind, count: float, positions: float) -> None:
        self.counts[kind] = self.counts.get(kind, 0.0) + count
        self.positions[kind] = self.positions.get(kind, 0.0) + positions

    def merge(self, other: RunCounts, weight: float = 1.0) -> None:
        """Add all of another tally, times a weight."""
        if weight:
            for kind, count in other.counts.items():
                self.add(kind, weight * count, weight * other.positions[kind])

    def runs(self, model: str) -> float:
        """Expected runs of one model."""
        return sum(count for kind, count in self.counts.items() if kind.model == model)

    def read(self, model: str) -> float:
        """Expected positions that one model reads."""
        return sum(count for kind, count in self.positions.items() if kind.model == model)
