"""How fast the compiled loop is, beside its plain twin in the tests.

    python -m benchmarks.serving_speed [AZURE_CSV]

A request-step is one request in one step.  Three set-ups: few requests in a step, many, and many
with drafts, asynchronous scheduling and a prefix cache; and Azure's conversation trace, where it is
given (Azure/AzurePublicDataset, data/AzureLLMInferenceTrace_conv.csv, CC-BY 4.0).  The first run
compiles, or loads what was compiled, and is not counted.  Processor seconds of single runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from specsim.serving import (
    DraftPolicy,
    Requests,
    RoundAcceptance,
    StepModel,
    StepTerm,
    VllmEngine,
    run,
)
from specsim.serving.readers import read_workload
from tests.support.serving_twin import Twin

MODEL = StepModel(
    (
        StepTerm("target", [6e-3, 8e-3, 40e-3, 150e-3], ("padded_tokens",), ([1, 256, 2e3, 8e3],)),
        StepTerm("target", 1.6e-8, per="decode_context"),
        StepTerm("host", 1e-3),
    )
)


def requests(count: int, rate: float) -> Requests:
    """Of 100 to 1,000 tokens of prompt and of output."""
    random = np.random.default_rng(0)
    lengths = random.integers(100, 1000, (2, count))
    return Requests(np.cumsum(random.exponential(1 / rate, count)), *lengths)


def main(trace: Path | None) -> None:
    """Print request-steps a second, compiled and plain."""
    plain = {"async_scheduling": False, "enable_prefix_caching": False}
    cases: list[tuple[str, Requests, DraftPolicy, dict[str, Any]]] = [
        ("few in a step", requests(4000, 2.0), DraftPolicy.off(), plain),
        ("many in a step", requests(8000, 1e6), DraftPolicy.off(), plain),
        ("many, 3 drafts, all on", requests(8000, 1e6), DraftPolicy.fixed(3), {}),
    ]
    if trace is not None:
        read = read_workload(trace)
        assert read.arrival_s is not None
        recorded = Requests(read.arrival_s, read.prompt_tokens, read.output_tokens)
        cases.append(("Azure conversations", recorded, DraftPolicy.off(), plain))
        cases.append(("the same, 3 drafts", recorded, DraftPolicy.fixed(3), {}))
    law = RoundAcceptance.law([0.8, 0.6, 0.5])
    print(
        f"{'':24}{'requests':>9}{'steps':>9}{'a step':>8}{'s':>8}{'/s':>12}{'twin':>10}{'ratio':>7}"
    )
    for words, given, drafts, settings in cases:
        engine = VllmEngine("0.33.0", 40_000, max_num_seqs=256, **settings)
        run(given.take(np.arange(10)), engine, MODEL, drafts, law, keep=())
        begin = process_time()
        found = run(given, engine, MODEL, drafts, law, keep=())
        seconds = process_time() - begin
        few = given.take(np.arange(min(len(given), 300)))
        begin = process_time()
        twin = Twin(few, engine, MODEL, drafts, law, None, 0).run()
        slow = sum(r.rounds for r in twin.requests) / (process_time() - begin)
        fast = found.rounds.sum() / seconds
        print(
            f"{words:24}{len(given):9,}{found.step_count:9,}"
            f"{found.rounds.sum() / found.step_count:8.1f}{seconds:8.2f}{fast:12,.0f}{slow:10,.0f}"
            f"{fast / slow:7.0f}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
