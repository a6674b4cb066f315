"""What the first draft run of a block takes, by the draft length of the block.

The drafter finds in the processor's caches what the target's run before it left there, and how much
that is depends on how wide that run was: by up to a few percent the first run of a block of one
draft takes longer than those of other blocks.  It is another figure on another processor and has no
law, so every draft length has one of its own, drawn to what its neighbours say as far as its
repeats scatter (``neighbours``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from specsim.checks import Floats
from specsim.hardware.neighbours import interpolated, smoothing_of
from specsim.hardware.repeats import Repeats, held, spread_of_means
from specsim.hardware.run_time_fit import kind_of, of_length, ratios
from specsim.profiles import RunTime


def by_length(rows: Sequence[RunTime]) -> dict[int, float]:
    """How many times as long as in the mean over all of them the first draft runs of each draft
    length take; empty where none or one length is told.

    Cells differ as well, and not every length is timed in each, so that shares of cells and of
    lengths are found together, by least squares of the logarithms, outliers held.
    """
    told = [row for row in rows if _tells(row)]
    passes, lengths, cells, values, weights = _repeats(told)
    known, where = np.unique(lengths, return_inverse=True)
    if known.size < 2:
        return {}
    columns = np.hstack([cells[:, None] == range(len(told)), where[:, None] == range(known.size)])
    root = np.sqrt(weights)[:, None]
    shares, *_ = np.linalg.lstsq(columns * root, values * root[:, 0], rcond=None)
    left = values - shares[cells]
    repeats = [
        Repeats.of(*(each[where == at].tolist() for each in (left, passes, weights)))
        for at in range(known.size)
    ]
    found = np.array([each.mean for each in repeats])
    places = known[:, None].astype(float)
    smoothing = smoothing_of(places, found, spread_of_means(repeats), degree=1)
    if smoothing.any():
        found = interpolated(places, found, smoothing, degree=1)(places)
    times = np.exp(found)
    times /= np.average(times, weights=np.bincount(where, weights=weights))
    return dict(zip(known.tolist(), times.tolist(), strict=True))


def as_in_the_mean(rows: Sequence[RunTime], times: Mapping[int, float]) -> list[RunTime]:
    """The rows with what first draft runs take in the mean over draft lengths in the place of what
    they took; those of no told draft length stay.
    """
    found = []
    for row in rows:
        if times and _tells(row):
            shares = zip(row.seconds, row.gammas, strict=True)
            row = replace(row, seconds=[s / times[gamma] for s, gamma in shares])
        found.append(row)
    return found


def _repeats(rows: Sequence[RunTime]) -> tuple[Floats, ...]:
    """Pass, draft length, row, logarithm of the ratio and number of runs of every repeat; outliers
    of a length in a row held.
    """
    found: list[Floats] = []
    for at, row in enumerate(rows):
        for part in (of_length(row, gamma) for gamma in sorted(set(row.gammas))):
            size = len(part.seconds)
            counted = np.array(part.runs or [1] * size, dtype=float)
            values = held(np.log(ratios(part)), counted)
            passes = part.passes or [0] * size
            found.append(np.array([passes, part.gammas, [at] * size, values, counted]))
    passes, lengths, cells, values, weights = np.hstack([np.empty((5, 0)), *found])
    return passes.astype(int), lengths.astype(int), cells.astype(int), values, weights


def _tells(row: RunTime) -> bool:
    return kind_of(row) == "first draft" and bool(row.gammas)
