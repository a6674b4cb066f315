"""TensorRT-LLM's statistics of iterations and requests, and what does not fit its formulas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specsim.checks import SpecsimError
from specsim.counts.drafts import DraftCounts, DraftTotals
from specsim.counts.step_costs import StepCosts
from specsim.engines.readers import read_text
from specsim.engines.readers.reading import Reading
from tests.support.mutations import sample
from tests.support.refusals import refuses


def read(*documents: Any) -> list[Reading]:
    return read_text("\n".join(json.dumps(each) for each in documents), "statistics")


def iteration(**drafts: float) -> dict[str, Any]:
    return {
        "iterLatencyMS": 20.0,
        "inflightBatchingStats": {"numContextRequests": 0, "numGenRequests": 4},
        "specDecodingStats": drafts,
    }


def test_figures_that_fit_no_formula_are_said_and_not_used() -> None:
    """The fixture of TensorRT-LLM's own tests: length 3.75 of 15 accepted, overhead 1.2."""
    (found,) = read_text(sample("tensorrt-llm-iteration-stats.json.txt"), "statistics")
    assert found.counts is None
    assert found.totals == DraftTotals(15, 20)
    assert found.steps == ()
    assert any("acceptanceLength 3.75 fits no number" in note for note in found.notes)
    assert any("draftOverhead 1.2 is above 1" in note for note in found.notes)


def test_iterations_give_rounds_and_step_times() -> None:
    counted, plain = read_text(sample("tensorrt-llm-iterations.jsonl.txt"), "statistics")
    assert counted.counts == DraftCounts(3, 8, 14, 24)
    costs = StepCosts.of([*counted.steps, *plain.steps])
    # Medians of 20 and 22 ms, a quarter of them drafting, and a plain step with a drafter loaded.
    assert costs.step_s(3, 4) == pytest.approx(21e-3)
    assert costs.times[0].draft_s == pytest.approx(5.25e-3)
    assert costs.plain_s(4, drafter_loaded=True) == pytest.approx(12e-3)


def test_a_list_of_iterations_is_read_like_lines() -> None:
    one = iteration(numDraftTokens=12, numAcceptedTokens=8, numRequestsWithDraftTokens=4)
    (in_lines,) = read(one, one)
    (in_a_list,) = read([one, one])
    assert in_lines == in_a_list
    assert in_lines.counts == DraftCounts(3, 8, 16, 24)


def test_draft_lengths_of_a_schedule_are_kept_apart() -> None:
    long = iteration(numDraftTokens=12, numAcceptedTokens=8, numRequestsWithDraftTokens=4)
    short = iteration(numDraftTokens=4, numAcceptedTokens=3, numRequestsWithDraftTokens=4)
    uneven = iteration(numDraftTokens=9, numAcceptedTokens=3, numRequestsWithDraftTokens=4)
    found = [each.counts for each in read(long, short, uneven, long)]
    assert found == [
        DraftCounts(1, 4, 3, 4),
        DraftCounts(3, 8, 16, 24),
        DraftCounts(None, 4, 3, 9),
    ]


def test_a_request_has_a_histogram() -> None:
    """NVIDIA/TensorRT-LLM pull request #19311: 20 steps, 30 of 60, [8, 0, 6, 6]."""
    (found,) = read_text(sample("tensorrt-llm-request.json.txt"), "request")
    assert found.counts == DraftCounts(3, 20, 30, 60, (12.0, 12.0, 6.0))
    # The same pull request: 2.5 tokens a step.
    assert found.counts.tokens_per_call == 2.5


REQUEST = {
    "acceptance_rate": 0.5,
    "total_accepted_draft_tokens": 30,
    "total_draft_tokens": 60,
    "num_spec_steps": 20,
    "acceptance_histogram": [8, 0, 6, 6],
    "num_spec_tokens": 3,
}


def test_a_response_counts_once_though_its_mean_is_beside_it() -> None:
    response = {"choices": [{"avg_decoded_tokens_per_iter": 2.5, "speculative_decoding": REQUEST}]}
    (found,) = read(response)
    assert found.counts is not None
    assert found.length is None


def test_draft_lengths_that_are_not_told_varied() -> None:
    (found,) = read(REQUEST | {"num_spec_tokens": None})
    assert found.counts is not None
    assert found.counts.gamma is None
    assert found.counts.reached == (12.0, 12.0, 6.0)
    assert any("draft_len_schedule" in note for note in found.notes)


def test_without_a_histogram_there_are_totals() -> None:
    metrics = {"acceptance_rate": 0.5, "total_accepted_draft_tokens": 30, "total_draft_tokens": 60}
    (found,) = read({"request_perf_metrics": {"speculative_decoding": metrics}})
    assert found.totals == DraftTotals(30, 60)


def test_a_report_of_trtllm_bench_has_a_length_and_no_rate() -> None:
    # Keys of tensorrt_llm/bench/dataclasses/reporting.py; draft tokens there are a maximum.
    report = {
        "decoding_stats": {
            "draft_acceptance_rate_percentiles": {"average": 0.4},
            "acceptance_length_percentiles": {"average": 2.2, "p50": 2.1},
        }
    }
    (found,) = read(report)
    assert found.length is not None
    assert found.length.tokens_per_call == 2.2
    assert found.totals is None
    assert any("upper bound" in note for note in found.notes)


def test_the_mean_of_a_response_is_its_length() -> None:
    found = read({"avg_decoded_tokens_per_iter": 2.0}, {"avg_decoded_tokens_per_iter": 3.0})
    assert [each.length.tokens_per_call for each in found if each.length] == [2.5]


test_figures_that_contradict_are_refused = refuses(
    (
        lambda: read(
            iteration(
                numDraftTokens=12,
                numAcceptedTokens=8,
                numRequestsWithDraftTokens=4,
                acceptanceLength=3.5,
            )
        ),
        "acceptanceLength is printed as 3.5, but",
    ),
    (
        lambda: read(
            iteration(numDraftTokens=3, numAcceptedTokens=1, numRequestsWithDraftTokens=4)
        ),
        "4 requests with draft tokens cannot have 3",
    ),
    (lambda: read(REQUEST | {"num_spec_steps": 21}), "has 20 steps and 30 accepted tokens, but"),
    (
        lambda: read(REQUEST | {"total_draft_tokens": 61, "acceptance_rate": None}),
        "at most num_spec_tokens = 3 in each",
    ),
    (lambda: read(REQUEST | {"acceptance_rate": 0.6}), "acceptance_rate is printed as 0.6, but"),
    error=SpecsimError,
)
