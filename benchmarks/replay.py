"""Replay of a trace of 1,000,000 tokens for gamma 1..16: seconds, and against the obvious loop.

    python benchmarks/replay.py

Prints, for one long request and for many short ones, the time of ``specsim.predict.replay``
and how many times as long the recursion takes when written as it stands in symbols (measured on a
slice of the trace, since it is slow, and scaled).
"""

from __future__ import annotations

import time

import numpy as np

from specsim.predict.replay.fixed_gamma import replay
from specsim.traces import Trace

TOKENS, SLICE, GAMMAS = 1_000_000, 20_000, range(1, 17)


def slow_calls(acceptance: list[float], gamma: int) -> float:
    """Expected calls of one request: the recursion of theory section 3, written as it stands."""
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


def main() -> None:
    acceptance = np.random.default_rng(0).beta(2, 1, TOKENS)
    begin = time.perf_counter()
    part = acceptance[:SLICE].tolist()
    wanted = [slow_calls(part, gamma) for gamma in GAMMAS]
    slow = (time.perf_counter() - begin) * TOKENS / SLICE
    fast_calls = [
        r.total_calls for r in replay(Trace(acceptance[:SLICE], np.array([0, SLICE])), GAMMAS)
    ]
    error = max(abs(a / b - 1) for a, b in zip(fast_calls, wanted, strict=True))
    print(f"largest relative difference from the obvious loop: {error:.1e}")
    for requests in (1, 10_000):
        trace = Trace(acceptance, np.linspace(0, TOKENS, requests + 1).astype(np.int64))
        seconds = []
        for _ in range(5):
            begin = time.perf_counter()
            replay(trace, GAMMAS)
            seconds.append(time.perf_counter() - begin)
        print(
            f"{requests:6} requests: {min(seconds):.3f} s best, {np.median(seconds):.3f} s median; "
            f"the obvious loop takes {slow / np.median(seconds):.0f} times as long"
        )


if __name__ == "__main__":
    main()
