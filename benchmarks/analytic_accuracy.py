"""How near the analytic mode of serving is to the simulator, over random set-ups.

    python benchmarks/analytic_accuracy.py [SET-UPS]

Every set-up has random costs of a step, a scheduler that is random in what it allows, drafts or
none, and lengths of random laws.  Mean and 99th percentile of TPOT and TTFT are taken at a random
load below 90 % of the capacity, and the throughput where twice as many requests come as it can
serve.  Printed are medians and ninth deciles of the relative errors, of all set-ups and of those of
which the analytic mode has no doubts.  The simulated figures have noise of their own, of 1 % or so,
percentiles of more.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.analytic.of_setup import replica_of
from specsim.serving.costs.coefficients import coefficients
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.vllm import VllmEngine
from specsim.serving.requests import Requests
from specsim.serving.simulation import run

_REQUESTS = 6000
_WARMUP = 0.15

_FIGURES = ("tpot_mean", "ttft_mean", "tpot_p99", "ttft_p99")


def setup(seed: int) -> tuple[float, ...]:
    """Relative errors of the figures and of the throughput, and whether there were doubts."""
    random = np.random.default_rng(seed)

    def between(low: float, high: float) -> float:
        return float(np.exp(random.uniform(np.log(low), np.log(high))))

    gamma = int(random.integers(0, 6))
    model = coefficients(
        step_ms=between(3, 25),
        token_us=between(3, 60),
        context_token_ns=between(5, 200),
        sequence_us=between(1, 30),
        host_ms=between(0.2, 3),
        draft_run_ms=between(0.3, 3),
    )
    engine = VllmEngine(
        "0.33.0",
        num_gpu_blocks=500_000,
        max_num_batched_tokens=int(random.choice([2048, 4096, 8192])),
        max_num_seqs=int(random.choice([32, 64, 128, 256])),
        enable_prefix_caching=False,
        async_scheduling=bool(random.integers(2)),
    )
    drafts = DraftPolicy.fixed(gamma) if gamma else DraftPolicy.off()
    alpha = random.uniform(0.4, 0.95)
    acceptance = RoundAcceptance.law(alpha ** np.arange(1, 6)) if gamma else None
    prompt, output = between(50, 2000), between(30, 400)
    sigma = random.uniform(0.0, 0.9, 2)
    normal = random.standard_normal((2, _REQUESTS))
    lengths = [
        np.clip(np.rint(mean * np.exp(s * z - s**2 / 2)), 2, 16_000).astype(np.int64)
        for mean, s, z in zip((prompt, output), sigma, normal, strict=True)
    ]
    unit = np.cumsum(random.standard_exponential(_REQUESTS))

    def requests(rate: float) -> Requests:
        return Requests(unit / rate, *lengths)

    replica = replica_of(requests(1.0), engine, model, drafts, acceptance)
    load = random.uniform(0.1, 0.9)
    rate = load * replica.capacity
    estimate = replica.at(rate)
    seen = run(requests(rate), engine, model, drafts, acceptance, seed=seed, keep=())
    counted = slice(int(_WARMUP * _REQUESTS), None)
    tpot, ttft = seen.tpot_s[counted], seen.ttft_s[counted]
    simulated = {
        "tpot_mean": tpot.mean(),
        "ttft_mean": ttft.mean(),
        "tpot_p99": np.percentile(tpot, 99),
        "ttft_p99": np.percentile(ttft, 99),
    }
    full = run(
        requests(2 * replica.capacity), engine, model, drafts, acceptance, seed=seed, keep=()
    )
    ends = np.sort(full.last_token_s)
    first, last = int(0.2 * _REQUESTS), int(0.8 * _REQUESTS)
    throughput = (last - first) / (ends[last] - ends[first])
    errors = (estimate.figures[name] / simulated[name] - 1.0 for name in _FIGURES)
    return (*errors, replica.capacity / throughput - 1.0, bool(estimate.doubts))


def main(count: int) -> None:
    begin = time.perf_counter()
    found = np.array([setup(seed) for seed in range(count)])
    error = np.abs(found[:, :-1])
    doubts = found[:, -1] > 0
    for name, some in (("all", np.ones(count, bool)), ("no doubts", ~doubts)):
        if not some.any():
            continue
        words = ", ".join(
            f"{what} {100 * np.median(error[some, at]):.2f}% "
            f"({100 * np.quantile(error[some, at], 0.9):.2f}%)"
            for at, what in enumerate((*_FIGURES, "throughput"))
        )
        print(f"{name}, {some.sum()} set-ups: median error (9th decile): {words}")
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
