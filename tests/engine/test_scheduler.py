"""The simulated schedule beside vLLM's own: the same steps, tokens and preemptions, one by one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.models.load import resolve
from specsim.serving import (
    DraftPolicy,
    Requests,
    RoundAcceptance,
    ServingRun,
    StepModel,
    StepTerm,
    VllmEngine,
    run,
)
from specsim.serving.engines.kv_groups import KvGroup

pytestmark = pytest.mark.engine

SECOND = StepModel((StepTerm("target", 1.0),))
REQUESTS = 60
SETTINGS = {
    "block_size": 32,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 2048,
    "max_model_len": 512,
}


# By how many requests a step has, as the study has it; one that goes on without drafts; one that
# begins to draft when so many run that a small budget is no longer enough for all.
BY_BATCH = ((1, 2, 4), (3, 8, 2), (9, 16, 1))
UP_TO_FIVE = ((1, 2, 3), (3, 5, 1), (6, 16, 0))
FROM_TWELVE = ((1, 11, 0), (12, 16, 4))
Schedule = tuple[tuple[int, int, int], ...]

# Layers of which some see a window: as many of each kind, and as Gemma 3 has them.
HALF = (KvGroup(None, 1, 1), KvGroup(48, 1, 1))
MOST = (KvGroup(None, 1, 1), KvGroup(70, 1, 5), KvGroup(None, 2, 1))
Groups = tuple[KvGroup, ...]

# Draft length, or a schedule of them, blocks, whether a step is planned while another runs, what
# else is set, and groups of layers.
CASES: list[tuple[int | Schedule, int, bool, dict[str, int], Groups]] = [
    (gamma, blocks, asynchronous, other, groups)
    for asynchronous in (False, True)
    for gamma, blocks, other, groups in (
        (0, 60, {}, HALF),
        (2, 30, {}, HALF),
        (4, 30, {"max_num_batched_tokens": 64}, HALF),
        (0, 90, {"max_num_batched_tokens": 96}, MOST),
        (2, 110, {}, MOST),
        (BY_BATCH, 130, {"block_size": 16}, MOST),
    )
] + [
    (gamma, blocks, asynchronous, other, ())
    for asynchronous in (False, True)
    for gamma, blocks, other in (
        (0, 400, {}),
        (0, 18, {}),
        (1, 18, {}),
        (2, 18, {}),
        (4, 25, {}),
        (2, 400, {"max_num_batched_tokens": 512}),
        (FROM_TWELVE, 400, {"max_num_batched_tokens": 64}),
        (2, 400, {"long_prefill_token_threshold": 32}),
        (2, 40, {"max_num_seqs": 6}),
        (BY_BATCH, 400, {}),
        (BY_BATCH, 25, {}),
        (UP_TO_FIVE, 400, {}),
    )
]


def _asked(
    drafts: int | Schedule, blocks: int, asynchronous: bool, other: dict[str, int], groups: Groups
) -> dict[str, Any]:
    by_batch = drafts if isinstance(drafts, tuple) else ((1, SETTINGS["max_num_seqs"], drafts),)
    gamma = max(each for _, _, each in by_batch)
    rng = np.random.default_rng([gamma, blocks])
    outputs = rng.integers(8, 97, REQUESTS)
    return {
        "model": str(resolve("embedded/target")),
        "speculative": {
            "method": "draft_model",
            "model": str(resolve("embedded/small")),
            "num_speculative_tokens": gamma,
        }
        | ({"num_speculative_tokens_per_batch_size": by_batch} if len(by_batch) > 1 else {})
        if gamma
        else None,
        "engine": SETTINGS | {"num_gpu_blocks": blocks} | other,
        "groups": groups,
        "by_batch": by_batch,
        "asynchronous": asynchronous,
        "prompt_tokens": rng.integers(16, 129, REQUESTS).tolist(),
        "output_tokens": outputs.tolist(),
        "arrival_s": np.sort(rng.uniform(-20, 40, REQUESTS).clip(0.0)).tolist(),
        "lengths": [rng.integers(1, gamma + 2, tokens).tolist() for tokens in outputs],
    }


@pytest.fixture(scope="module")
def schedules(program: Path) -> list[list[dict[str, Any]]]:
    """Of vLLM, by case: rows of every step."""
    words = [str(program.parent / "python"), str(Path(__file__).with_name("vllm_scheduler.py"))]
    asked = json.dumps([_asked(*case) for case in CASES])
    found = subprocess.run(words, input=asked, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    # Before them it says what it has found of devices.
    rows: list[list[dict[str, Any]]] = json.loads(found.stdout.splitlines()[-1])
    return rows


def _simulated(asked: dict[str, Any]) -> ServingRun:
    by_batch, words = asked["by_batch"], asked["engine"]
    drafts = any(gamma for _, _, gamma in by_batch)
    lengths = ("arrival_s", "prompt_tokens", "output_tokens")
    starts = np.concatenate([[0], np.cumsum(asked["output_tokens"])])
    return run(
        Requests(*(np.array(asked[name]) for name in lengths)),
        VllmEngine(
            "0.32.0",
            enable_prefix_caching=False,
            async_scheduling=asked["asynchronous"],
            enforce_eager=True,
            kv_groups=asked["groups"],
            **words,
        ),
        SECOND,
        DraftPolicy(by_batch, slots_for_drafting=1) if drafts else DraftPolicy.off(),
        RoundAcceptance.recorded(np.concatenate(asked["lengths"]), starts, np.arange(REQUESTS)),
        keep=("steps", "rounds"),
    )


@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_step_is_that_of_vllm(case: int, schedules: list[list[dict[str, Any]]]) -> None:
    asked = _asked(*CASES[case])
    steps = _simulated(asked).steps
    assert steps is not None
    names = ("preempted", "running", "waiting")
    expected = [
        [len(each["tokens"]), sum(each["tokens"].values()), *(each[name] for name in names)]
        for each in schedules[case]
    ]
    tokens = steps.prefill_tokens + steps.verified_tokens
    found = (steps.sequences, tokens, steps.preempted, steps.running, steps.waiting)
    assert np.array(found).T.tolist() == expected
    if asked["engine"]["num_gpu_blocks"] < 30 or asked["groups"]:
        assert steps.preempted.sum() > 5
