"""What SGLang prints, read; the numbers are those that each sample's own figures state."""

from __future__ import annotations

import json

import pytest

from specsim.checks import SpecsimError
from specsim.engines.readers import read_text
from specsim.engines.readers.reading import Reading
from tests.support.mutations import sample
from tests.support.refusals import refuses


def read(text: str) -> list[Reading]:
    return read_text(text, "a file")


def test_log_lines_are_weighted_by_running_requests() -> None:
    (reading,) = read(sample("sglang-log.txt"))
    assert reading.counts is None
    assert reading.length is not None
    # 32, 8, 8, 48, 3 and 1 running requests of the six lines.
    weights, lengths = (32, 8, 8, 48, 3, 1), (2.54, 2.90, 2.65, 1.00, 1.67, 5.30)
    mean = sum(w * x for w, x in zip(weights, lengths, strict=True)) / 100
    assert reading.length.tokens_per_call == pytest.approx(mean, rel=1e-12)
    assert (reading.length.weight, reading.length.weight_of) == (100, "running requests")


def test_log_lines_time_steps_of_a_length_that_they_do_not_tell() -> None:
    (reading,) = read(sample("sglang-log.txt"))
    steps = {step.batch: step for step in reading.steps}
    # Running requests times length / throughput: 1 * 5.30 / 167.04 s; two lines have 8 requests.
    assert steps[1].seconds == pytest.approx(5.30 / 167.04, rel=1e-12)
    assert steps[8].seconds == pytest.approx((8 * 2.90 / 171.01 + 8 * 2.65 / 155.80) / 2, rel=1e-12)
    assert (steps[8].steps, steps[8].gamma) == (2, None)


def test_log_lines_may_number_their_batch() -> None:
    (reading,) = read("Decode batch [124], #running-req: 18, #token: 9, accept len: 2.40, x: 1")
    assert reading.length is not None
    assert (reading.length.tokens_per_call, reading.length.weight) == (2.4, 18)


def test_log_lines_without_a_length_are_plain_steps() -> None:
    line = (
        "Decode batch, #running-req: 4, #token: 9, gen throughput (token/s): 200.00, #queue-req: 0"
    )
    (reading,) = read(line)
    (step,) = reading.steps
    assert (reading.length, step.gamma, step.batch, step.seconds) == (None, 0, 4, 0.02)


def test_windows_with_rests_are_left_out() -> None:
    """One that holds a rest prints the throughput of it; one that begins with more requests than
    it ends with a larger one than it has.
    """
    line = "Decode batch, #running-req: 4, #token: 9, gen throughput (token/s): {}, #queue-req: 0"
    (reading,) = read("\n".join(line.format(rate) for rate in (200.0, 0.5, 210.0, 190.0, 900.0)))
    (step,) = reading.steps
    assert (step.batch, step.steps) == (4, 4)
    assert step.seconds == pytest.approx((4 / 200 + 4 / 210) / 2)
    assert "1 window with rests in between left out" in reading.notes


def test_requests_of_three_generations() -> None:
    newest, oldest = read(sample("sglang-request-meta.json.txt"))
    for reading in (newest, oldest):
        assert (reading.engine, reading.acceptance_law) == ("sglang", "greedy-drafts")
    # 43 rounds of 5 drafts; the histogram 11, 14, 11, 4, 0, 3 sums from the end.
    assert newest.counts is not None
    assert (newest.counts.gamma, newest.counts.rounds, newest.counts.accepted) == (5, 43, 63)
    assert newest.counts.reached == (32, 18, 7, 3, 3)
    assert newest.counts.tokens_per_call == 2.4651162790697674  # spec_accept_length
    # 940 / 188 drafts a round.
    assert oldest.counts is not None
    assert (oldest.counts.gamma, oldest.counts.rounds, oldest.counts.accepted) == (5, 188, 11)
    assert oldest.counts.reached == ()
    middle = {
        "spec_verify_ct": 3,
        "spec_accepted_drafts": 4,
        "spec_proposed_drafts": 9,
        "spec_accept_histogram": [1, 0, 2],
    }
    (reading,) = read(json.dumps([{"text": "", "meta_info": middle}]))
    assert reading.counts is not None
    assert (reading.counts.gamma, reading.counts.reached) == (3, (2, 2, 0))


def test_lengths_of_the_benchmark_are_over_the_servers_life() -> None:
    found = read(sample("sglang-bench-serving.txt"))
    # "Accept length: 2.52" and "5.86".
    assert [each.length.tokens_per_call for each in found if each.length] == [2.52, 5.86]
    assert all(each.span == "server" for each in found)
    assert all(any("server's life" in note for note in each.notes) for each in found)


def test_results_of_the_benchmark_in_lines_of_json() -> None:
    drafted = {"backend": "sglang", "accept_length": 2.5, "dataset_name": "random-ids"}
    plain = {"accept_length": None, "max_concurrency": 16, "median_itl_ms": 8.0}
    first, second = read(f"{json.dumps(drafted)}\n{json.dumps(plain)}\n")
    assert first.length is not None
    assert first.length.tokens_per_call == 2.5
    assert any("random tokens" in note for note in first.notes)
    (step,) = second.steps
    assert (second.length, step.gamma, step.batch, step.seconds) == (None, 0, 16, 0.008)


@pytest.mark.parametrize(
    ("settings", "gamma"),
    [
        (
            {
                "speculative_num_steps": 3,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": 4,
            },
            3,
        ),
        ({"speculative_num_steps": 3, "speculative_eagle_topk": 4}, None),
        ({}, None),
    ],
)
def test_server_info_averages_its_ranks(settings: dict[str, int], gamma: int | None) -> None:
    states = [{"avg_spec_accept_length": 2.5}, {"avg_spec_accept_length": 3.0}]
    (reading,) = read(json.dumps({**settings, "internal_states": states}))
    assert reading.length is not None
    assert (reading.length.gamma, reading.length.tokens_per_call) == (gamma, 2.75)


META = {
    "spec_verify_ct": 4,
    "spec_num_correct_drafts": 4,
    "spec_num_proposed_drafts": 12,
    "spec_correct_drafts_histogram": [2, 0, 2],
}


def meta(**changed: object) -> list[Reading]:
    return read(json.dumps({**META, **changed}))


test_contradictions_are_refused = refuses(
    (lambda: meta(spec_correct_drafts_histogram=[3, 0, 2]), "4 rounds and 4 accepted .* 5 and 4"),
    (lambda: meta(spec_num_correct_drafts=13), "accepted must be at most"),
    (lambda: meta(spec_accept_length=3.9), "spec_accept_length is 3.9, but 4 rounds accepted 4"),
    (lambda: meta(spec_accept_rate=0.9), "spec_accept_rate is 0.9, but 4 of 12"),
    (lambda: meta(spec_num_proposed_drafts=None), "give its meta_info whole"),
    (lambda: read("Decode batch. #running-req: 3, accept len: 0.7, "), ">= 1, got 0.7"),
    (lambda: read("Decode batch. #running-req: x, accept len: 1.7, "), "got 'x'"),
    (
        lambda: read('{"internal_states": [{"avg_spec_accept_length": null}]}'),
        "nothing was drafted",
    ),
    error=SpecsimError,
)


def test_an_older_rate_is_length_over_slots() -> None:
    # Before sgl-project/sglang pull request 23530: 2 tokens a round over 4 slots.
    (reading,) = meta(spec_accept_rate=0.5, spec_accept_length=2.0)
    assert reading.counts is not None
    assert reading.counts.accepted == 4
