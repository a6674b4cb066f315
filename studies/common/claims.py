"""What a paper says, in how many cases it holds here, and the intervals that decide it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from specsim.checks import Floats, Ints
from specsim.intervals import Bootstrap, Interval, around


def mean_over_positions(values: Floats, starts: Ints) -> Interval[float]:
    """The mean with its 95 % interval, by bootstrap over the requests that begin at ``starts``."""
    sums, counts = np.add.reduceat(values, starts[:-1]), np.diff(starts)
    return around(float(values.mean()), Bootstrap(len(sums)).ratios(sums, counts))


def beyond(low: float, high: float, mark: float) -> bool | None:
    """Whether an interval lies above a mark; None, which is open, where it holds the mark."""
    return None if low <= mark <= high else low > mark


def claim(source: str, says: str, cases: Iterable[tuple[bool | None, str]]) -> list[dict[str, Any]]:
    """What a paper says, in how many cases it holds here, and the cases; nothing without any.

    cases : whether it holds, None where that is open, and what was found
    """
    listed = list(cases)
    if not listed:
        return []
    held = sum(verdict is True for verdict, _ in listed)
    unsure = sum(verdict is None for verdict, _ in listed)
    return [
        {
            "claim": says,
            "holds": f"{held} of {len(listed)}" + (f", {unsure} open" if unsure else ""),
            "here": "; ".join(text for _, text in listed),
            "source": source,
        }
    ]
