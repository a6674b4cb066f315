"""The compiled loop against the plain one, to the last bit, on random configurations."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from specsim.serving import (
    DraftPolicy,
    Requests,
    RoundAcceptance,
    SglangEngine,
    StepModel,
    StepTerm,
    VllmEngine,
    simulation,
)
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.requests import PrefixBlocks
from specsim.serving.result import ServingRun
from specsim.serving.simulation import run
from tests.support import serving_configurations as conf
from tests.support.serving_twin import Twin


def assert_same(found: ServingRun, twin: Twin) -> None:
    for name, values in (
        ("arrival_s", [r.arrival for r in twin.requests]),
        ("scheduled_s", [r.scheduled for r in twin.requests]),
        ("first_token_s", [r.first for r in twin.requests]),
        ("last_token_s", [r.last for r in twin.requests]),
        ("rounds", [r.rounds for r in twin.requests]),
        ("preemptions", [r.preemptions for r in twin.requests]),
        ("cached_tokens", [r.cached for r in twin.requests]),
    ):
        np.testing.assert_array_equal(getattr(found, name), values, err_msg=name)
    steps, log = found.steps, found.round_log
    assert steps is not None
    assert log is not None
    for name in ("start_s", "sequences", "decodes", "prefill_tokens", "verified_tokens", "gamma"):
        np.testing.assert_array_equal(getattr(steps, name), [s[name] for s in twin.steps], name)
    for name in ("used_blocks", "waiting", "running", "preempted"):
        np.testing.assert_array_equal(getattr(steps, name), [s[name] for s in twin.steps], name)
    np.testing.assert_array_equal(
        np.stack([log.request, log.step, log.tokens], axis=1), twin.round_log
    )


def check(configuration: dict[str, Any]) -> None:
    found = run(**configuration, keep=("steps", "rounds"))
    twin = Twin(
        configuration["requests"],
        configuration["engine"],
        configuration["step_model"],
        configuration["drafts"],
        configuration["acceptance"],
        configuration["concurrency"],
        configuration["seed"],
    ).run()
    assert_same(found, twin)
    conf.assert_conserved(found, configuration["step_model"])


@settings(max_examples=75, suppress_health_check=list(HealthCheck))
@given(conf.configurations("vllm"))
def test_vllm_is_its_twin(configuration: dict[str, Any]) -> None:
    check(configuration)


@settings(max_examples=75, suppress_health_check=list(HealthCheck))
@given(conf.configurations("sglang"))
def test_sglang_is_its_twin(configuration: dict[str, Any]) -> None:
    check(configuration)


@pytest.mark.parametrize(
    "engine",
    [
        VllmEngine("0.33.0", 40, max_num_batched_tokens=64, max_num_seqs=8, block_size=16),
        SglangEngine("0.5.23", 640, max_running_requests=8, page_size=16),
    ],
)
def test_smaller_blocks_of_prompts_are_joined_as_the_twin_joins_them(
    engine: ServingEngine,
) -> None:
    random = np.random.default_rng(3)
    families = [np.cumsum(random.integers(1, 99, 20)) for _ in range(3)]
    prompts, outputs = random.integers(1, 80, 30), random.integers(1, 20, 30)
    own = [families[at % 3][: prompt // 4] for at, prompt in enumerate(prompts.tolist())]
    starts = np.concatenate([[0], np.cumsum([each.size for each in own])])
    prefix = PrefixBlocks(np.concatenate(own), starts, 4)
    configuration = {
        "requests": Requests(np.arange(30) * 0.05, prompts, outputs, prefix),
        "engine": engine,
        "step_model": conf.MODEL,
        "drafts": DraftPolicy.off(),
        "acceptance": None,
        "concurrency": None,
        "seed": 1,
    }
    check(configuration)
    assert run(**configuration).cached_tokens.sum() > 0


def test_a_full_log_is_emptied_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(np.arange(40) * 0.02, np.full(40, 30), np.arange(40) % 13 + 1)
    engine = VllmEngine("0.33.0", 30, max_num_seqs=8, max_num_batched_tokens=16)
    law = RoundAcceptance.law([0.7, 0.5])
    keep = ("steps", "rounds")
    runs = []
    for rows in (1 << 16, 5):
        monkeypatch.setattr(simulation, "_ROWS", rows)
        runs.append(run(requests, engine, conf.MODEL, DraftPolicy.fixed(2), law, keep=keep))
    whole, parts = (found.steps for found in runs)
    assert whole is not None
    assert parts is not None
    assert len(whole) > 50
    for name in ("start_s", "seconds", "emitted_tokens", "used_blocks", "waiting"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    logs = [found.round_log for found in runs]
    assert logs[0] is not None
    assert logs[1] is not None
    np.testing.assert_array_equal(logs[1].end_s, logs[0].end_s)


def test_borrowed_arrays_are_given_back() -> None:
    """The loop counts no references to its arrays, so that none may be lost or left over."""
    from specsim.serving.loop import advance

    state, rules, log, _ = simulation.prepared(
        Requests(np.zeros(3), np.array([40, 5, 6]), np.array([3, 20, 1])),
        VllmEngine("0.33.0", 100),
        StepModel((StepTerm("target", 1e-3),)),
        DraftPolicy.fixed(2),
        RoundAcceptance.law([0.8, 0.6]),
        concurrency=None,
        seed=0,
        keep_rounds=True,
    )
    arrays = [each for each in (*state, *log, *rules.acceptance) if isinstance(each, np.ndarray)]
    before = [sys.getrefcount(each) for each in arrays]
    advance(state, rules, log, np.inf)
    assert state.replica["done"][0] == 3
    assert [sys.getrefcount(each) for each in arrays] == before
