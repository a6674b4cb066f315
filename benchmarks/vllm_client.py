"""What a client of vLLM itself adds to the wait for a first token.

    make engine
    python benchmarks/vllm_client.py [--turns 6] [--requests 120] [--rate 10]

One server with the embedded target is sent the same requests at the same moments, Poisson, by two
clients in turn: ``vllm bench serve``, and the one that steps are timed with under load
(``calibrate.engine.load_client``).  Printed is what a request spent outside of all steps
(``specsim.counts.streams``), of those that came alone and beside one to seven others, and what a
step takes of 16 requests, the most that are decoded together, in which nobody came, in the mean
over the turns, and by how much the two differ, with standard errors.  With ``--untrusting`` the
second client looks for no proxies and passwords in the environment, which vLLM's does before every
request.  Six turns take three and a half minutes on two idle cores.

On two cores of an AMD EPYC (2026-11-28, ``--turns 4``, standard errors of the difference) a request
to ``vllm bench serve`` took 0.6 ms less (0.2) than one to ``load_client`` at 10 requests a second
and 0.2 ms less (0.1) at 20, and 1.1 ms more (0.3) than one to the untrusting client.  A step of 16
took 6.58 ms beside ``vllm bench serve`` and 0.02 ms more (0.03) beside ``load_client`` (2026-11-29,
``--turns 8 --requests 128 --rate 100``, at which nobody comes alone).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from transformers import AutoTokenizer

from calibrate.engine import load_client
from calibrate.engine.client import EngineClient
from calibrate.engine.server import Launch, all_started, find_program
from calibrate.models.load import resolve
from calibrate.models.prompts import held_out_prompts
from specsim.counts.steps import StreamedSteps
from specsim.counts.streams import Stream, streamed_steps
from specsim.profiles import SamplingSetting
from specsim.report.tables import render
from studies.serving.bench import bench_started, streams_of

TARGET = "embedded/target"
PROMPT, TOKENS, BESIDE, MOST = 64, 64, 7, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--untrusting", action="store_true")
    asked = parser.parse_args()
    if asked.untrusting:
        load_client.getproxies = lambda: {"http": "none"}
    tokenizer = AutoTokenizer.from_pretrained(str(resolve(TARGET)))
    windows = held_out_prompts(tokenizer, PROMPT, asked.requests)
    texts = [tokenizer.decode(each) for each in windows]
    program, model = find_program(None), str(resolve(TARGET))
    # Engine and worker in one process, as on one GPU.
    one_process = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
    launch = Launch(
        program=program,
        target=model,
        speculative=None,
        dtype="float32",
        context=512,
        requests=MOST,
        more=("--distributed-executor-backend", one_process),
    )
    found: dict[str, list[tuple[float, float]]] = {"vllm bench serve": [], "load_client": []}
    with (
        all_started([launch]) as (client,),
        bench_started() as bench,
        TemporaryDirectory() as folder,
    ):
        assert isinstance(client, EngineClient), "of a server"
        rows = [json.dumps({"prompt": text, "output_tokens": TOKENS}) + "\n" for text in texts]
        dataset = Path(folder, "requests.jsonl")
        dataset.write_text("".join(rows))

        def by_bench(turn: int) -> list[Stream]:
            said = bench.serve(client, dataset, len(texts), str(asked.rate), turn)
            return streams_of(said)

        by_bench(0)  # the first steps are slow
        for turn in range(asked.turns):
            for name in random.Random(turn).sample(list(found), len(found)):
                if name == "load_client":
                    streams = by_stream(client, texts, asked.rate, turn)
                else:
                    streams = by_bench(turn)
                steps = streamed_steps(streams, 0)
                found[name].append((outside_ms(steps), step_ms(steps)))
    one, other = np.array(list(found.values()))
    rows = {**dict(zip(found, (one, other), strict=True)), "difference": one - other}
    print(
        render([{"client": name, **columns(values)} for name, values in rows.items()], "markdown")
    )


def by_stream(client: EngineClient, texts: Sequence[str], rate: float, turn: int) -> list[Stream]:
    """As many clients as there are requests, so that all are sent when they come."""
    random = np.random.default_rng(turn)
    waits_s = np.cumsum(random.exponential(1 / rate, len(texts))).tolist()
    greedy = SamplingSetting(0.0)
    found = load_client.stream(client, texts, [TOKENS] * len(texts), greedy, len(texts), waits_s)
    # The other client does not tell how many tokens a chunk has.
    return [replace(each, chunk_tokens=None) for each in found]


def outside_ms(found: StreamedSteps) -> float:
    """Milliseconds of a request outside of all steps; nan where all of them came beside more."""
    rows = [
        (row.seconds, row.requests)
        for row in found.frontends
        if row.prompts == 1 and (row.decodes or 0) <= BESIDE
    ]
    return mean_ms(rows)


def step_ms(found: StreamedSteps) -> float:
    """Milliseconds of a step of the largest batch; nan where requests come too slowly for one."""
    rows = [
        (step.seconds, step.steps)
        for step in found.steps
        if step.decodes == MOST and not step.prompts and not step.arrivals
    ]
    return mean_ms(rows)


def mean_ms(rows: Sequence[tuple[float, int]]) -> float:
    if not rows:
        return np.nan
    seconds, counts = np.array(rows).T
    return 1e3 * float(np.average(seconds, weights=counts))


def columns(values: np.ndarray) -> dict[str, float]:
    """Means of both columns over the turns, with standard errors."""
    means, errors = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
    names = ("outside_ms", "outside_error", "step_ms", "step_error")
    return dict(zip(names, np.column_stack([means, errors]).ravel().tolist(), strict=True))


if __name__ == "__main__":
    main()
