"""Blocks per second of Monte Carlo on one core: long runs, and finite requests block by block.

A long run draws how often each outcome occurred, so its rate grows with its length and says little
about drawing blocks; it is the rate of the question "what is the long-run speed".  The rate of
finite requests is the honest one for block after block.  The yardstick in the same process is a
plain Python loop that tosses one coin per draft token.

    OMP_NUM_THREADS=1 python benchmarks/monte_carlo.py
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np

from specsim.cost import Cost
from specsim.predict import monte_carlo
from specsim.schemes import (
    Acceptances,
    AdaptiveHeuristic,
    BigLittle,
    FallbackRollback,
    SpeculativeDecoding,
    VerticalCascade,
)

COST = Cost({"draft": 0.05, "small": 0.05, "outer": 0.1, "inner": 0.02})
BLOCKS = 10_000_000
TOKENS, REQUESTS, REPEATS = 200, 20_000, 5
# What the project promises for a long run, in blocks per second and core.
PROMISED = {"speculative": 50e6, "bild": 5e6, "two-level cascade": 5e6}


def seconds(work: Callable[[], object]) -> float:
    """Median CPU time of some repeats, after one to warm up."""
    work()
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return float(np.median(taken))


def python_loop(blocks: int) -> int:
    rng, tokens = random.Random(0), 0
    for _ in range(blocks):
        accepted = 0
        while accepted < 5 and rng.random() < 0.8:
            accepted += 1
        tokens += accepted + 1
    return tokens


def main() -> None:
    cascade = VerticalCascade(("outer", "inner"), 4, steps=(2,))
    laws = {
        "speculative": SpeculativeDecoding(5).law(0.8),
        "bild": BigLittle().law(FallbackRollback(0.1, 0.05)),
        "two-level cascade": cascade.law(Acceptances.of_pairs(0.8, 0.7)),
    }
    loop = 200_000 / seconds(lambda: python_loop(200_000))
    print(f"{'':20}{'Mblocks/s':>12}{'promised':>10}{'x Python loop':>15}")
    print(f"{'Python loop':20}{loop / 1e6:12.2f}{'':10}{1:15.0f}")
    print(f"long run of {BLOCKS:,} blocks")
    for name, law in laws.items():
        rng = np.random.default_rng(0)
        rate = BLOCKS / seconds(
            lambda law=law, rng=rng: monte_carlo.simulate(law, COST, rng, BLOCKS)
        )
        report(name, rate, loop, PROMISED[name])
    print(f"{REQUESTS:,} requests of {TOKENS} tokens, block by block")
    sources = {**laws, "adaptive heuristic": AdaptiveHeuristic().source(0.8)}
    for name, source in sources.items():
        calls = monte_carlo.simulate_requests(
            source, COST, np.random.default_rng(0), TOKENS, REQUESTS
        ).calls.sum()
        rng = np.random.default_rng(0)
        taken = seconds(
            lambda source=source, rng=rng: monte_carlo.simulate_requests(
                source, COST, rng, TOKENS, REQUESTS
            )
        )
        report(name, float(calls) / taken, loop)


def report(name: str, rate: float, loop: float, promised: float | None = None) -> None:
    wanted = f"{promised / 1e6:.0f}" if promised else ""
    print(f"  {name:18}{rate / 1e6:12.1f}{wanted:>10}{rate / loop:15.0f}")


if __name__ == "__main__":
    main()
