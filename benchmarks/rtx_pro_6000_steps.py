"""Step times of Llama-3.1-8B under vLLM 0.19.0 on one RTX PRO 6000, from LLMServingSim's tables.

    python benchmarks/rtx_pro_6000_steps.py FOLDER

writes ``studies/reference/rtx_pro_6000_steps.csv``.  The folder holds ``dense.csv``,
``attention.csv`` and ``per_sequence.csv`` (kernel times) and ``requests.jsonl``,
``timeseries.csv`` and ``meta.json`` (a run of 300 requests) of casys-kaist/LLMServingSim 5daddb2
(https://github.com/casys-kaist/LLMServingSim, MIT, Copyright (c) 2024 CASYS Lab at KAIST).

Rows of kind ``kernels`` are sums of kernel times: 32 layers, the head over every new token and
the sampler; no host time is in them.  Rows of kind ``engine`` are seconds of the run's last part,
in which no prompt is read: tokens of a second over the mean number of requests are its steps.
"""

from __future__ import annotations

import csv
import json
import sys
from datetime import datetime
from pathlib import Path

import numpy as np

OUT = Path(__file__).parents[1] / "studies" / "reference" / "rtx_pro_6000_steps.csv"
LAYERS = 32
# How often a kernel runs in a layer, and once a run.
IN_LAYER = {
    "layernorm": 2,
    "qkv_proj": 1,
    "rotary_emb": 1,
    "o_proj": 1,
    "gate_up_proj": 1,
    "act_fn": 1,
    "down_proj": 1,
}
ONCE = ("embedding", "final_layernorm")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (512, 2048)
# New tokens of one request, sizes that all three tables have.
CHUNKS = (16, 32, 64, 128, 256)
SOURCE = "casys-kaist/LLMServingSim 5daddb2 (MIT)"
FIELDS = ("kind", "gamma", "batch", "context", "seconds", "source")


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def kernels(folder: Path) -> list[tuple[int, int, int, float]]:
    """Plain steps by batch and context, and verifications of one request: draft length, batch,
    context, seconds.
    """
    dense = {(row["layer"], int(row["tokens"])): row for row in table(folder / "dense.csv")}
    head = {(r["layer"], int(r["sequences"])): r for r in table(folder / "per_sequence.csv")}
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    attention = {
        tuple(int(row[name]) for name in names): row for row in table(folder / "attention.csv")
    }

    def microseconds(tokens: int, attended: dict[str, str]) -> float:
        layer = sum(
            count * float(dense[name, tokens]["time_us"]) for name, count in IN_LAYER.items()
        )
        once = sum(float(dense[name, tokens]["time_us"]) for name in ONCE)
        ends = sum(float(head[name, tokens]["time_us"]) for name in ("lm_head", "sampler"))
        return LAYERS * (layer + float(attended["time_us"])) + once + ends

    plain = [
        (0, batch, context, 1e-6 * microseconds(batch, attention[0, 0, batch, context]))
        for batch in BATCHES
        for context in CONTEXTS
    ]
    verified = [
        (chunk - 1, 1, context, 1e-6 * microseconds(chunk, attention[chunk, context, 0, 0]))
        for chunk in CHUNKS
        for context in CONTEXTS
    ]
    return plain + verified


def engine(folder: Path) -> list[tuple[int, float, float, float]]:
    """Seconds without prompts at the end of the run: draft length 0, mean batch and context of its
    steps, and how long one takes.
    """
    lines = (folder / "requests.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    queued, arrived, first, last = (
        np.array([each[name] for each in found])
        for name in ("queued_ts", "arrival_time", "first_token_ts", "last_token_ts")
    )
    prompts, outputs = (
        np.array([each[name] for each in found]) for name in ("input_toks", "output_toks")
    )
    begun = json.loads((folder / "meta.json").read_text())["started_at"]
    start = datetime.fromisoformat(begun).timestamp() + float(np.median(queued - arrived))
    rows = []
    for row in table(folder / "timeseries.csv"):
        end = float(row["t"])
        times = start + np.linspace(end - 1.0, end, 201)[1:] - 0.0025
        running = (first[:, None] <= times) & (times < last[:, None])
        if start + end <= first.max() + 1.0 or float(row["gen_throughput"]) < 50:
            continue
        share = (times - first[:, None]) / (last - first)[:, None]
        cached = prompts[:, None] + share * outputs[:, None]
        batch = running.sum(0)
        seconds = float(batch.mean()) / float(row["gen_throughput"])
        context = float(cached[running].mean())
        rows.append((0, round(float(batch.mean()), 1), round(context), seconds))
    return rows


def main(folder: Path) -> None:
    """Write the table."""
    with OUT.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(FIELDS)
        for kind, rows in (("kernels", kernels(folder)), ("engine", engine(folder))):
            for gamma, batch, context, seconds in rows:
                writer.writerow([kind, gamma, batch, context, f"{seconds:.6f}", SOURCE])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
