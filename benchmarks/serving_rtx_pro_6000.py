"""Serving without speculation, simulated beside the engine: Llama-3.1-8B under vLLM 0.19.0 on one
RTX PRO 6000, 300 requests at 10 a second.

    python benchmarks/serving_rtx_pro_6000.py FOLDER

The folder holds the kernel tables, ``workload.jsonl``, ``requests.jsonl`` and ``meta.json`` of
casys-kaist/LLMServingSim 5daddb2 (https://github.com/casys-kaist/LLMServingSim, MIT, Copyright (c)
2024 CASYS Lab at KAIST).  One number is fitted to the run's makespan, the seconds of a step that no
kernel shows; the engine schedules asynchronously, which hides the rest of the host's work.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from specsim.serving import Requests, ServingRun, VllmEngine, run
from specsim.serving.costs.kernel_tables import kernel_tables
from specsim.serving.readers import read_workload

LAYERS = 32
# Fitted: with it the simulated makespan is the measured one to 0.3 %.
BETWEEN_S = 1.4e-3
# More than the run ever needed, which preempted nothing.
BLOCKS = 30_000


def main(folder: Path) -> None:
    """Print predicted against measured, in per cent."""
    lines = (folder / "requests.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    measured = {name: np.array([row[name] for row in rows]) for name in rows[0] if name[-1] != "d"}
    # Two clocks: the engine cannot know of a request before it comes.
    ahead = (measured["arrival_time"] - measured["queued_ts"]).max()
    arrived = measured["arrival_time"] - ahead
    planned = read_workload(folder / "workload.jsonl")
    lengths = measured["input_toks"], measured["output_toks"]
    requests = Requests(arrived - arrived[0], *lengths, prefix=planned.prefix)
    settings = json.loads((folder / "meta.json").read_text())["engine_kwargs"]
    engine = VllmEngine(
        "0.19.0",
        num_gpu_blocks=BLOCKS,
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        max_num_seqs=settings["max_num_seqs"],
    )
    seen = {
        "TTFT": measured["first_token_ts"] - arrived,
        "TPOT": (measured["last_token_ts"] - measured["first_token_ts"]) / (lengths[1] - 1),
        "E2E": measured["last_token_ts"] - arrived,
    }
    print(f"measured makespan {measured['last_token_ts'].max() - arrived[0]:.2f} s")
    for words, between_s, changes in (
        ("as the engine ran", BETWEEN_S, {}),
        ("kernels alone", 0.0, {}),
        ("synchronous", BETWEEN_S, {"async_scheduling": False}),
        ("no prefix cache", BETWEEN_S, {"enable_prefix_caching": False}),
    ):
        model = kernel_tables(folder, LAYERS, between_s)
        found = run(requests, replace(engine, **changes), model)
        print(f"\n{words}: {found.step_count} steps, makespan {found.makespan_s:.2f} s")
        compare(found, seen)


def compare(found: ServingRun, seen: dict[str, np.ndarray]) -> None:
    """Predicted over measured less one, in per cent."""
    print(f"{'':6}{'mean':>8}{'p50':>8}{'p90':>8}{'p99':>8}   each request, median of |error|")
    for name, predicted in zip(seen, (found.ttft_s, found.tpot_s, found.e2e_s), strict=True):
        pairs = [
            (of(predicted), of(seen[name]))
            for of in (np.mean, *(lambda x, q=q: np.percentile(x, q) for q in (50, 90, 99)))
        ]
        errors = "".join(f"{100 * (mine / theirs - 1):+8.1f}" for mine, theirs in pairs)
        each = np.median(np.abs(predicted / seen[name] - 1))
        print(f"{name:6}{errors}   {100 * each:.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
