"""Results of AIPerf, GuideLLM and vllm bench forward."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specsim.checks import SpecsimError
from specsim.counts.drafts import DraftCounts
from specsim.counts.step_costs import StepCosts
from specsim.counts.steps import StepTime
from specsim.engines.readers import read_text
from specsim.engines.readers.reading import Reading
from tests.support.mutations import sample, without_header
from tests.support.refusals import refuses

AIPERF = "aiperf-profile-export.json.txt"
GUIDELLM = "guidellm-benchmarks.json.txt"
FORWARD = "vllm-bench-forward.json.txt"


def read(name: str) -> list[Reading]:
    return read_text(sample(name), name)


def changed(name: str, **changes: Any) -> list[Reading]:
    """The readings of a sample with other values at its top."""
    return read_text(json.dumps(json.loads(without_header(name)) | changes), name)


def test_aiperf_pools_requests_in_a_histogram() -> None:
    """ai-dynamo/aiperf's own test of it: 11 steps, 20 of 44 accepted, {2, 3, 2, 3, 1}."""
    (found,) = read(AIPERF)
    assert found.engine == "aiperf"
    assert found.counts == DraftCounts(4, 11, 20, 44, (9.0, 6.0, 4.0, 1.0))
    assert found.counts.tokens_per_call == pytest.approx(1 + 20 / 11)
    assert found.steps == (StepTime(4, 8.0, 0.020),)


def test_aiperf_with_a_few_short_drafts_has_their_length() -> None:
    """vLLM counts no drafts that a grammar ruled out, so drafted falls short of K a round."""
    bins = {"0": 20, "1": 30, "2": 20, "3": 30}
    few, many = (
        changed(
            AIPERF,
            pooled_spec_decode_acceptance_histogram=bins,
            total_spec_decode_steps={"avg": 100},
            total_accepted_draft_tokens={"avg": 160},
            total_draft_tokens={"avg": drafted},
            spec_decode_token_weighted_acceptance_length={"avg": 2.6},
        )
        for drafted in (297, 250)
    )
    assert [each.counts.gamma for each in (*few, *many) if each.counts] == [3, None]


def test_aiperf_without_a_fixed_concurrency_has_littles() -> None:
    (found,) = changed(AIPERF, input_config=None)
    # 4 requests a second of 2 s each
    assert [step.batch for step in found.steps] == [8.0]
    assert any("Little" in note for note in found.notes)


def test_aiperf_without_drafts_does_not_say_that_none_were_made() -> None:
    (found,) = changed(
        AIPERF, pooled_spec_decode_acceptance_histogram=None, total_spec_decode_steps=None
    )
    assert found.counts is None
    assert [step.gamma for step in found.steps] == [None]
    assert any("not known" in note for note in found.notes)


def test_guidellm_passes_vllms_metrics_through() -> None:
    (found,) = read(GUIDELLM)
    assert found.engine == "guidellm"
    # vllm-project/vllm pull request #48915: [39, 1, 0, 3]; and [10, 5, 0, 5]
    assert found.counts == DraftCounts(3, 63, 30, 189, (14.0, 8.0, 8.0))
    (step,) = found.steps
    assert (step.gamma, step.batch, step.seconds) == (3, 2.0, pytest.approx(0.020))


def test_guidellm_without_a_fixed_concurrency_has_the_mean() -> None:
    text = without_header(GUIDELLM).replace("streams", "other").replace("2.0", "7.5", 1)
    (found,) = read_text(text, GUIDELLM)
    assert [step.batch for step in found.steps] == [7.5]
    assert any("mean number of requests under way" in note for note in found.notes)


def test_guidellm_without_metrics_gives_steps_of_no_known_draft_length() -> None:
    text = without_header(GUIDELLM).replace("response_metrics", "other_metrics")
    (found,) = read_text(text, GUIDELLM)
    assert found.counts is None
    assert [step.gamma for step in found.steps] == [None]


def test_forward_times_give_the_law_of_a_step() -> None:
    """8 ms plain, 0.25 ms a verified token, 11 ms a step with 4 drafts: so 0.5 ms a draft."""
    target, whole = read(FORWARD), read("vllm-bench-forward-with-drafter.json.txt")
    costs = StepCosts.of([step for each in (*target, *whole) for step in each.steps])
    assert costs.plain_s(2) == pytest.approx(8e-3)
    line = costs.line(2, fixed_s=0.0)
    assert line.per_draft_s == pytest.approx(0.75e-3)
    assert line.draft_run_s == pytest.approx(0.5e-3)
    assert line.verify_slope_s == pytest.approx(0.25e-3)


def test_forward_cases_that_are_no_step_are_left_out() -> None:
    (target,) = read(FORWARD)
    assert [(step.gamma, step.draft_s) for step in target.steps] == [(0, None), (2, 0.0), (4, 0.0)]
    assert {step.context for step in target.steps} == {1024.0}
    assert any("1 of 4 cases" in note and "prompts" in note for note in target.notes)
    # The drafter makes its 4 tokens also where 2 are verified.
    (whole,) = read("vllm-bench-forward-with-drafter.json.txt")
    assert [step.gamma for step in whole.steps] == [4]


def histogram(**bins: int) -> dict[str, Any]:
    return {"pooled_spec_decode_acceptance_histogram": {key[1:]: n for key, n in bins.items()}}


test_figures_that_contradict_are_refused = refuses(
    (
        lambda: changed(AIPERF, **histogram(_0=3, _1=3, _2=2, _3=3, _4=1)),
        "total_spec_decode_steps is 11, but the histogram gives 12",
    ),
    (
        lambda: changed(AIPERF, **histogram(_0=3, _1=2, _2=2, _3=3, _4=1)),
        "total_accepted_draft_tokens is 20, but the histogram gives 19",
    ),
    (lambda: changed(AIPERF, total_draft_tokens={"avg": 19}), "accepted must be at most"),
    (
        lambda: changed(AIPERF, inter_chunk_latency={"unit": "tokens", "p50": 3}),
        "the unit 'tokens' of inter_chunk_latency is not known",
    ),
    (
        lambda: read_text(
            without_header(GUIDELLM).replace("[39,", "[38,").replace("39,", "38,"), ""
        ),
        "num_spec_steps = 43, got 42",
    ),
    (
        lambda: read_text(without_header(FORWARD).replace("target_only", "unknown"), ""),
        "must say its timing_scope",
    ),
    error=SpecsimError,
)
