"""Traces from acceptances, and the slow twin of the replay."""

from __future__ import annotations

import numpy as np

from specsim.traces import Trace


def trace_of(*requests: list[float]) -> Trace:
    starts = np.concatenate([[0], np.cumsum([len(request) for request in requests])])
    return Trace(np.concatenate([np.asarray(r, dtype=float) for r in requests]), starts)


def slow_calls(acceptance: list[float], gamma: int) -> float:
    """The recursion of theory section 3, written as it stands there."""
    size = len(acceptance)
    start = [0.0] * (size + gamma + 2)
    start[0] = 1.0
    for s in range(size):
        alive = start[s]
        for n in range(gamma):
            if s + n >= size:
                break
            start[s + n + 1] += alive * (1 - acceptance[s + n])
            alive *= acceptance[s + n]
        else:
            start[s + gamma + 1] += alive
    return sum(start[:size])
