"""One replica, analytically: its limits are closed forms, and it falls and rises as it must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.checks import UnsupportedError
from specsim.serving.analytic.offered import Offered
from specsim.serving.analytic.replica import Replica
from specsim.serving.analytic.rounds import RoundCounts
from specsim.serving.analytic.step_times import StepTimes
from specsim.serving.levels import levels_of

_SURVIVAL = [0.8, 0.6, 0.5]


def replica(
    decode_s: Any,
    *,
    read_token_s: float = 0.0,
    prompts: Any = (100,),
    outputs: Any = (101,),
    gamma: int = 0,
    budget: float = 1e9,
    **given: Any,
) -> Replica:
    """With so many seconds of a step by n, and a number of seconds for each token of a prompt."""
    decode_s = np.asarray(decode_s, dtype=float)
    outputs = np.sort(np.atleast_1d(outputs))
    prompts = np.broadcast_to(np.atleast_1d(prompts), outputs.shape)
    counts = np.unique([0, 1, decode_s.size])
    tokens = np.array([0.0, 1e6])
    return Replica(
        times=StepTimes(
            decode_s=decode_s,
            counts=counts,
            tokens=tokens,
            read_s=np.tile(read_token_s * tokens, (counts.size, 1)),
            budget=np.full(counts.size, budget),
            prompts=prompts.astype(float),
        ),
        gammas=np.full(decode_s.size + 1, gamma),
        laws=lambda gamma: RoundCounts.of_survival(_SURVIVAL, gamma),
        offered=Offered(prompts, outputs),
        **given,
    )


@pytest.mark.parametrize("load", [0.2, 0.6, 0.85])
def test_one_server_that_is_shared_is_m_m_1(load: float) -> None:
    """tau(n) = n tau: E[T] = E[S] / (1 - rho), so that a token takes tau / (1 - rho)."""
    one = replica(1e-3 * np.arange(1, 801))
    assert one.capacity == pytest.approx(10.0)  # 100 rounds of 1 ms
    found = one.at(10.0 * load)
    assert found.figures["tpot_mean"] == pytest.approx(1e-3 / (1 - load), rel=1e-6)
    assert found.batch == pytest.approx(load / (1 - load), rel=1e-6)
    assert found.load == pytest.approx(load)


@pytest.mark.parametrize("gamma", [0, 3])
def test_steps_that_do_not_grow_serve_all_alike(gamma: int) -> None:
    """tau(n) = tau: as many servers as requests, and a Poisson number of them."""
    one = replica(np.full(400, 5e-3), gamma=gamma)
    law = RoundCounts.of_survival(_SURVIVAL, gamma)
    rounds = float(law.mean(np.array([100]))[0])
    found = one.at(20.0)
    assert found.batch == pytest.approx(20.0 * 5e-3 * rounds, rel=1e-6)
    assert found.figures["tpot_mean"] == pytest.approx(5e-3 * rounds / 100, rel=1e-6)
    assert found.figures["itl_mean"] == pytest.approx(5e-3)


def test_light_load_is_one_request_alone() -> None:
    """The limit of no load: the step that reads the prompt, and steps of one request."""
    one = replica(5e-3 + 1e-4 * np.arange(1, 65), read_token_s=1e-5, gamma=3, outputs=[2, 50, 200])
    found = one.at(1e-9).figures
    law = RoundCounts.of_survival(_SURVIVAL, 3)
    later = np.array([1, 49, 199])
    assert found["ttft_p99"] == pytest.approx(100 * 1e-5, rel=1e-6)
    assert found["tpot_mean"] == pytest.approx(5.1e-3 * (law.mean(later) / later).mean(), rel=1e-3)


def test_only_the_mean_of_the_output_matters_to_the_batch() -> None:
    """Insensitivity: the law of the work does not, and E[T | x] is linear in it."""
    decode_s = 4e-3 + 2e-4 * np.arange(1, 301)
    equal = replica(decode_s, outputs=np.full(1000, 101))
    mixed = replica(decode_s, outputs=np.repeat([2, 201], [505, 495]))  # 1 or 200 tokens more
    mean = float((mixed.offered.output_tokens - 1).mean())
    for load in (0.3, 0.8):
        first = equal.at(load * equal.capacity)
        second = mixed.at(load * equal.capacity * 100 / mean)
        assert second.batch == pytest.approx(first.batch, rel=1e-9)
        assert second.figures["tpot_mean"] == pytest.approx(first.figures["tpot_mean"], rel=1e-9)


def test_prompts_take_their_share_of_the_time() -> None:
    """tau = D / (1 - lambda P c) where reading costs c a token, whatever shares a step."""
    one = replica(np.full(64, 5e-3), read_token_s=2e-5)
    rate = 200.0
    assert one.step_s(rate) == pytest.approx(5e-3 / (1 - rate * 100 * 2e-5), rel=1e-3)
    assert np.isinf(one.step_s(600.0)).all()


@settings(max_examples=8, deadline=None)
@given(
    st.floats(1e-3, 2e-2),
    st.floats(1e-6, 1e-3),
    st.floats(0.0, 1e-5),
    st.sampled_from([0, 2]),
    st.booleans(),
)
def test_everything_grows_with_the_rate(
    base: float, each: float, read: float, gamma: int, late: bool
) -> None:
    one = replica(base + each * np.arange(1, 129), read_token_s=read, gamma=gamma, late=late)
    found = [one.at(share * one.capacity) for share in (0.05, 0.3, 0.6, 0.9)]
    for name in ("tpot_mean", "ttft_mean", "e2e_mean", "tpot_p99"):
        values = [each.figures[name] for each in found]
        # A sample of 2,048 points stands for each.
        assert (np.diff(values) > -0.01 * np.array(values[:-1])).all(), name
    assert (np.diff([each.batch for each in found]) > 0).all()


@settings(max_examples=8, deadline=None)
@given(st.floats(1e-3, 2e-2), st.floats(0.0, 1e-3), st.floats(0.0, 1e-5))
def test_stable_up_to_the_capacity(base: float, each: float, read: float) -> None:
    one = replica(base + each * np.arange(1, 65), read_token_s=read)
    assert one.completions(0.999 * one.capacity)[-1] > 0.999 * one.capacity
    assert one.completions(1.001 * one.capacity)[-1] < 1.001 * one.capacity
    with pytest.raises(UnsupportedError, match="beyond the capacity"):
        one.at(1.001 * one.capacity)


def test_asynchronous_scheduling_keeps_a_request_a_step_longer() -> None:
    """With drafts nobody knows which round is the last; a plain step surely emits one token."""
    decode_s = np.full(64, 5e-3)
    early, late = (replica(decode_s, gamma=3, late=late) for late in (False, True))
    law = RoundCounts.of_survival(_SURVIVAL, 3)
    rounds = float(law.mean(np.array([100]))[0])
    wanted = (rounds + 1 - 1 / law.tokens_per_call) / rounds
    assert early.capacity / late.capacity == pytest.approx(wanted, rel=1e-6)
    assert replica(decode_s, late=True).capacity == pytest.approx(replica(decode_s).capacity)


def test_it_says_where_it_may_not_be_used() -> None:
    one = replica(5e-3 + 1e-4 * np.arange(1, 9), binds="cache")
    assert one.at(0.3 * one.capacity).doubts == ()
    doubts = " ".join(one.at(0.97 * one.capacity).doubts)
    assert "97% of the capacity" in doubts
    assert "KV cache" in doubts


def test_goodput_is_of_requests_that_keep_every_limit() -> None:
    one = replica(5e-3 + 1e-4 * np.arange(1, 65), read_token_s=1e-5)
    rate = 0.5 * one.capacity
    assert one.at(rate, levels_of("tpot=1,ttft=1")).figures["goodput"] == pytest.approx(rate)
    assert one.at(rate, levels_of("tpot=0.001")).figures["goodput"] == 0.0
    assert "tpot_p95" in one.at(rate, levels_of("tpot_p95=0.01")).figures


def test_long_prompts_are_read_in_several_steps() -> None:
    """2,000 tokens at 10 us each, 500 a step beside decodes of 5 ms: 20 ms and three steps more."""
    one = replica(np.full(64, 5e-3), read_token_s=1e-5, prompts=2000, budget=500)
    assert one.at(1e-9).figures["ttft_mean"] == pytest.approx(20e-3, rel=1e-6)
    rate = 5.0
    assert one.step_s(rate)[9] == pytest.approx(5e-3 / (1 - rate * 20e-3), rel=1e-3)
