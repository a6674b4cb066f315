"""The best gamma of ten million (alpha, c): closed form against numpy's argmax over 0..64.

Shows, in one process and one run, how many times faster ``specsim.optimize`` is, and the peak
memory of the whole run.  The argmax goes through the pairs in slices; slices of 10,000 are its
fastest; larger ones are shown because they are the more obvious choice.  Both sides take turns
and count with their best, in processor time of the one thread, so that a busy machine does not
decide.

    python benchmarks/optimize_broadcast.py [--pairs 10000000]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import specsim

GAMMA_MAX = 64
ROUNDS = 4
TARGET_RATIO, TARGET_GIB = 25.0, 2.0


def argmax(alpha: Any, c: Any, rows: int) -> Any:
    """The obvious way: EWIF at every gamma, then numpy's argmax."""
    gamma = np.arange(GAMMA_MAX + 1.0)
    best = np.empty(alpha.size, dtype=np.int64)
    for start in range(0, alpha.size, rows):
        a, cost = alpha[start : start + rows, None], c[start : start + rows, None]
        value = (1 - a ** (gamma + 1)) / ((1 - a) * (1 + gamma * cost))
        best[start : start + rows] = np.argmax(value, axis=1)
    return best


def seconds(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The best time of each call over ``ROUNDS`` rounds of all of them."""
    best = dict.fromkeys(calls, np.inf)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    pairs = parser.parse_args().pairs
    rng = np.random.default_rng(20230519)
    alpha, c = rng.random(pairs), rng.random(pairs)

    def everything() -> None:
        result = specsim.optimize(alpha, c)
        for name in ("speedup", "operations_factor", "memory_factor", "oracle_speedup"):
            getattr(result, name)

    ours = {
        "optimize(alpha, c).gamma": lambda: specsim.optimize(alpha, c).gamma,
        "  and .speedup read": lambda: specsim.optimize(alpha, c).speedup,
        "  and every field read": everything,
    }
    for call in ours.values():
        call()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    slices = {f"argmax, {rows} rows at once": rows for rows in (10_000, 100_000)}
    theirs = {name: partial(argmax, alpha, c, rows) for name, rows in slices.items()}
    spent = seconds({**ours, **theirs})
    for name in ours:
        ratios = "  ".join(
            f"{spent[slow] / spent[name]:6.1f} x ({rows} rows)" for slow, rows in slices.items()
        )
        print(f"{name:28s} {spent[name] / pairs * 1e9:6.1f} ns a pair   {ratios}")
    for name in theirs:
        print(f"{name:28s} {spent[name] / pairs * 1e9:6.1f} ns a pair")

    same = int((specsim.optimize(alpha, c).gamma == argmax(alpha, c, 10_000)).sum())
    ratio = min(spent[name] for name in theirs) / spent["optimize(alpha, c).gamma"]
    print(f"same gamma: {same} of {pairs} pairs")
    print(f"ratio {ratio:.1f} (wanted {TARGET_RATIO:.0f})")
    print(f"peak memory {peak:.2f} GiB (at most {TARGET_GIB:.0f})")


if __name__ == "__main__":
    main()
