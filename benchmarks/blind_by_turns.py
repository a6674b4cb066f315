"""Whether a speedup is predicted wrong, or the machine is another one than when it was calibrated.

    python benchmarks/blind_by_turns.py PROFILE MINUTES     # studies/measured/blind/quiet-64/...

Passes of a calibration and whole requests of a blind check, each decoder alone and in random order,
go by turns for so many minutes.  Printed is how far off speedups of the requests are predicted, in
percent: from the passes between them, and from the profile.  Tokens of a block are taken as
predicted, so that costs alone are judged.  The standard error is a bootstrap over turns.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import torch

from calibrate.measure.grid import joined
from calibrate.measure.timing import TOKENS, TimedText, time_decoding
from calibrate.measure.trace import generator
from calibrate.models.collector import models_not_walked
from calibrate.models.load import load_measured_pair
from calibrate.models.prompts import find_prompts
from calibrate.validate.speedups import CheckedPrompts, decoder
from specsim.checkpoint import Checkpoint
from specsim.optimizers.workload import Workload
from specsim.predict.measured import MeasuredCost
from specsim.profiles import Overhead, RunTime, read_profile

# Requests of each temperature between two passes, and texts that passes are timed on.
REQUESTS, TEXTS = 2, 16
PLAIN_TURNS = 2


def main(path: Path, minutes: float) -> None:
    """Print a row for each temperature and draft length."""
    profile = read_profile(path)
    torch.set_num_threads(profile.hardware.threads)
    pair = load_measured_pair(profile, torch.device("cpu"), torch.float32)
    timed, free = pair.with_drafter(), pair.with_drafter(timed=False)
    workloads = Workload.all_of(profile, path, None)
    prompts = [
        find_prompts(None, pair.target.tokenizer, each.measured.prompt_tokens, each.trace.requests)
        for each in workloads
    ]
    checks = [CheckedPrompts(each, True, own) for each, own in zip(workloads, prompts, strict=True)]
    texts = [texts_of(each) for each in checks]
    gammas = range(1, profile.gamma_max + 1)
    random = np.random.default_rng()
    end = time.monotonic() + 60 * minutes
    rows: dict[str, list[dict[str, Any]]] = {"run_times": [], "overhead": []}
    decoded = []
    turn = 0
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder:
            found = time_decoding(
                *timed,
                [each[turn % len(each) :] + each[: turn % len(each)] for each in texts],
                [each.sampling for each in checks],
                profile.gamma_max,
                TOKENS,
                1,
                turn,
                Checkpoint.beside(Path(folder) / "times", turn),
            )
        for name, each in found.items():
            for row in each:
                row["passes"] = [len(checks) * turn + number for number in row["passes"]]
            rows[name] += each
        every = [
            (at, gamma, int(request))
            for at, check in enumerate(checks)
            for request in random.integers(len(check.prompts), size=REQUESTS)
            for gamma in (*[0] * PLAIN_TURNS, *gammas)
        ]
        with models_not_walked():
            for place in random.permutation(len(every)):
                at, gamma, request = every[place]
                check = checks[at]
                start = decoder(free, gamma, check.sampling, check.max_new_tokens, pair)
                draws = generator(free[0].device, turn, int(place))
                said = start(check.prompts[request], draws).finish()
                decoded.append((turn, at, gamma, said.seconds, said.calls))
        turn += 1
        print(f"{turn} turns", file=sys.stderr, flush=True)
    run_times = [msgspec.convert(row, RunTime) for row in joined(rows["run_times"])]
    overhead = [msgspec.convert(row, Overhead) for row in joined(rows["overhead"])]
    frame = pd.DataFrame(decoded, columns=["turn", "at", "gamma", "seconds", "calls"])
    table = []
    for at, workload in enumerate(workloads):
        temperature = workload.measured.sampling.temperature
        cost = MeasuredCost.of(run_times, overhead, temperature, profile.by_lookup)
        between = Workload(profile, workload.measured, workload.trace, cost)
        own = frame[frame["at"] == at]
        for gamma in gammas:
            best, error = block(own, gamma, random)
            line: dict[str, Any] = {"temperature": temperature, "gamma": gamma}
            for name, asked in (("by_turns", between), ("profile", workload)):
                (said,) = asked.predict([gamma])
                line[f"off_{name}"] = 100 * (best * said.speedup / said.tokens_per_call - 1)
            table.append(line | {"standard_error": 100 * error})
    print(pd.DataFrame(table).round(1).to_string(index=False))
    off = pd.DataFrame(table).groupby("temperature")[["off_by_turns", "off_profile"]]
    print(off.mean().round(1))


def texts_of(check: CheckedPrompts) -> list[TimedText]:
    """Prompts with what the trace says that was written behind them."""
    trace = check.workload.trace
    tokens = trace.columns["token"]
    return [
        TimedText(prompt, tokens[trace.starts[at] : trace.starts[at + 1]].tolist())
        for at, prompt in enumerate(check.prompts[:TEXTS])
    ]


def block(own: pd.DataFrame, gamma: int, random: np.random.Generator) -> tuple[float, float]:
    """Seconds of a block over those of a plain run, and the standard error as a share of it.

    Blocks and not tokens, so that what chance accepts has no part in it.
    """
    sums = own.groupby(["gamma", "turn"])[["seconds", "calls"]].sum()
    plain, fast = sums.loc[0].to_numpy(), sums.loc[gamma].to_numpy()

    def ratio(turns: Any) -> float:
        (plain_s, runs), (fast_s, blocks) = plain[turns].sum(axis=0), fast[turns].sum(axis=0)
        return float(fast_s / blocks / (plain_s / runs))

    size = len(plain)
    best = ratio(np.arange(size))
    drawn = [ratio(random.integers(size, size=size)) for _ in range(500)]
    return best, float(np.std(drawn)) / best


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
