"""First tokens of a measured run of vLLM 0.19.0, request by request; see the README beside it."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from specsim.serving import Requests, StepModel, VllmEngine, run
from specsim.serving.costs.kernel_tables import kernel_tables
from specsim.serving.requests import PrefixBlocks

REFERENCE = Path(__file__).parents[2] / "reference" / "serving"


def test_first_tokens_come_when_they_did() -> None:
    with (REFERENCE / "requests.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    blocks = [[int(each) for each in row["shared_blocks"].split()] for row in rows]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in blocks])])
    prefix = PrefixBlocks(np.array([b for each in blocks for b in each]), starts, 16)
    prompts, outputs = (
        np.array([int(row[f"{name}_tokens"]) for row in rows]) for name in ("prompt", "output")
    )
    requests = Requests(
        np.array([float(row["arrival_s"]) for row in rows]), prompts, outputs, prefix
    )
    engine = VllmEngine("0.19.0", 30_000, max_num_batched_tokens=2048, max_num_seqs=128)
    # 1.4 ms between steps is fitted to the makespan of the whole run.
    model = kernel_tables(REFERENCE, layers=32, between_s=1.4e-3)
    measured = np.array([float(row["first_token_s"]) for row in rows]) - requests.arrival_s
    typical = []
    for asynchronous in (True, False):
        found = run(requests, replace(engine, async_scheduling=asynchronous), model)
        # The first request came to a cold engine, and steps of the last ten read prompts that were
        # left out here.
        typical.append(np.median(np.abs(found.ttft_s - measured)[1:50]))
    assert typical[0] < 0.010
    # One chunk behind all that is in front of the chunks, and not behind what they attend to.
    attended = StepModel(
        tuple(
            replace(
                term,
                axes=tuple("chunk_context" if n == "prefill_context" else n for n in term.axes),
            )
            for term in model.terms
        )
    )
    other = run(requests, engine, attended)
    assert np.median(np.abs(other.ttft_s - measured)[1:50]) > 1.1 * typical[0]
    # The engine scheduled asynchronously: without that, first tokens are told less well.
    assert typical[0] < 0.7 * typical[1]
