"""The closed-form best gamma against exhaustive search, on a million random (alpha, c).

A third of the pairs is uniform, a third log-uniform towards alpha = 0 and 1 and c = 0, a third
close to alpha = c.  Where the two gammas differ, both EWIFs are worked out at 60 digits, because
the search cannot tell values apart that differ by less than a rounding.  Also checks gamma_max =
5000, where the closed form takes its other branch.

    python benchmarks/optimal_gamma_search.py [--pairs 1000000]
"""

from __future__ import annotations

import argparse
from typing import Any

import mpmath
import numpy as np

from specsim.optimizers.search import best_gamma


def draw(rng: np.random.Generator, size: int) -> tuple[Any, Any]:
    """Random (alpha, c), a third of each kind."""
    third = size // 3
    uniform = rng.random((2, size - 2 * third))
    small = 10.0 ** rng.uniform(-15, 0, (2, third))
    edge = np.where(rng.random(third) < 0.5, 1.0 - small[0], small[0])
    alpha = rng.random(third)
    near = alpha * (1.0 + rng.choice([-1.0, 1.0], third) * 10.0 ** rng.uniform(-16, -1, third))
    near[:100] = alpha[:100]
    return (
        np.concatenate([uniform[0], edge, alpha]),
        np.concatenate([uniform[1], small[1], near]),
    )


def searched(alpha: Any, c: Any, gamma_max: int) -> Any:
    """EWIF at every gamma, the first of the best.

    E[N] is summed term by term: the printed quotient is noise where alpha is close to one.
    """
    power, tokens, cost = np.ones(alpha.shape), np.ones(alpha.shape), np.ones(alpha.shape)
    best, gamma = np.ones(alpha.shape), np.zeros(alpha.shape, dtype=np.int64)
    for length in range(1, gamma_max + 1):
        power *= alpha
        tokens += power
        cost = 1.0 + length * c
        value = tokens / cost
        better = value > best
        gamma[better] = length
        best[better] = value[better]
    return gamma


def ewif(alpha: float, c: float, gamma: int) -> Any:
    """EWIF at the working precision of mpmath."""
    a = mpmath.mpf(alpha)
    tokens = (1 - a ** (gamma + 1)) / (1 - a) if a != 1 else mpmath.mpf(gamma + 1)
    return tokens / (1 + gamma * mpmath.mpf(c))


def compare(alpha: Any, c: Any, gamma_max: int) -> None:
    found, wanted = best_gamma(alpha, c, gamma_max), searched(alpha, c, gamma_max)
    differ = np.flatnonzero(found != wanted)
    worse, deficit, ties = 0, 0.0, 0
    for index in differ:
        a, cost = float(alpha[index]), float(c[index])
        ours, theirs = ewif(a, cost, int(found[index])), ewif(a, cost, int(wanted[index]))
        worse += ours < theirs
        ties += ours == theirs and found[index] > wanted[index]
        deficit = max(deficit, float(1 - ours / theirs))
    print(
        f"gamma_max {gamma_max}: {alpha.size} pairs, the same gamma on {alpha.size - differ.size}; "
        f"of the {differ.size} others the closed form is worse on {worse}, by at most "
        f"{deficit:.1e} relative, and takes the larger of a tie on {ties}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    pairs = parser.parse_args().pairs
    mpmath.mp.dps = 60
    rng = np.random.default_rng(8)
    alpha, c = draw(rng, pairs)
    compare(alpha, c, 64)
    compare(alpha[::500], c[::500], 5000)


if __name__ == "__main__":
    main()
