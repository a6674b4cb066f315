"""Time of one verification on a CPU, against the obvious loop and against reading p and q once.

gamma 8, a vocabulary of 152,064 (Qwen's) and a batch of 64: 666 MB of probabilities.  The floor is
the time of one sum over p and one over q.  "obvious" is the algorithm as papers print it, block
after block and position after position with Python branches: it stops at the first rejection,
so it has less to read.  Peak memory counts what verification needs beside p, q and the draft
tokens.

    OMP_NUM_THREADS=1 python benchmarks/verify_speed.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from specsim.rules import Distributions, Lossless, LossyStar, Opt, Rule, TokenV3, TopBeta
from specsim.rules.verify import Verdict, verify

BATCH, GAMMA, VOCABULARY = 64, 8, 152_064
REPEATS = 5


def seconds(*works: Callable[[], object]) -> list[float]:
    """Median wall time of each, in turns after one to warm up, so that all see the same machine."""
    taken = []
    for _ in range(REPEATS + 1):
        ends = [time.perf_counter()]
        for work in works:
            work()
            ends.append(time.perf_counter())
        taken.append(np.diff(ends))
    return np.median(taken[1:], axis=0).tolist()


def obvious(
    rule: Rule, p: torch.Tensor, q: torch.Tensor, drafts: torch.Tensor, generator: torch.Generator
) -> None:
    for block in range(BATCH):
        for position in range(GAMMA + 1):
            rows = Distributions(p[block, position], q[block, position])
            pi = rule.pi(rows)
            if position == GAMMA:
                torch.multinomial(pi, 1, generator=generator).item()
                break
            token = int(drafts[block, position])
            if torch.rand(1, generator=generator).item() >= float(pi[token] / rows.q[token]):
                residual = (pi - rows.q).clamp(min=0)
                torch.multinomial(residual / residual.sum(), 1, generator=generator).item()
                break


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (BATCH, GAMMA + 1, VOCABULARY)
    # A peaked target and a draft that is the target with noise.
    p, q = torch.empty(shape), torch.empty(shape)
    for block in range(BATCH):
        logits = 3 * torch.randn(shape[1:], generator=generator)
        p[block] = logits.softmax(-1)
        q[block] = (logits + 0.5 * torch.randn(shape[1:], generator=generator)).softmax(-1)
    drafts = torch.multinomial(q[:, :GAMMA].flatten(0, 1), 1, generator=generator)
    drafts = drafts.reshape(BATCH, GAMMA)
    print(f"p and q: {2 * p.nbytes / 2**20:.0f} MiB")
    print(
        f"{'rule':14}{'floor, ms':>10}{'GB/s':>6}{'ms':>7}{'x floor':>9}{'obvious, ms':>13}"
        f"{'ratio':>7}{'accepted':>10}{'peak memory':>13}"
    )
    for rule in (Lossless(), Opt(0.3), TokenV3(0.5), TopBeta(3, 1.0), LossyStar(0.3)):

        def ours(rule: Rule = rule) -> Verdict:
            coins = torch.rand(drafts.shape, generator=generator, dtype=torch.float64)
            draws = torch.rand(BATCH, generator=generator, dtype=torch.float64)
            return verify(rule, p, q, drafts, coins, draws)

        before = forget_peak()
        accepted = float(ours().accepted.double().mean())
        grown = memory("VmHWM") - before
        floor, taken, slow = seconds(
            lambda: (p.sum(), q.sum()),
            ours,
            lambda rule=rule: obvious(rule, p, q, drafts, generator),
        )
        print(
            f"{type(rule).__name__:14}{floor * 1e3:10.0f}{2 * p.nbytes / floor / 1e9:6.1f}"
            f"{taken * 1e3:7.0f}{taken / floor:9.2f}{slow * 1e3:13.0f}{slow / taken:7.1f}"
            f"{accepted:10.2f}{grown / 2**20:9.0f} MiB"
        )


def forget_peak() -> int:
    """Start the count of peak memory anew (Linux); the bytes resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(name: str) -> int:
    """A line of the process status that is in kB, in bytes."""
    status = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in status if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
