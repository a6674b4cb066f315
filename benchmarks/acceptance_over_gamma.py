"""How well do counts at one draft length say the tokens per call at another?

Texts whose figures are known at every length (the gap law, which is the exact replay): traces of
the embedded family in tests/reference/embedded_acceptance.csv, and simulated text whose log odds
of acceptance are an autoregressive series.  Counts are what an engine would see at the known
lengths: without noise, as from 2000 rounds, and drawn, 2000 rounds each.  Printed is the error of
tokens per call at the other lengths: root mean square and the largest.

* cut or hold: the longest measured curve, cut; or its last rate held on
* middle: of the bounds of all mixtures
* beta: the likeliest Beta law of the token share alone
* chosen: ``specsim.acceptance_from_counts`` for a draft model, with how often its interval held

Run from the repository root: python benchmarks/acceptance_over_gamma.py
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.special import expit

from specsim.checks import Floats
from specsim.counts.drafts import DraftCounts
from specsim.extrapolation import GapLaw, acceptance_from_counts
from specsim.extrapolation.bounds import mixture_bounds
from specsim.extrapolation.fits import fit_mixture, likeliest_beta
from specsim.extrapolation.mixtures import TokenMixture
from specsim.traces import Trace

TRACES = Path(__file__).parents[1] / "tests" / "reference" / "embedded_acceptance.csv"
QUESTIONS = (((5,), (1, 2, 3)), ((8,), (1, 3)), ((1, 2, 3), (5,)), ((3,), (1, 5)), ((1,), (3,)))
ROUNDS, LEVEL = 2000, 0.9


def embedded() -> dict[str, Trace]:
    """By draft and temperature."""
    texts: dict[str, list[Floats]] = defaultdict(list)
    with TRACES.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            digits = [int(each, 36) / 1295 for each in row["acceptance"].split()]
            texts[f"{row['draft']} at {row['temperature']}"].append(np.array(digits))
    return {name: trace_of(found) for name, found in texts.items()}


def trace_of(texts: list[Floats]) -> Trace:
    return Trace(np.concatenate(texts), np.cumsum([0, *map(len, texts)]))


def simulated(tokens: int = 100_000) -> Iterator[tuple[str, Trace]]:
    """Log odds of some mean and spread that remember the token before at rate ``memory``."""
    random = np.random.default_rng(0)
    for memory, spread, level in (
        (0.0, 3.0, 1.0),
        (0.5, 2.0, 1.5),
        (0.9, 1.5, 1.0),
        (0.99, 1, 0.5),
    ):
        steps = random.standard_normal(tokens) * np.sqrt(1 - memory**2)
        series = np.empty(tokens)
        series[0] = steps[0]
        for place in range(1, tokens):
            series[place] = memory * series[place - 1] + steps[place]
        yield f"memory {memory:g}", trace_of([expit(level + spread * series)])


def counts_of(law: GapLaw, gamma: int, random: np.random.Generator | None) -> DraftCounts:
    curve = law.survival(gamma)
    stopped = ROUNDS * -np.diff(np.append(curve, 0.0))
    if random is not None:
        stopped = random.multinomial(ROUNDS, stopped / stopped.sum()).astype(float)
    reached = np.cumsum(stopped[::-1])[::-1][1:]
    return DraftCounts(gamma, ROUNDS, float(reached.sum()), ROUNDS * gamma, tuple(reached.tolist()))


def candidates(counts: list[DraftCounts], gamma: int) -> dict[str, float]:
    """Tokens per call at gamma, by each."""
    longest = np.array(counts[-1].reached) / counts[-1].rounds
    before = longest[-2] if longest.size > 1 else 1.0
    held = longest[-1] * (longest[-1] / before) ** np.arange(1, max(gamma - longest.size, 0) + 1)
    bounds = mixture_bounds(fit_mixture(counts), counts, gamma, LEVEL)
    rates = likeliest_beta(counts)
    beta = TokenMixture(rates, np.ones(rates.size))
    return {
        "cut or hold": 1 + float(longest[:gamma].sum() + held.sum()),
        "middle": (bounds.low + bounds.high) / 2,
        "beta": float(beta.tokens_per_call(gamma)[-1]),
        "chosen": float(acceptance_from_counts(counts, heads=False).tokens_per_call(gamma)[-1]),
    }


def main() -> None:
    laws = {name: GapLaw.of_trace(text) for name, text in [*embedded().items(), *simulated()]}
    for drawn in (False, True):
        random = np.random.default_rng(1) if drawn else None
        print(f"\n{ROUNDS} rounds, {'drawn' if drawn else 'without noise'}: error in percent")
        for known, asked in QUESTIONS:
            off: dict[str, list[float]] = defaultdict(list)
            inside = []
            for law in laws.values():
                counts = [counts_of(law, gamma, random) for gamma in known]
                for gamma in asked:
                    truth = float(law.tokens_per_call(gamma)[-1])
                    for name, tokens in candidates(counts, gamma).items():
                        off[name].append(100 * (tokens / truth - 1))
                    interval = acceptance_from_counts(counts, heads=False).interval(gamma)
                    inside.append(interval.low <= truth <= interval.high)
            figures = "  ".join(
                f"{name} {np.sqrt(np.mean(np.square(each))):.2f} (to {np.abs(each).max():.1f})"
                for name, each in off.items()
            )
            print(f"K = {known} to {asked}: {figures}  held {np.mean(inside):.0%}")


if __name__ == "__main__":
    main()
