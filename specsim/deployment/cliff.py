"""Where step times jump: the largest CUDA graph, as seen from outside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from specsim.checks import Floats

Mask = npt.NDArray[np.bool_]

# A step that takes so many times what the law of the smaller ones says did not run as a graph.
JUMP = 1.5
# Steps that a law needs before a jump from it is one, and that must lie beyond the jump.
_BEFORE, _BEYOND = 3, 2


def find_cliff(
    tokens: Floats,
    seconds: Floats,
    smooth: Callable[[Mask], Floats],
) -> int | None:
    """Most tokens of a run before step times jump away from the law of the smaller runs.

    smooth : seconds of every run by the law that is fitted to the marked ones
    None where no jump to ``JUMP`` times the law is seen, or none that the next larger run shares.
    """
    everywhere = np.ones(tokens.size, dtype=bool)
    if np.abs(np.log(seconds / smooth(everywhere))).max() < np.log(JUMP) / 2:
        return None  # one law does for all, and the smaller runs alone do not tell of arithmetic
    sizes = np.unique(tokens)
    for before, size, after in zip(sizes, sizes[1:], sizes[2:], strict=False):
        known = tokens <= before
        here, there = tokens == size, tokens == after
        if known.sum() < _BEFORE or (~known).sum() < _BEYOND:
            continue
        # No need of a law where times do not rise.
        if np.median(seconds[here]) < JUMP * np.median(seconds[tokens == before]):
            continue
        ratio = seconds / smooth(known)
        if min(np.median(ratio[here]), np.median(ratio[there])) > JUMP:
            return int(before)
    return None
