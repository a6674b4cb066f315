"""Steps of a server under load, told from its clients' streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.checks import InvalidArgumentError
from specsim.counts.file import timed_streams
from specsim.counts.steps import StreamedStep
from specsim.counts.streamed_costs import StreamedCosts
from specsim.counts.streams import Stream, streamed_steps
from tests.support.streamed import PROMPT_S, REQUEST_S, STEP_S, TOKEN_S, a_load, served


@given(seed=st.integers(0, 10**6), every_s=st.floats(0.005, 0.1))
def test_steps_are_those_that_the_server_did(seed: int, every_s: float) -> None:
    """All of them, but for those without a decode and what stands behind an idle server."""
    sent, prompts, chunks = a_load(seed, 30, every_s)
    streams, steps = served(sent, prompts, chunks, 0.004)
    found = streamed_steps(streams, 0)
    mixed = sorted((d, n, t) for d, n, t, _ in steps if d and n)
    assert (
        sorted((s.decodes, s.prompts, s.prompt_tokens) for s in found.steps if s.prompts) == mixed
    )
    plain: dict[int, int] = {}
    for decodes, new, _, _ in steps:
        if not new:
            plain[decodes] = plain.get(decodes, 0) + 1
    pooled = [step for step in found.steps if not step.prompts]
    for decodes, count in plain.items():
        assert sum(step.steps for step in pooled if step.decodes == decodes) == count
    assert sum(step.steps for step in pooled) == sum(plain.values())
    # Whoever was not sent into an idle server came while a step ran.
    assert sum(step.steps * (step.arrivals or 0) for step in found.steps) <= len(sent)
    for step in found.steps:
        expected = STEP_S + REQUEST_S * step.requests
        expected += PROMPT_S * step.prompts + TOKEN_S * step.prompt_tokens
        assert step.seconds == pytest.approx(expected, abs=1e-9)


def test_chunks_of_a_step_that_come_a_little_apart_are_one_step() -> None:
    sent, prompts, chunks = a_load(3)
    streams, steps = served(sent, prompts, chunks, 0.004, jitter_s=0.001)
    found = streamed_steps(streams, 2, 1)
    assert (found.gamma, found.repeat) == (2, 1)
    assert sum(each.steps for each in found.steps) == sum(1 for each in steps if each[0])
    total = sum(each.seconds * each.steps for each in found.steps)
    assert total == pytest.approx(sum(s for d, *_, s in steps if d), rel=0.01)


@pytest.mark.parametrize("frontend_s", [0.0, 0.004, 0.012, 0.03])
def test_what_a_request_spends_outside_of_steps(frontend_s: float) -> None:
    """Within four standard errors: a false alarm in 16,000.  Steps take 6 to 30 ms, in which a
    moment is known to a standard deviation of 9 ms at most, and over 1,500 requests to 0.23 ms.
    """
    sent, prompts, chunks = a_load(5, 2000)
    rows = streamed_steps(served(sent, prompts, chunks, frontend_s)[0], 0).frontends
    requests = [row.requests for row in rows]
    assert sum(requests) > 1500
    mean_s = np.average([row.seconds for row in rows], weights=requests)
    assert mean_s == pytest.approx(frontend_s, abs=4 * 0.00023)


def test_single_steps_and_requests_tell_how_far_they_scatter() -> None:
    """Of 2,000 requests.  What the moment of a step adds, 2 to 9 ms, is taken off.  A coefficient
    of variation of n times is known to 0.8 / sqrt(n) of itself, more or less: here four of those,
    a false alarm in 16,000, of 36,000 steps, 3,400 with a prompt and 3,600 requests, to which the
    moments add some.
    """
    plain, reads, outside = 0.2, 0.3, 0.5
    sent, prompts, chunks = a_load(8, 2000)
    load = [sent, prompts, chunks, 0.03]
    varied = [
        streamed_steps(
            served(*load, variations=(plain, reads, outside), seed=9, extra_s=gamma * 1e-3)[0],
            gamma,
        )
        for gamma in (0, 2)
    ]
    assert [timed_streams(each).streamed() for each in varied] == varied
    costs = StreamedCosts(tuple(varied))
    assert costs.step_variation == pytest.approx(plain, rel=0.017)
    assert costs.prompt_step_variation == pytest.approx(reads, rel=0.055)
    assert costs.frontend_variation == pytest.approx(outside, rel=0.06)
    steady = StreamedCosts(tuple(streamed_steps(served(*load)[0], gamma, 0) for gamma in (0, 2)))
    assert steady.step_variation < 1e-6
    assert steady.prompt_step_variation < 1e-6
    assert steady.frontend_variation < 0.1


def test_a_stall_is_no_scatter_of_every_step() -> None:
    """One of 0.3 s among steps of 6 to 12 ms would be a variation of 2."""
    load = a_load(4, 300)
    streams = served(*load, 0.004, variations=(0.2, 0.2, 0.0), seed=5)[0]
    (_, *times), at = streams[150].chunk_s, streams[150].chunk_s[len(streams[150].chunk_s) // 2]
    assert len(times) > 3

    def stalled(stream: Stream) -> Stream:
        later = tuple(each + 0.3 * (each >= at) for each in stream.chunk_s)
        return replace(stream, sent_s=stream.sent_s + 0.3 * (stream.sent_s >= at), chunk_s=later)

    found = []
    for some in (streams, [stalled(each) for each in streams]):
        both = streamed_steps(some, 0), streamed_steps(some, 2)
        found.append(StreamedCosts(both).step_variation)
    calm, disturbed = found
    assert calm == pytest.approx(0.2, rel=0.1)
    assert disturbed < 1.3 * calm


def test_a_first_chunk_that_others_delay_tells_by_how_many_they_are() -> None:
    """The same requests with and without the delay: what each row has more is exact."""
    load = a_load(5, 500)
    plain, late = (
        streamed_steps(served(*load, 0.004, decode_s=decode_s, prompt_s=prompt_s)[0], 0).frontends
        for decode_s, prompt_s in ((0.0, 0.0), (2e-4, 5e-4))
    )
    assert [(row.decodes, row.prompts) for row in plain] == [
        (row.decodes, row.prompts) for row in late
    ]
    assert {row.prompts for row in late} >= {1, 2}
    for one, other in zip(plain, late, strict=True):
        assert other.decodes
        assert other.prompts
        expected_s = 2e-4 * other.decodes + 5e-4 * (other.prompts - 1)
        assert other.seconds - one.seconds == pytest.approx(expected_s, abs=1e-9)


def test_a_step_in_which_a_chunk_is_missing_does_not_count() -> None:
    """As where a request was preempted, or its chunk came with the next one."""
    whole = [Stream(10, 0.0, tuple(0.01 * k for k in range(1, 9)), (1,) * 8) for _ in range(2)]
    gap = Stream(10, 0.0, tuple(0.01 * k for k in range(1, 9) if k != 4), (1,) * 7)
    few, many = streamed_steps(whole, 0).steps
    assert (few.decodes, few.steps, many.decodes, many.steps) == (2, 3, 2, 4)
    # One token of the first chunk, and those behind it.
    assert few.decode_context == pytest.approx(2 * (10 + (1 + 2 + 3) / 3))
    assert many.decode_context == pytest.approx(2 * (10 + (4 + 5 + 6 + 7) / 4))
    found = streamed_steps([*whole, gap], 0).steps
    # Of seven steps the one that lacks it, and the one behind it.
    assert [(s.decodes, s.steps) for s in found] == [(3, 2), (3, 3)]


def test_steps_that_begin_too_early_do_not_count() -> None:
    """A step for each token behind the first, of one request alone."""
    alone = Stream(10, 0.0, tuple(0.01 * k for k in range(1, 9)), (1,) * 8)
    for from_s, steps in ((-1.0, 7), (0.01, 7), (0.011, 6), (0.045, 3), (0.07, 1), (0.08, 0)):
        found = streamed_steps([replace(alone, counts_from_s=from_s)], 0)
        assert sum(each.steps for each in found.steps) == steps


def test_chunks_of_several_steps_do_not_count() -> None:
    """As with vLLM's --stream-interval 10, or where a server lags."""
    held = Stream(10, 0.0, tuple(0.1 * k for k in range(1, 9)), (10,) * 8)
    assert streamed_steps([held], 2).steps == ()
    joined = Stream(10, 0.0, (0.01, 0.02, 0.03, 0.05, 0.06), (1, 1, 1, 2, 1))
    one, other = streamed_steps([joined], 0).steps
    assert (one.steps, other.steps) == (1, 1)
    assert (one.seconds, other.seconds) == pytest.approx((0.01, 0.01))
    # The prompt's step gives one token, so that another one is of the next step.
    assert streamed_steps([Stream(10, 0.0, (0.01, 0.02), (2, 2))], 3).steps == ()


@pytest.mark.parametrize("apart_s", [0.0, 3e-6, 8e-5])
def test_chunks_that_a_busy_client_read_at_once_do_not_count(apart_s: float) -> None:
    """Three steps of a second; the chunk of the second was read with that of the third, which takes
    some microseconds.
    """
    late = Stream(4, 0.0, (1.0, 3.0, 3.0 + apart_s, 4.0))
    found = streamed_steps([late], 1)
    assert [(each.seconds, each.steps) for each in found.steps] == []
    longer = streamed_steps([replace(late, chunk_s=(*late.chunk_s, 5.0))], 1)
    assert [(each.seconds, each.steps) for each in longer.steps] == [(1.0, 1)]


def test_a_request_whose_chunks_were_all_read_at_once_is_done() -> None:
    """Its last chunk does not come before its first: else it would go on for ever."""
    other = Stream(4, 0.0, tuple(map(float, range(1, 9))))
    (step,) = streamed_steps([other, Stream(4, 0.0, (3.0, 3.0))], 1).steps
    # From one to two seconds, and from four to eight.
    assert (step.decodes, step.seconds, step.steps) == (1, 1.0, 5)


def test_steps_of_as_many_tokens_are_apart_by_nothing_else() -> None:
    """Else the slow ones of them would seem to be what more tokens take."""
    chunk_s = (0.0, 0.01, 0.03, 0.04, 0.07)
    alike = [Stream(10, 100.0 * n, tuple(100.0 * n + at for at in chunk_s), None) for n in range(9)]
    (step,) = streamed_steps(alike, 2).steps
    assert (step.steps, step.decode_context) == (36, 0.0)
    told = [Stream(10, each.sent_s, each.chunk_s, (1,) * 5) for each in alike]
    few, many = streamed_steps(told, 2).steps
    # Of each request the first two steps, and the last two.
    assert (few.decode_context, many.decode_context) == (11.5, 13.5)
    assert few.seconds == pytest.approx((0.01 + 0.02) / 2)
    assert many.seconds == pytest.approx((0.01 + 0.03) / 2)


def test_nobody_tells_nothing() -> None:
    found = streamed_steps([Stream(5, 0.0, (0.01,), (1,))], 0)
    assert (found.steps, found.frontends) == ((), ())


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ((0, 0, 0, 0.01), "decodes and steps of a streamed step must be >= 1, got 0 and 1"),
        ((1, 2, 1, 0.01), "prompt_tokens must be >= prompts = 2"),
        ((1, 0, 3, 0.01), "prompt_tokens must be >= prompts = 0, and 0 where that is, got 3"),
        ((1, 0, 0, 0.0), "seconds of a streamed step must be a number > 0"),
        ((1, 0, 0, 0.01, 1, -1.0), "decode_context must be >= 0, got -1"),
        ((1, 0, 0, 0.01, 1, 1.0, 0.0, -1), "arrivals must be >= 0, got -1"),
    ],
)
def test_impossible_steps_are_refused(step: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        StreamedStep(*step)
