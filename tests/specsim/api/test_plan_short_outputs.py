"""``specsim.plan`` where outputs are short: prompts take most of the places, or all."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim import deploy

ENGINE = "vllm:num_gpu_blocks=6000"


@pytest.mark.parametrize(("output", "rate"), [(2, 1000), (8, 500), ("uniform:1,6", 300)])
def test_sequences_are_those_that_have_a_place(output: Any, rate: float) -> None:
    """Short outputs: most of those that have one read their prompts, or are just done."""
    work = specsim.workload(rate=rate, prompt=20, output=output, requests=10_000)
    words: dict[str, Any] = {"step_model": "step_ms=10,token_us=5", "slo": "ttft_p99=0.1"}
    found, alone = (
        specsim.plan(work, gammas=[0], engine=ENGINE, simulated=each, **words)
        for each in (True, False)
    )
    assert found.met
    assert found.sequences is not None
    # Where all have a place that come, hardly ever more of them have one, by theory alone, too.
    words["warmup"] = 0.1
    steps = specsim.serve(work, engine=ENGINE, **words).served.runs[0].steps
    assert steps is not None
    for each in (found, alone):
        assert each.sequences is not None
        above = steps.running > each.sequences.count
        assert steps.seconds[above].sum() <= 0.001 * steps.seconds.sum()
    engine = f"{ENGINE},max_num_seqs={found.sequences.count}"
    assert specsim.serve(work, engine=engine, **words).levels[0].met
    # What decodes alone would ask for is too few: there the queue grows, or the level is missed.
    engine = f"{ENGINE},max_num_seqs={found.sequences.count // 3}"
    assert not specsim.serve(work, engine=engine, **words).levels[0].met


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("target", ["llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-20b"])
def test_outputs_of_one_token_are_planned_for(target: str, simulated: bool, engine: str) -> None:
    """Nothing decodes: all is done when the prompt is read."""
    found = specsim.plan(
        specsim.workload(rate=5, prompt=3000, output=1),
        slo="ttft_p99=1",
        deployment=deploy(target, "H100"),
        degrees=[1],
        engine=engine,
        simulated=simulated,
    )
    assert found.met
    assert found.best.replicas == 1
    assert found.sequences is not None
    assert isnan(found.best.figures["tpot_mean"])


def test_few_outputs_of_more_than_one_token_are_planned_for_in_silence(
    recwarn: pytest.WarningsRecorder, tmp_path: Path
) -> None:
    path = tmp_path / "requests.jsonl"
    rows = (
        {"timestamp": n / 5, "prompt_len": 3000, "output_len": 1 + (n % 50 == 0)}
        for n in range(400)
    )
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    given: Any = {"deployment": deploy("qwen3-30b-a3b", "H100"), "degrees": [1]}
    found = specsim.plan(path, slo="ttft_p99=1", simulated=False, **given)
    assert found.met
    assert not recwarn.list
