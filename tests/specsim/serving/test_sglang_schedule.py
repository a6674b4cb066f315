"""Schedules of SGLang made by hand; a step takes one second, so that times count steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.serving import (
    DraftPolicy,
    Requests,
    RoundAcceptance,
    ServingRun,
    SglangEngine,
    StepModel,
    StepTerm,
    run,
)
from specsim.serving.requests import PrefixBlocks

SECOND = StepModel((StepTerm("target", 1.0),))


def served(
    prompts: list[int],
    outputs: list[int],
    arrivals: list[float] | None = None,
    prefix: PrefixBlocks | None = None,
    **settings: Any,
) -> ServingRun:
    requests = Requests(
        np.array(arrivals or [0.0] * len(prompts)), np.array(prompts), np.array(outputs), prefix
    )
    settings = {
        "max_total_num_tokens": 1000,
        "disable_radix_cache": True,
        "disable_overlap_schedule": True,
        "disable_decode_cuda_graph": True,
    } | settings
    return run(requests, SglangEngine("0.5.23", **settings), SECOND)


def tokens(found: ServingRun) -> list[tuple[int, int]]:
    """Prefill and verified tokens of every step."""
    assert found.steps is not None
    rows = np.stack([found.steps.prefill_tokens, found.steps.verified_tokens], axis=1)
    return [(prefill, verified) for prefill, verified in rows.tolist()]


def test_a_prompt_stops_all_decodes() -> None:
    found = served([5, 7], [4, 2], arrivals=[0, 1.5])
    assert tokens(found) == [(5, 0), (0, 1), (7, 0), (0, 2), (0, 1)]
    assert found.last_token_s.tolist() == [5, 4]


def test_prompts_take_one_run_of_the_drafter_and_decodes_draft_by_their_own_number() -> None:
    """A run takes 0.1 s.  One request that decodes drafts 4 tokens, two draft 2 each."""
    runs = StepTerm("draft", [0.0, 0.1], ("gamma",), ([0, 1],))
    found = run(
        Requests(np.array([0.0, 1.5]), np.array([5, 7]), np.array([4, 2])),
        SglangEngine("0.5.23", 1000, disable_radix_cache=True, disable_overlap_schedule=True),
        StepModel((*SECOND.terms, runs)),
        DraftPolicy.by_batch([(1, 1, 4), (2, 9, 2)]),
        RoundAcceptance.law([0.0] * 4),
    )
    # The first reads, decodes; the second reads; both decode, and the second is done; the first.
    assert tokens(found) == [(5, 0), (0, 5), (7, 0), (0, 6), (0, 5)]
    assert found.steps is not None
    assert found.steps.gamma.tolist() == [1, 4, 1, 2, 4]
    assert found.steps.seconds.tolist() == pytest.approx([1.1, 1.4, 1.1, 1.2, 1.4])


def test_a_chunk_of_a_prompt_takes_a_run_of_the_drafter_before_anything_is_sampled() -> None:
    each = StepTerm("draft", 0.1, per="drafting")
    found = run(
        Requests(np.zeros(1), np.array([25]), np.array([1])),
        SglangEngine("0.5.23", 1000, chunked_prefill_size=10, disable_overlap_schedule=True),
        StepModel((*SECOND.terms, each)),
        DraftPolicy.fixed(3),
        RoundAcceptance.law([0.0] * 3),
    )
    assert found.steps is not None
    assert found.steps.seconds.tolist() == pytest.approx([1.1, 1.1, 1.1])


def test_the_last_token_of_a_prompt_is_read_and_not_decoded() -> None:
    # 8 tokens, and one more in the next step, beside a prompt of 3.  No graph holds such a step.
    model = StepModel((*SECOND.terms, StepTerm("target", 2.0, when="eager")))
    engine = SglangEngine(
        "0.5.23",
        1000,
        chunked_prefill_size=8,
        disable_radix_cache=True,
        disable_overlap_schedule=True,
    )
    found = run(Requests(np.zeros(2), np.array([9, 3]), np.array([2, 1])), engine, model)
    assert found.steps is not None
    assert tokens(found) == [(8, 0), (4, 0), (0, 1)]
    assert found.steps.decodes.tolist() == [0, 0, 1]
    assert found.steps.seconds.tolist() == [3.0, 3.0, 1.0]


def test_who_is_left_after_a_retraction_drafts_as_so_few_do() -> None:
    # 42 tokens, of which nothing is kept for what running requests may emit.  Two draft one token
    # each until they hold 21 both and want another one; the one that is left drafts three.
    found = run(
        Requests(np.array([0.0, 0.5]), np.array([10, 10]), np.array([20, 20])),
        SglangEngine(
            "0.5.23",
            42,
            schedule_conservativeness=0.0,
            disable_radix_cache=True,
            disable_overlap_schedule=True,
        ),
        SECOND,
        DraftPolicy.by_batch([(1, 1, 3), (2, 9, 1)]),
        RoundAcceptance.law([0.0] * 3),
    )
    assert found.steps is not None
    at = int(np.flatnonzero(found.steps.preempted)[0])
    assert found.steps.sequences[at - 1 : at + 1].tolist() == [2, 1]
    assert found.steps.gamma[at - 1 : at + 1].tolist() == [1, 3]
    assert tokens(found)[at - 1 : at + 1] == [(0, 4), (0, 4)]


def test_long_prompts_are_read_in_chunks_before_anybody_decodes() -> None:
    found = served([5, 25], [2, 1], chunked_prefill_size=10)
    # 5 of the first and 5 of the second, then its other 20 in two chunks, then the first decodes.
    assert tokens(found) == [(10, 0), (10, 0), (10, 0), (0, 1)]


@pytest.mark.parametrize(
    ("cache", "output", "fits", "does_not", "scheduled"),
    [
        # After the first prompt 90 of 100 tokens are free, of which 0.7 of its 40 - 1 = 39 are
        # kept, 27.3: the second has to need less than 62.7 with its output and a page, of one.
        (100, 40, (10, 51), (10, 52), 40.0),
        # 4990 of 5000 are free, of which 0.7 * 4096 = 2867.2 are kept though 4199 are still to
        # come: 2122.8 are left, which the second must stay below with its one and the page.
        (5000, 4200, (2120, 1), (2121, 1), 4200.0),
    ],
    ids=["short", "4096 at most"],
)
def test_room_is_kept_for_what_may_be_emitted(
    cache: int, output: int, fits: tuple[int, int], does_not: tuple[int, int], scheduled: float
) -> None:
    for (prompt, emitted), begins in ((fits, 1.0), (does_not, scheduled)):
        found = served(
            [10, prompt], [output, emitted], arrivals=[0, 0.5], max_total_num_tokens=cache
        )
        assert found.scheduled_s.tolist() == [0, begins]


def test_who_has_emitted_least_is_retracted_first() -> None:
    # 62 tokens, of which nothing is kept for running requests.  After 10 decodes of three all have
    # emitted 11, and 60 tokens are used.  The third has the longest prompt.  That frees 22, which
    # is room enough for the others for now.  They come to 78, so that the first goes later.
    found = served(
        [10, 8, 12],
        [30, 30, 30],
        arrivals=[0, 0.5, 1.5],
        max_total_num_tokens=62,
        schedule_conservativeness=0.0,
    )
    assert found.preemptions.tolist() == [1, 0, 1]
    assert found.steps is not None
    at = int(np.flatnonzero(found.steps.preempted)[0])
    assert at == 3 + 10
    assert found.steps.preempted[at] == 1
    assert found.steps.used_blocks[at - 1 : at + 1].tolist() == [60, 40]


def test_a_request_whose_last_token_is_in_flight_does_not_decode_again() -> None:
    found = served([3, 4], [3, 5], disable_overlap_schedule=False)
    assert tokens(found) == [(7, 0), (0, 2), (0, 2), (0, 1), (0, 1)]
    assert found.last_token_s.tolist() == [3, 5]


@pytest.mark.parametrize("overlapped", [False, True])
def test_who_waits_comes_in_as_soon_as_somebody_is_done(overlapped: bool) -> None:
    # Two at most.  The first is done with the second decode, at 3; with a step in flight one more
    # decode of the second is on its way by then.
    found = served(
        [5, 5, 5],
        [3, 9, 2],
        max_running_requests=2,
        disable_overlap_schedule=not overlapped,
    )
    expected = [(10, 0), (0, 2), (0, 2), *[(0, 1)] * overlapped, (5, 0), (0, 2)]
    assert tokens(found)[: len(expected)] == expected


def test_prompts_that_are_never_cut_come_alone_where_they_are_long() -> None:
    # 12 tokens of prompts at most in a step, but for the first, which may be longer.
    found = served([20, 7, 5, 4], [1, 1, 1, 1], chunked_prefill_size=-1, max_prefill_tokens=12)
    assert tokens(found) == [(20, 0), (7, 0), (9, 0)]


def test_a_step_whose_tokens_are_used_up_leaves_the_batch_open() -> None:
    # Two at most.  The second reads all 10 tokens that a step may read, and is done with it.  That
    # nobody else could run was not asked then: the third reads its prompt at once.
    found = served(
        [3, 10, 5],
        [5, 1, 1],
        arrivals=[0, 0.5, 0.5],
        max_prefill_tokens=10,
        max_running_requests=2,
    )
    assert tokens(found)[:4] == [(3, 0), (10, 0), (5, 0), (0, 1)]


def test_queues_of_up_to_128_are_served_by_what_is_cached() -> None:
    # One at a time.  The last has half its prompt in the cache, and comes first; of 129 that wait
    # it comes second, when 128 are left.
    for count, place in ((128, 0), (129, 1)):
        own = [[1, 2], *([100 + number] for number in range(count - 1)), [1, 3]]
        starts = np.concatenate([[0], np.cumsum([len(each) for each in own])])
        found = served(
            [4] * (count + 1),
            [1] * (count + 1),
            arrivals=[0.0] + [5.0] * count,
            prefix=PrefixBlocks(np.concatenate(own), starts, 2),
            max_running_requests=1,
            max_total_num_tokens=10_000,
            disable_radix_cache=False,
            schedule_policy="lpm",
        )
        assert found.cached_tokens.tolist() == [0] * count + [2]
        assert np.argsort(found.scheduled_s[1:]).tolist().index(count - 1) == place


@pytest.mark.parametrize(("overlapped", "whole"), [(False, 3), (True, 4)])
def test_a_prompt_is_found_in_the_cache_when_the_step_that_read_it_is_over(
    overlapped: bool, whole: int
) -> None:
    # Behind one that is unlike them two read the same prompt in one step; the next in the step
    # behind it, which with a step in flight is planned before that one is over; the last later.
    own = [[8, 9], *[[1, 2]] * 4]
    found = served(
        [4] * 5,
        [9] * 5,
        arrivals=[0.0, 0.5, 0.5, 1.5, 3.5],
        prefix=PrefixBlocks(np.concatenate(own), np.arange(0, 11, 2), 2),
        disable_radix_cache=False,
        disable_overlap_schedule=not overlapped,
    )
    assert found.cached_tokens.tolist() == [0] * whole + [3] * (5 - whole)


def test_a_chunk_is_found_when_the_next_step_is_planned() -> None:
    # The first reads 4 tokens in the first step, 4 in the next, beside which the second would find
    # all that is in the cache by then.
    found = served(
        [6, 6],
        [2, 2],
        arrivals=[0.0, 0.5],
        prefix=PrefixBlocks(np.array([1, 2, 3, 1, 2, 4]), np.array([0, 3, 6]), 2),
        chunked_prefill_size=4,
        disable_radix_cache=False,
        disable_overlap_schedule=False,
    )
    assert found.cached_tokens.tolist() == [0, 4]


def test_a_retracted_request_finds_its_prompt_and_nothing_that_it_emitted() -> None:
    # Two fill 42 tokens.  The first needs three more, of the last that the other one leaves behind,
    # which then reads the 12 that it had emitted, and none of its prompt.
    found = served(
        [10, 10],
        [14, 20],
        arrivals=[0, 0.5],
        max_total_num_tokens=42,
        schedule_conservativeness=0.0,
        disable_radix_cache=False,
    )
    assert found.preemptions.tolist() == [0, 1]
    assert found.steps is not None
    assert [each for each in found.steps.prefill_tokens.tolist() if each] == [10, 10, 12]


def test_a_request_that_is_never_admitted_is_refused() -> None:
    # Of 64 tokens in pages of 16 one is left over behind 47 and a page.
    paged = {"max_total_num_tokens": 64, "page_size": 16}
    assert served([40], [7], **paged).last_token_s.tolist() == [7]
    with pytest.raises(
        InvalidArgumentError,
        match=r"<= 63 tokens .* KV cache holds, got 64 at index 0 with the 16 that it keeps free",
    ):
        served([40], [8], **paged)
    # However few the model takes.
    with pytest.raises(InvalidArgumentError, match="all that the KV cache holds, got 101"):
        served([60], [40], max_total_num_tokens=101, context_length=100)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"SGLang 0\.4 is not known here"):
        SglangEngine("0.4", 1000)
    with pytest.raises(InvalidArgumentError, match="chunked_prefill_size must be a multiple"):
        SglangEngine("0.5.23", 1000, page_size=16, chunked_prefill_size=100)
    with pytest.raises(InvalidArgumentError, match="all that the KV cache holds, got 103"):
        served([60], [42], max_total_num_tokens=101)
