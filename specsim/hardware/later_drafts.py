"""What the draft runs behind the first of a block take, by their place in it.

A run of the target throws what the drafter needs out of the processor's caches, and every run of
the drafter brings some of it back, so that run i of a block takes

    t(i) = A (1 + fading / i),    i = 2, 3, ...

and those of a block of K drafts take A (1 + fading x(K)) each in the mean, with x(K) the mean of
1 / i.  On a CPU run 2 takes a third longer than run 8 (benchmarks/draft_places.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from specsim.checks import Floats
from specsim.hardware.repeats import held
from specsim.hardware.run_time_fit import kind_of, ratios
from specsim.profiles import RunTime

# The steepest that is believed: run 2 takes twice as long as later ones.
_STEEPEST = 2.0


def fading_of(rows: Sequence[RunTime]) -> float:
    """By the least squares of all repeats whose draft length is told, outliers held, from 0 to 2: 0
    where none or one length is told, or where later runs are no faster.
    """
    told = [row for row in rows if _tells(row)]
    lengths = np.array([gamma for row in told for gamma in row.gammas])
    if np.unique(lengths).size < 2:
        return 0.0
    weights = np.array([each for row in told for each in row.runs or [1] * len(row.seconds)], float)
    values = np.array([each for row in told for each in ratios(row)])
    for each in np.unique(lengths):
        alike = lengths == each
        values[alike] = held(values[alike], weights[alike])
    places = [mean_inverse_place(each) for each in lengths]
    columns = np.column_stack([np.ones(lengths.size), places])
    root = np.sqrt(weights)
    (level, slope), *_ = np.linalg.lstsq(columns * root[:, None], values * root, rcond=None)
    return float(min(max(slope / level, 0.0), _STEEPEST)) if level > 0 else _STEEPEST


def without_fading(rows: Sequence[RunTime], fading: float) -> list[RunTime]:
    """The rows with A in the place of what such runs took; those of no told draft length stay."""
    found = []
    for row in rows:
        if _tells(row):
            shares = zip(row.seconds, row.gammas, strict=True)
            row = replace(row, seconds=[s / times_late(gamma, fading) for s, gamma in shares])
        found.append(row)
    return found


def times_late(gamma: int, fading: float) -> float:
    """How many times as long as A the later draft runs of a block of ``gamma`` drafts take."""
    return 1.0 + fading * mean_inverse_place(gamma)


def mean_inverse_place(gamma: int) -> float:
    """x(K), the mean of 1 / i over i = 2 .. K; 1/2 where there is no such run."""
    places: Floats = 1.0 / np.arange(2, max(gamma, 2) + 1)
    return float(places.mean())


def _tells(row: RunTime) -> bool:
    return kind_of(row) == "next draft" and bool(row.gammas)
