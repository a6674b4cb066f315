"""Schedules of vLLM V1 made by hand: each rule alone, every step as it must be.

A step takes one second, so that times count steps.
"""

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
    StepModel,
    StepTerm,
    VllmEngine,
    run,
)
from specsim.serving.requests import PrefixBlocks
from specsim.serving.simulation import prepared

SECOND = StepModel((StepTerm("target", 1.0),))
ALL_STAND, NONE_STANDS = RoundAcceptance.law([1.0] * 8), RoundAcceptance.law([0.0] * 8)


def served(
    prompts: list[int],
    outputs: list[int],
    arrivals: list[float] | None = None,
    drafts: DraftPolicy | None = None,
    acceptance: RoundAcceptance | None = None,
    prefix: PrefixBlocks | None = None,
    **settings: Any,
) -> ServingRun:
    requests = Requests(
        np.array(arrivals or [0.0] * len(prompts)), np.array(prompts), np.array(outputs), prefix
    )
    settings = {
        "num_gpu_blocks": 1001,
        "max_num_batched_tokens": 10,
        "max_num_seqs": 4,
        "block_size": 4,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "enforce_eager": True,
    } | settings
    engine = VllmEngine(settings.pop("version", "0.33.0"), **settings)
    return run(requests, engine, SECOND, drafts, acceptance, keep=("steps", "rounds"))


def tokens(found: ServingRun) -> list[tuple[int, int]]:
    """Prefill and verified tokens of every step."""
    assert found.steps is not None
    rows = np.stack([found.steps.prefill_tokens, found.steps.verified_tokens], axis=1)
    return [(prefill, verified) for prefill, verified in rows.tolist()]


def test_running_first_then_chunks_of_those_that_wait_in_one_budget() -> None:
    # Of 10 tokens the first prompt takes 7, the second 3; then the first decodes (1), the second
    # reads the other 9 of its 12, and the third has to wait for a whole step.
    found = served([7, 12, 5], [3, 2, 1])
    assert tokens(found) == [(10, 0), (9, 1), (5, 2)]
    assert found.first_token_s.tolist() == [1, 2, 3]
    assert found.last_token_s.tolist() == [3, 3, 3]
    assert found.scheduled_s.tolist() == [0, 0, 2]


def test_drafting_takes_slots_of_the_budget() -> None:
    # One slot for each request of a step: the second prompt gets 1, 7 and 4 tokens, and the third
    # the 2 that are left then.  Earlier versions, and drafters without slots, as above.
    drafts = DraftPolicy(((1, 1, 0),), slots_for_drafting=1)
    found = served([7, 12, 5], [3, 2, 1], drafts=drafts)
    assert tokens(found) == [(8, 0), (7, 1), (6, 1), (3, 1)]
    before = served([7, 12, 5], [3, 2, 1], drafts=drafts, version="0.28.0")
    assert tokens(before) == [(10, 0), (9, 1), (5, 2)]
    with pytest.raises(InvalidArgumentError, match="max_num_batched_tokens must be > 10, the slo"):
        served([1], [1], drafts=DraftPolicy(((1, 1, 0),), slots_for_drafting=10))


def test_long_prompts_are_cut_at_the_threshold() -> None:
    # A last single token is read like that of a decode.  The second is still there then.
    found = served([9, 1], [1, 3], long_prefill_token_threshold=4)
    assert tokens(found) == [(5, 0), (4, 1), (0, 2)]
    assert found.first_token_s.tolist() == [3, 1]


def test_a_threshold_of_one_token_is_one() -> None:
    found = served([3, 2], [1, 2], long_prefill_token_threshold=1)
    assert tokens(found) == [(2, 0), (1, 1), (0, 2)]
    assert found.first_token_s.tolist() == [3, 2]


@pytest.mark.parametrize(
    ("version", "whole"), [("0.28.0", [(4, 0), (4, 0), (0, 1)]), ("0.32.0", [(9, 0)])]
)
def test_the_prompt_of_a_request_that_is_alone_is_not_cut(
    version: str, whole: list[tuple[int, int]]
) -> None:
    """vLLM 0.32.0, v1/core/sched/scheduler.py: the threshold is for those that would wait."""
    found = served([9], [1], long_prefill_token_threshold=4, version=version)
    assert tokens(found) == whole
    # Beside one that waits it is cut, until that one is done.
    found = served([9, 1], [1, 1], long_prefill_token_threshold=4, version="0.32.0")
    assert tokens(found) == [(5, 0), (5, 0)]


def test_with_a_step_in_flight_the_limit_of_the_model_cuts_drafts() -> None:
    # 4 + 4 tokens, all that the model takes.  Of three drafts two fit into the second step, which
    # is planned with the first in flight; behind it there is no room until the two are rejected.
    # Then there is room for one.
    found = served(
        [4],
        [4],
        drafts=DraftPolicy.fixed(3),
        acceptance=NONE_STANDS,
        async_scheduling=True,
        max_model_len=8,
    )
    assert tokens(found) == [(4, 0), (0, 3), (0, 2), (0, 1)]
    assert found.rounds.tolist() == [4]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_who_finds_no_token_left_keeps_its_drafts(asynchronous: bool) -> None:
    """Rounds of 1 + 3 tokens: of 7 the second gets 3, and the third none until the first is done,
    but then 3 as well.  vLLM 0.32.0, v1/core/sched/scheduler.py and async_scheduler.py: drafts are
    those of the last step that a request was in.
    """
    found = served(
        [1, 1, 1],
        [9, 9, 9],
        drafts=DraftPolicy.fixed(3),
        acceptance=ALL_STAND,
        async_scheduling=asynchronous,
        max_num_batched_tokens=7,
    )
    # With a step in flight the first is in one more.
    assert tokens(found) == [(3, 0), *[(0, 7)] * (3 + asynchronous), (0, 4), (0, 4)]
    assert found.rounds.tolist() == [3, 4, 4]


def test_without_chunks_a_prompt_waits_for_its_whole_budget_and_none_passes_it() -> None:
    found = served([7, 8, 1], [1, 1, 1], enable_chunked_prefill=False)
    assert tokens(found) == [(7, 0), (9, 0)]


def test_no_more_sequences_than_allowed() -> None:
    found = served([1, 1, 1], [2, 2, 1], max_num_seqs=2)
    assert found.scheduled_s.tolist() == [0, 0, 2]


def test_who_arrives_in_a_step_waits_for_its_end() -> None:
    found = served([1, 1], [3, 1], arrivals=[0.0, 0.5])
    assert found.scheduled_s.tolist() == [0, 1]
    assert found.ttft_s.tolist() == [1, 1.5]


def test_with_a_step_in_flight_who_arrives_waits_for_two() -> None:
    # Step 2 was planned at 0, when step 1 was submitted; the request at 0.5 is in the third.  The
    # first needs no fourth step: that its third token comes in step 3 is sure.
    found = served([1, 1], [3, 1], arrivals=[0.0, 0.5], async_scheduling=True)
    assert found.scheduled_s.tolist() == [0, 1]
    assert found.first_token_s.tolist() == [1, 3]
    assert found.last_token_s.tolist() == [3, 3]
    assert found.step_count == 3


def test_who_is_told_first_is_followed_first() -> None:
    """Two at a time, and a first token takes 10 s to its client for each that decodes beside it.

    The third request is done at 3 and known to be at 13, the first is both at 4.
    """
    requests = Requests(np.zeros(5), np.ones(5), np.array([4, 2, 1, 1, 1]))
    engine = VllmEngine(
        "0.33.0", 1001, async_scheduling=False, enable_prefix_caching=False, enforce_eager=True
    )
    found = run(
        requests,
        engine,
        StepModel((StepTerm("target", 1.0),), frontend_decode_s=10.0),
        concurrency=2,
    )
    assert found.arrival_s.tolist() == [0, 0, 2, 4, 13]
    assert found.scheduled_s.tolist() == [0, 0, 2, 4, 13]
    assert found.last_token_s.tolist() == [4, 2, 13, 5, 14]


def test_a_speculating_request_takes_its_drafts_from_the_budget() -> None:
    # The last chunk gives the first token and no more; then rounds of 1 + 3 emit 4 each.  While
    # both speculate 8 of 10 tokens are theirs, and 2 are left for the third prompt.
    found = served([2, 2, 6], [9, 9, 1], drafts=DraftPolicy.fixed(3), acceptance=ALL_STAND)
    assert tokens(found) == [(10, 0), (0, 8), (0, 8)]
    assert found.rounds.tolist() == [3, 3, 1]
    found = served([3, 3, 6], [9, 9, 1], drafts=DraftPolicy.fixed(3), acceptance=ALL_STAND)
    assert tokens(found) == [(10, 0), (2, 8), (0, 8)]


def test_a_step_that_is_in_flight_at_the_end_keeps_nobody_busy() -> None:
    # Three steps emit 1, 4 and 4 tokens; that these are the last ones nobody knew when the fourth
    # was planned.
    found = served(
        [5], [9], drafts=DraftPolicy.fixed(3), acceptance=ALL_STAND, async_scheduling=True
    )
    assert found.step_count == 4
    assert found.makespan_s == 3.0
    assert found.busy_s == pytest.approx(3.0)


def test_drafts_are_cut_where_the_budget_ends() -> None:
    found = served(
        [1, 1, 1],
        [5, 5, 5],
        drafts=DraftPolicy.fixed(3),
        acceptance=ALL_STAND,
    )  # 4 + 4 + 2 of 10 tokens; the third emits 2, and 3 drafts are more than it then needs
    assert tokens(found) == [(3, 0), (0, 10), (0, 4)]
    assert found.rounds.tolist() == [2, 2, 3]


def test_rejected_drafts_are_computed_again() -> None:
    found = served([1], [3], drafts=DraftPolicy.fixed(3), acceptance=NONE_STANDS)
    assert tokens(found) == [(1, 0), (0, 4), (0, 4)]


def test_gamma_follows_the_requests_of_the_step_that_drafts() -> None:
    # Two requests draft 1 each; alone the second drafts 4 from its next step on.
    policy = DraftPolicy.by_batch([(1, 1, 4), (2, 9, 1)])
    found = served([1, 1], [2, 12], drafts=policy, acceptance=NONE_STANDS)
    assert tokens(found)[:4] == [(2, 0), (0, 4), (0, 2), (0, 5)]


def test_the_last_of_running_is_preempted_and_comes_back_first() -> None:
    # 4 blocks of 4 tokens.  Both prompts of 6 take two.  After three tokens each (computed 8) both
    # want a third block: the first takes what the second, last of running, gives up.  The third
    # request must not pass the second, which needs room for its 6 + 3 tokens.
    found = served(
        [6, 6, 1], [5, 4, 1], arrivals=[0, 0, 2.5], max_num_batched_tokens=12, num_gpu_blocks=5
    )
    assert found.steps is not None
    assert tokens(found) == [(12, 0), (0, 2), (0, 2), (0, 1), (0, 1), (10, 0)]
    assert found.steps.preempted.tolist() == [0, 0, 0, 1, 0, 0]
    assert found.preemptions.tolist() == [0, 1, 0]
    assert found.steps.used_blocks.tolist() == [4, 4, 4, 3, 3, 4]
    assert found.last_token_s.tolist() == [5, 6, 6]


def test_who_is_preempted_with_its_last_token_in_flight_leaves_the_queue() -> None:
    # 4 blocks of 4 tokens.  The fourth step is planned with the second's third and last token in
    # flight; the first wants a third block and takes it from the second.  When that token is there
    # the second waits no more, and the third, which waited behind it, is next.
    found = served(
        [6, 6, 2],
        [6, 3, 2],
        arrivals=[0, 0, 0.5],
        async_scheduling=True,
        max_num_batched_tokens=12,
        num_gpu_blocks=5,
    )
    assert found.steps is not None
    assert tokens(found) == [(12, 0), (0, 2), (0, 2), (0, 1), (2, 1), (0, 2)]
    assert found.steps.preempted.tolist() == [0, 0, 0, 1, 0, 0]
    assert found.steps.waiting.tolist() == [0, 0, 1, 2, 0, 0]
    assert found.preemptions.tolist() == [0, 1, 0]
    assert found.last_token_s.tolist() == [6, 3, 6]


def test_blocks_are_kept_ready_for_drafts() -> None:
    # 5 tokens of the prompt, looking 3 ahead, are two blocks; a round of 1 + 3 needs 12 slots.
    found = served([5], [3], drafts=DraftPolicy.fixed(3), acceptance=ALL_STAND)
    assert found.steps is not None
    assert found.steps.used_blocks.tolist() == [2, 3]
    further = DraftPolicy(((1, 1, 3),), looks_one_further=True)
    found = served([6], [3], drafts=DraftPolicy.fixed(3), acceptance=ALL_STAND)
    assert found.steps is not None
    assert found.steps.used_blocks.tolist() == [3, 4]  # 6 + 3 and 6 + 4 + 3 slots
    found = served([5], [3], drafts=further, acceptance=ALL_STAND)
    assert found.steps is not None
    assert found.steps.used_blocks.tolist() == [3, 4]  # 5 + 4 and 5 + 4 + 4


@pytest.mark.parametrize(("version", "scheduled"), [("0.19.0", 1.0), ("0.33.0", 3.0)])
def test_a_prompt_is_admitted_only_where_its_drafts_fit(version: str, scheduled: float) -> None:
    """9 blocks of 4.  The first request holds 8 tokens, and from the second step on 16 slots, in 4
    blocks; the second prompt of 20 is 5 blocks, and a sixth for 3 drafts.  vLLM 0.19.0 looked ahead
    for running requests alone.
    """
    found = served(
        [8, 20],
        [3, 1],
        [0.0, 0.5],
        drafts=DraftPolicy.fixed(3),
        acceptance=NONE_STANDS,
        version=version,
        max_num_batched_tokens=100,
        num_gpu_blocks=10,
    )
    assert found.scheduled_s.tolist() == [0.0, scheduled]


def test_a_prompt_is_admitted_only_where_all_of_it_fits() -> None:
    # 6 blocks of 4.  In the second step the first request has 3, and the second prompt of 16 could
    # have a chunk of 7, in 2, but not all of its 4 until the first is done.
    for reserves, scheduled in ((True, 3.0), (False, 1.0)):
        found = served(
            [8, 16],
            [3, 1],
            max_num_batched_tokens=8,
            num_gpu_blocks=7,
            scheduler_reserve_full_isl=reserves,
        )
        assert found.scheduled_s.tolist() == [0, scheduled]


def test_shared_blocks_are_not_computed_again() -> None:
    # The second prompt has the first's blocks 1 and 2, the third all three of its own 12 tokens:
    # of those at least one token has to be computed, so that the third block is read again.
    prefix = PrefixBlocks(np.array([1, 2, 3, 1, 2, 4, 1, 2, 3]), np.array([0, 3, 6, 9]), 4)
    found = served(
        [12, 12, 12],
        [1, 1, 1],
        arrivals=[0, 5, 6],
        prefix=prefix,
        enable_prefix_caching=True,
        max_num_batched_tokens=20,
    )
    assert found.cached_tokens.tolist() == [0, 8, 8]
    assert tokens(found) == [(12, 0), (4, 0), (4, 0)]
    head = DraftPolicy.fixed(0, drops_last_cached_block=True)
    found = served(
        [12, 12, 12],
        [1, 1, 1],
        arrivals=[0, 5, 6],
        prefix=prefix,
        drafts=head,
        enable_prefix_caching=True,
        max_num_batched_tokens=20,
    )
    assert found.cached_tokens.tolist() == [0, 4, 4]


def test_smaller_blocks_of_prompts_are_joined_to_those_of_the_engine() -> None:
    # Blocks of 2 tokens, of which the engine's 4 hold two: the second prompt has the first's four
    # first, and the third its three first, of which the engine finds two.
    prefix = PrefixBlocks(
        np.array([1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 15, 16, 1, 2, 3, 24, 25]),
        np.array([0, 6, 12, 17]),
        2,
    )
    given: Any = {"enable_prefix_caching": True, "max_num_batched_tokens": 20}
    found = served([12, 12, 11], [1, 1, 1], arrivals=[0, 5, 6], prefix=prefix, **given)
    assert found.cached_tokens.tolist() == [0, 8, 4]
    odd = PrefixBlocks(np.array([1, 2]), np.array([0, 2]), 3)
    with pytest.raises(InvalidArgumentError, match="a multiple of block_size, 4, or go into it, g"):
        served([6], [1], prefix=odd, **given)


def test_the_longest_free_block_is_forgotten_first() -> None:
    # 6 blocks.  Requests 0 and 1 leave three each (the last of a request first in line); request 2
    # takes four: 0's, from its last to its first, and 1's last.  So 3 finds nothing of 0, and 4 two
    # blocks of 1, if the two that 3 took are not among them.
    prefix = PrefixBlocks(
        np.array([1, 2, 3, 11, 12, 13, 21, 22, 23, 24, 11, 12]), np.array([0, 3, 6, 10, 12]), 4
    )
    found = served(
        [12, 12, 16, 9],
        [1, 1, 1, 1],
        arrivals=[0, 5, 10, 15],
        prefix=prefix,
        enable_prefix_caching=True,
        max_num_batched_tokens=20,
        num_gpu_blocks=7,
    )
    assert found.cached_tokens.tolist() == [0, 0, 0, 8]


@pytest.mark.parametrize(
    ("version", "sizes"),
    [
        # 1 + 2 tokens a request: sizes rounded up to multiples of 3, or those of 1, 2 and 4
        # requests beside them
        ("0.28.0", [3, 6, 9, 18, 24]),
        ("0.33.0", [1, 2, 3, 4, 6, 8, 12, 16, 24]),
    ],
)
def test_graph_sizes(version: str, sizes: list[int]) -> None:
    engine = VllmEngine(version, 100, max_num_seqs=4, max_num_batched_tokens=2048)
    assert engine.capture_sizes(DraftPolicy.fixed(2)).tolist() == sizes
    assert engine.capture_sizes(DraftPolicy.off()).tolist() == [1, 2, 4, 8]
    large = VllmEngine(version, 100, max_num_seqs=256).capture_sizes(DraftPolicy.off())
    assert large[-3:].tolist() == [480, 496, 512]
    assert large.size == 3 + 31 + 17


@pytest.mark.parametrize(
    "sizes",
    [
        (4, 8),
        (4, 16),  # vLLM makes none of more tokens than a step may hold, 9
    ],
)
def test_beyond_the_largest_graph_steps_are_eager(sizes: tuple[int, ...]) -> None:
    model = StepModel(
        (
            StepTerm("target", 1.0, per="padded_tokens", when="graph"),
            StepTerm("target", 100.0, when="eager"),
        )
    )
    requests = Requests(np.zeros(3), np.array([5, 3, 1]), np.array([1, 2, 2]))
    engine = VllmEngine(
        "0.33.0",
        100,
        9,
        3,
        enable_prefix_caching=False,
        async_scheduling=False,
        cudagraph_capture_sizes=sizes,
    )
    found = run(requests, engine, model)
    assert found.steps is not None
    assert found.steps.seconds.tolist() == [100.0, 4.0]
    assert found.steps.eager.tolist() == [1, 0]


def test_a_cache_that_is_never_full_takes_no_memory_for_its_rest() -> None:
    prefix = PrefixBlocks(np.array([1, 2, 1, 2, 1, 3]), np.array([0, 2, 4, 6]), 4)
    given: Any = {"enable_prefix_caching": True, "prefix": prefix, "arrivals": [0, 5, 6]}
    large = served([12, 12, 12], [9, 9, 9], num_gpu_blocks=1_000_000, **given)
    small = served([12, 12, 12], [9, 9, 9], num_gpu_blocks=1001, **given)
    for name in ("last_token_s", "cached_tokens"):
        assert getattr(large, name).tolist() == getattr(small, name).tolist()
    assert large.cached_tokens.tolist() == [0, 8, 4]
    assert large.free_blocks == 999_999
    state, *_ = prepared(large.requests, large.engine, SECOND, large.drafts, None, None, 0, False)
    # Of 12 + 9 tokens each, in blocks of 4.
    assert state.pool.size == 3 * 6 + 1


def test_what_cannot_be_served_is_refused_in_one_line() -> None:
    for wanted, arguments, settings in (
        ("together, all that the KV cache holds, got 41", ([30], [12]), {"num_gpu_blocks": 11}),
        ("the longest that the model takes, got 42", ([30], [12]), {"max_model_len": 40}),
    ):
        with pytest.raises(InvalidArgumentError, match=wanted):
            served(*arguments, **settings)
    with pytest.raises(InvalidArgumentError, match="acceptance is needed"):
        served([1], [2], drafts=DraftPolicy.fixed(2))
    with pytest.raises(UnsupportedError, match="acceptance is known up to gamma 8, gamma 9"):
        served([1], [2], drafts=DraftPolicy.fixed(9), acceptance=ALL_STAND)
    with pytest.raises(UnsupportedError, match=r"vLLM 0\.1 is not known here \(known: 0\.19\.0,"):
        VllmEngine("0.1", 100)
