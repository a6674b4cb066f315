"""Traces from acceptances, and the slow twin of the replay, with which its benchmark compares."""

from __future__ import annotations

import numpy as np

from benchmarks.replay import slow_calls
from specsim.traces import Trace

__all__ = ["slow_calls", "trace_of"]


def trace_of(*requests: list[float]) -> Trace:
    starts = np.concatenate([[0], np.cumsum([len(request) for request in requests])])
    return Trace(np.concatenate([np.asarray(r, dtype=float) for r in requests]), starts)
