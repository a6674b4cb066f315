"""Expected runs of models."""

from __future__ import annotations


class RunCounts:
    """Expected runs by model; additive."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}

    def add(self, model: str, count: float) -> None:
        self.counts[model] = self.counts.get(model, 0.0) + count

    def merge(self, other: RunCounts, weight: float = 1.0) -> None:
        """Add all of another tally, times a weight."""
        if weight:
            for model, count in other.counts.items():
                self.add(model, weight * count)

    def runs(self, model: str) -> float:
        """Expected runs of one model."""
        return self.counts.get(model, 0.0)
