"""The compiled loop against the plain one, to the last bit, on random configurations."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings

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
    conf.assert_conserved(found)


@settings(max_examples=75, suppress_health_check=list(HealthCheck))
@given(conf.configurations("vllm"))
def test_vllm_is_its_twin(configuration: dict[str, Any]) -> None:
    check(configuration)


@settings(max_examples=75, suppress_health_check=list(HealthCheck))
@given(conf.configurations("sglang"))
def test_sglang_is_its_twin(configuration: dict[str, Any]) -> None:
    check(configuration)
