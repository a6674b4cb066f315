"""``specsim.evaluate`` against mpmath at 50 digits, on points crowded at the edges.

1 - alpha runs log-uniformly from 1e-15 to 1 and so does alpha, c from 1e-15 to 10 and gamma from 1
to 10^6, the ends 0 and 1 included; the other prices change from group to group.  Prints the worst
relative error of each field over all points, and where it was.

    python benchmarks/numerics_mpmath.py [--points 100000]
"""

from __future__ import annotations

import argparse
from typing import Any

import mpmath
import numpy as np

import specsim
from specsim.optimizers.evaluation import FIGURES

FIELDS = FIGURES[1:-1]  # gamma and at_gamma_max are no numbers to be off
GROUPS = 20
WANTED = 1e-13


def edge_points(rng: np.random.Generator, size: int) -> tuple[Any, Any, Any]:
    """alpha, c and gamma, each log-uniform towards its ends, one in fifty exactly at an end."""
    small = 10.0 ** rng.uniform(-15, 0, size)
    alpha = np.where(rng.random(size) < 0.5, 1.0 - small, small)
    c = 10.0 ** rng.uniform(-15, 1, size)
    gamma = np.floor(10.0 ** rng.uniform(0, 6, size)).astype(np.int64)
    alpha[rng.random(size) < 0.01] = 1.0
    alpha[rng.random(size) < 0.01] = 0.0
    c[rng.random(size) < 0.02] = 0.0
    gamma[rng.random(size) < 0.02] = 0
    return alpha, c, gamma


def exact(alpha: float, c: float, gamma: int, prices: dict[str, float]) -> dict[str, Any]:
    """The fields from the papers' printed quotients, at the working precision of mpmath."""
    a, cost, one = mpmath.mpf(alpha), mpmath.mpf(c), mpmath.mpf(1)
    slope, extra = mpmath.mpf(prices["verify_slope"]), mpmath.mpf(prices["overhead"])
    tokens = (one - a ** (gamma + 1)) / (one - a) if a != 1 else one * (gamma + 1)
    call = one + gamma * (cost + slope) + (extra if gamma else 0)
    oracle_cost = (one - a) * (one + a * extra) + (cost + slope) * a
    return {
        "speedup": tokens / call,
        "tokens_per_call": tokens,
        "operations_factor": (gamma * mpmath.mpf(prices["c_ops"]) + gamma + 1) / tokens,
        "memory_factor": (1 + gamma * mpmath.mpf(prices["c_memory"])) / tokens,
        "oracle_speedup": max(one, one / oracle_cost) if oracle_cost else mpmath.inf,
    }


def worst_errors(points: int, seed: int) -> dict[str, tuple[float, str]]:
    """Worst relative error of each field, and the point where it was found."""
    rng = np.random.default_rng(seed)
    worst = dict.fromkeys(FIELDS, (0.0, "nowhere"))
    for group in range(GROUPS):
        alpha, c, gamma = edge_points(rng, points // GROUPS)
        names = ("c_ops", "c_memory", "verify_slope", "overhead")
        # The first group is the papers' case.
        prices = {name: float(rng.random()) if group else 0.0 for name in names}
        result = specsim.evaluate(alpha, c, gamma, **prices)
        values = np.stack([getattr(result, name) for name in FIELDS], axis=1)
        for a, cost, length, row in zip(
            alpha.tolist(), c.tolist(), gamma.tolist(), values.tolist(), strict=True
        ):
            wanted = exact(a, cost, length, prices)
            for name, value in zip(FIELDS, row, strict=True):
                error = 0.0 if value == wanted[name] else float(abs(value / wanted[name] - 1))
                # Written so that a nan counts as the worst of all.
                if not error <= worst[name][0]:
                    worst[name] = error, f"alpha={a!r} c={cost!r} gamma={length} {prices}"
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100_000)
    points = parser.parse_args().points
    mpmath.mp.dps = 50
    worst = worst_errors(points, seed=50)
    for name, (error, place) in worst.items():
        print(f"{name:18s} {error:.2e} at {place}")
    largest = max(error for error, _ in worst.values())
    print(f"worst relative error {largest:.2e} over {points} points (at most {WANTED:.0e} wanted)")


if __name__ == "__main__":
    main()
