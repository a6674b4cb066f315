"""What a paper says, in how many cases it holds here, and the intervals that decide it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from specsim.checks import Floats, Ints
from specsim.intervals import Bootstrap, Interval


def mean_over_positions(values: Floats, starts: Ints) -> Interval[float]:
    """The mean with its 95 % interval, by bootstrap over the requests that begin at ``starts``."""
    sums, counts = np.add.reduceat(values, starts[:-1]), np.diff(starts)
    bootstrap = Bootstrap(len(sums))
    return bootstrap.around(float(values.mean()), bootstrap.ratios(sums, counts))


def beyond(low: float, high: float, mark: float) -> bool | None:
    """Whether an interval lies above a mark; None, which is open, where it holds the mark."""
    return None if low <= mark <= high else low > mark


# Where a paper says something, what it says, whether that holds in one case (None where that is
# open), and what was found.
Case = tuple[str, str, bool | None, str]


def counted(cases: Iterable[Case]) -> list[dict[str, Any]]:
    """A row for each claim: in how many of its cases it holds here, and what was found."""
    claims: dict[tuple[str, str], list[tuple[bool | None, str]]] = {}
    for source, says, holds, found in cases:
        claims.setdefault((source, says), []).append((holds, found))
    rows = []
    for (source, says), found_here in claims.items():
        verdicts = [holds for holds, _ in found_here]
        unsure = sum(holds is None for holds in verdicts)
        held = f"{sum(holds is True for holds in verdicts)} of {len(verdicts)}"
        rows.append(
            {
                "claim": says,
                "holds": held + (f", {unsure} open" if unsure else ""),
                "here": "; ".join(found for _, found in found_here),
                "source": source,
            }
        )
    return rows
