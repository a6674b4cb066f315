"""How much servers of vLLM differ in speed that are started alike.

    make engine
    python benchmarks/vllm_servers.py [--servers 8] [--turns 10] [--gamma 2]

Servers with the embedded pair decode the same 16 requests, four at a time, by turns in random
order.  Printed is how much longer each takes than the mean of all in the same turn, with its
standard error; what is left of their scatter without it; and how the means of even turns go with
those of odd ones, which is about 0 where servers differ by chance alone.  Eight servers and ten
turns take four and a half minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import random

import numpy as np
from transformers import AutoTokenizer

from calibrate.engine.server import Launch, all_started, find_program
from calibrate.engine.sets import rest
from calibrate.models.load import resolve
from calibrate.models.prompts import held_out_prompts
from specsim.profiles import SamplingSetting
from specsim.report.tables import render

TARGET, DRAFT = "embedded/target", "embedded/small"
REQUESTS, TOGETHER, PROMPT, TOKENS = 16, 4, 64, 96


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--gamma", type=int, default=2)
    asked = parser.parse_args()
    drafts = {
        "method": "draft_model",
        "model": str(resolve(DRAFT)),
        "num_speculative_tokens": asked.gamma,
    }
    # Engine and worker in one process, as on one GPU.
    one_process = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
    launch = Launch(
        program=find_program(None),
        target=str(resolve(TARGET)),
        speculative=drafts if asked.gamma else None,
        dtype="float32",
        context=512,
        more=("--distributed-executor-backend", one_process),
    )
    prompts = held_out_prompts(AutoTokenizer.from_pretrained(launch.target), PROMPT, REQUESTS)
    order = random.Random(0)
    seconds = np.empty((asked.servers, asked.turns))
    with all_started([launch] * asked.servers) as clients:
        # The first turn warms them.
        for turn in range(-1, asked.turns):
            for number in order.sample(range(asked.servers), asked.servers):
                rest()
                done = clients[number].complete(
                    prompts, [TOKENS] * REQUESTS, SamplingSetting(0.0), TOGETHER
                )
                if turn >= 0:
                    seconds[number, turn] = done.seconds
    logs = np.log(seconds)
    logs -= logs.mean(axis=0)
    means, errors = logs.mean(axis=1), logs.std(axis=1, ddof=1) / np.sqrt(asked.turns)
    rows = [
        {"server": number, "seconds": row.mean(), "longer": mean, "standard_error": error}
        for number, (row, mean, error) in enumerate(zip(seconds, means, errors, strict=True))
    ]
    print(render(rows, "markdown"))
    left = max(float(means.var(ddof=1) - np.mean(errors**2)), 0.0) ** 0.5
    halves = np.corrcoef(logs[:, ::2].mean(axis=1), logs[:, 1::2].mean(axis=1))[0, 1]
    print(
        f"servers differ by {means.std(ddof=1):.1%} (standard deviation), by {left:.1%} without "
        f"what chance does; even and odd turns go together with a correlation of {halves:.2f}"
    )


if __name__ == "__main__":
    main()
