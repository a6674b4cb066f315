"""The simulator against queueing theory.

A mean is judged by batch means of one long run: 20 batches, and at most 3 standard errors from the
exact value; by Student's law with 19 degrees of freedom a sound simulator fails that once in 135
seeds.  Seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

from specsim.checks import Floats, Ints
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
from specsim.serving.result import queue_grew

BATCHES = 20
STEP_S = 0.01


def engine(slots: int, asynchronous: bool = False) -> VllmEngine:
    """With more of everything else than is needed."""
    return VllmEngine(
        "0.33.0",
        num_gpu_blocks=1 << 26,
        max_num_batched_tokens=1 << 20,
        max_num_seqs=slots,
        enable_prefix_caching=False,
        async_scheduling=asynchronous,
        enforce_eager=True,
    )


def poisson_requests(rate: float, outputs: Ints, seed: int) -> Requests:
    gaps = np.random.default_rng(seed).exponential(1 / rate, outputs.size)
    return Requests(np.cumsum(gaps), np.ones_like(outputs), outputs)


def assert_mean(values: Floats, wanted: float, slack: float = 0.0) -> None:
    """The mean of a stationary sequence is ``wanted``, to 3 standard errors and ``slack``."""
    batches = values[: values.size // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    error = batches.std(ddof=1) / np.sqrt(BATCHES)
    assert abs(batches.mean() - wanted) <= 3 * error + slack, (batches.mean(), wanted, error)
    assert error < 0.1 * wanted, "too few requests to tell anything"


def queue_s(found: ServingRun) -> Floats:
    """Of every request from its arrival until it is first in a step; (N,)."""
    return found.scheduled_s - found.arrival_s


def test_one_slot_and_equal_requests_are_m_d_1() -> None:
    """W = rho S / (2 (1 - rho))."""
    output, load = 4, 0.7
    service = output * STEP_S
    requests = poisson_requests(load / service, np.full(100_000, output), seed=1)
    found = run(requests, engine(1), StepModel((StepTerm("target", STEP_S),)), keep=())
    np.testing.assert_allclose(found.e2e_s - queue_s(found), service, rtol=1e-6)
    assert_mean(queue_s(found), load * service / (2 * (1 - load)))


def test_one_slot_whose_steps_scatter_is_pollaczek_khinchine() -> None:
    """W = lambda E[S^2] / (2 (1 - rho)): the first step of a request, which reads its prompt, has
    another variation than the three after it; what is spent outside of steps delays nobody.
    """
    output, load, outside_s = 4, 0.6, 0.03
    reads, decodes = 0.9, 0.4
    service = output * STEP_S
    variance = STEP_S**2 * (reads**2 + (output - 1) * decodes**2)
    rate = load / service
    model = StepModel(
        (StepTerm("target", STEP_S),),
        frontend_s=outside_s,
        step_variation=decodes,
        prompt_step_variation=reads,
        frontend_variation=0.5,
    )
    requests = poisson_requests(rate, np.full(100_000, output), seed=12)
    found = run(requests, engine(1), model, seed=13, keep=())
    # Log-normal factors end at the last of 1024, which takes a little off the variance.
    wanted = rate * (service**2 + variance) / (2 * (1 - load))
    assert_mean(queue_s(found), wanted, slack=0.005 * wanted)
    within_s = found.last_token_s - found.scheduled_s
    assert_mean(within_s, service + outside_s)
    spread_s = float(np.hypot(np.sqrt(variance), 0.5 * outside_s))
    assert within_s.std() == pytest.approx(spread_s, rel=0.02)
    again = run(requests, engine(1), model, seed=14, keep=())
    assert not np.array_equal(found.last_token_s, again.last_token_s)


def moments_of_rounds(law: Floats, tokens: int) -> tuple[Floats, Floats]:
    """First two moments of the rounds that emit 0..tokens tokens; law[n - 1] = P(n in a round)."""
    first, second = np.zeros(tokens + 1), np.zeros(tokens + 1)
    for left in range(1, tokens + 1):
        after = np.maximum(left - np.arange(1, law.size + 1), 0)
        first[left] = 1 + law @ first[after]
        second[left] = 1 + 2 * law @ first[after] + law @ second[after]
    return first, second


def test_one_slot_with_drafts_is_pollaczek_khinchine() -> None:
    """W = lambda E[S^2] / (2 (1 - rho)): lengths vary, and the rounds that they take."""
    survival = np.array([0.8, 0.5, 0.4])
    law = -np.diff(np.concatenate([[1.0], survival, [0.0]]))
    lengths, shares = np.array([1, 5, 40]), np.array([0.3, 0.5, 0.2])
    random = np.random.default_rng(2)
    outputs = random.choice(lengths, 100_000, p=shares)
    first, second = moments_of_rounds(law, 39)
    # The step that reads the prompt emits the first token.
    rounds = shares @ (1 + first[lengths - 1])
    squares = shares @ (1 + 2 * first[lengths - 1] + second[lengths - 1])
    load = 0.6
    rate = load / (rounds * STEP_S)
    found = run(
        poisson_requests(rate, outputs, seed=3),
        engine(1),
        StepModel((StepTerm("target", STEP_S),)),
        DraftPolicy.fixed(3),
        RoundAcceptance.law(survival),
        seed=4,
        keep=(),
    )
    assert_mean(found.rounds.astype(float), rounds)
    assert_mean(queue_s(found), rate * squares * STEP_S**2 / (2 * (1 - load)))


# Steps of n requests take FIXED_S + EACH_S n, so that all together get n / (FIXED_S + EACH_S n)
# tokens a second.
FIXED_S, EACH_S, MEAN_OUTPUT = 8e-4, 2e-4, 400


def sharing(outputs: Ints, rate: float, seed: int) -> ServingRun:
    model = StepModel((StepTerm("target", FIXED_S), StepTerm("target", EACH_S, per="sequences")))
    return run(poisson_requests(rate, outputs, seed), engine(512), model, keep=())


@pytest.fixture(scope="module")
def shared() -> dict[str, ServingRun]:
    """Two laws of one mean: equal requests, and one in four 13 times as long."""
    random = np.random.default_rng(5)
    mixed = random.choice([100, 1300], 12_000, p=[0.75, 0.25])
    return {
        "equal": sharing(np.full(12_000, MEAN_OUTPUT), 8.0, seed=6),
        "mixed": sharing(mixed, 8.0, seed=7),
    }


def stationary(rate: float) -> Floats:
    """pi(n) of state-dependent processor sharing: prod_{k <= n} rate E[S] / phi(k) (Cohen 1979)."""
    n = np.arange(1, 400)
    ratios = rate * MEAN_OUTPUT * (FIXED_S + EACH_S * n) / n
    weights = np.concatenate([[1.0], np.cumprod(ratios)])
    found: Floats = weights / weights.sum()
    return found


@pytest.mark.parametrize("law", ["equal", "mixed"])
def test_many_slots_are_processor_sharing_whatever_the_law_of_lengths(
    shared: dict[str, ServingRun], law: str
) -> None:
    """The number of requests has the law pi(n), which the mean length alone decides."""
    rate = 8.0
    pi = stationary(rate)
    mean = pi @ np.arange(pi.size)
    found = shared[law]
    # Who arrives waits for the end of a step, half a one in the mean, which sharing does not know.
    half = (FIXED_S + EACH_S * mean) / 2
    assert_mean(found.e2e_s, mean / rate + half, slack=half)
    # How often an arrival finds fewer than k others there is pi(0) + ... + pi(k - 1) (PASTA).
    others = np.arange(len(found.requests)) - np.searchsorted(
        np.sort(found.last_token_s), found.arrival_s
    )
    for fewer in (6, 10, 20):
        slack = 2 * rate * half * pi.max()
        assert_mean((others < fewer).astype(float), pi[:fewer].sum(), slack)


def test_time_is_linear_in_length(shared: dict[str, ServingRun]) -> None:
    """E[T | S = x] = x E[n] / (lambda E[S])."""
    rate = 8.0
    pi = stationary(rate)
    mean = pi @ np.arange(pi.size)
    found, half = shared["mixed"], (FIXED_S + EACH_S * mean) / 2
    for output in (100, 1300):
        times = found.e2e_s[found.requests.output_tokens == output]
        assert_mean(times, output * mean / (rate * MEAN_OUTPUT) + half, slack=half)


def test_single_tokens_are_batch_service() -> None:
    """All that wait are served together in EACH b + FIXED seconds (Inoue 2021): the chain of batch
    sizes is max(Poisson(lambda (EACH b + FIXED)), 1), exactly.
    """
    each, fixed, rate = 0.012, 0.05, 55.0
    sizes = np.arange(1, 400)
    service = each * sizes + fixed
    arrivals = poisson.pmf(np.arange(sizes[-1] + 1), (rate * service)[:, None])
    chain = arrivals[:, 1:].copy()
    chain[:, 0] += arrivals[:, 0]
    chain /= chain.sum(axis=1, keepdims=True)
    law = np.linalg.matrix_power(chain, 1 << 12)[0]
    inside = law @ (sizes * service + rate * service**2 / 2)
    lasts = law @ (service + arrivals[:, 0] / rate)
    requests = poisson_requests(rate, np.ones(200_000, dtype=np.int64), seed=8)
    model = StepModel((StepTerm("target", fixed), StepTerm("target", each, per="prefill_tokens")))
    found = run(requests, engine(1 << 10), model, keep=())
    assert_mean(found.e2e_s, inside / lasts / rate)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_closed_loop_yields_c_requests_a_round(asynchronous: bool) -> None:
    """C requests are always there, so that all steps are full: throughput is C mu / tau(C)."""
    concurrency, output = 6, 33
    survival = np.array([0.7, 0.6])
    law = -np.diff(np.concatenate([[1.0], survival, [0.0]]))
    n = 20_000
    requests = Requests(np.zeros(n), np.ones(n, dtype=np.int64), np.full(n, output))
    # One step more, and maybe a smaller one, where a request has ended in the step before it.
    each_s = 0.0 if asynchronous else 0.001
    terms = StepTerm("target", 0.01 - each_s), StepTerm("target", each_s, per="sequences")
    found = run(
        requests,
        engine(64, asynchronous),
        StepModel(terms),
        DraftPolicy.fixed(2),
        RoundAcceptance.law(survival),
        concurrency=concurrency,
        seed=9,
        keep=(),
    )
    first, second = moments_of_rounds(law, output - 1)
    rounds, variance = 1 + first[-1], second[-1] - first[-1] ** 2
    rounds += asynchronous  # the step in flight was planned before the request had ended
    step_s = 0.01 + each_s * (concurrency - 1)
    wanted = concurrency / (rounds * step_s)
    # The rounds of n independent requests, and the C that are left over at the end.
    error = wanted * np.sqrt(variance / n) / rounds
    assert abs(found.requests_per_s - wanted) <= 3 * error + wanted * concurrency / n


def test_a_rate_beyond_capacity_is_said() -> None:
    model = StepModel((StepTerm("target", STEP_S),))
    for load, grows in ((0.8, False), (1.3, True)):
        requests = poisson_requests(load / STEP_S, np.ones(20_000, dtype=np.int64), seed=10)
        assert run(requests, engine(1), model, keep=()).queue_grew == grows


def test_a_rate_beyond_capacity_is_said_where_all_are_scheduled_at_once() -> None:
    """Steps of a millisecond for each request in them: 20 requests of 50 tokens a second."""
    model = StepModel((StepTerm("target", 1e-3, per="sequences"),))
    for rate, grows in ((12.0, False), (26.0, True)):
        requests = Requests(np.arange(600) / rate, np.ones(600), np.full(600, 50))
        found = run(requests, engine(4096), model, keep=())
        assert queue_s(found).max() < 0.5
        assert found.queue_grew == grows


@pytest.mark.parametrize("output", [300, 700, 1600, 5000])
def test_a_light_load_of_long_requests_is_none_beyond_capacity(output: int) -> None:
    """600 in 23 s, which stay for 3 to 50 s, however many there are."""
    requests = Requests(np.arange(600) / 26.0, np.ones(600), np.full(600, output))
    found = run(requests, engine(4096), StepModel((StepTerm("target", STEP_S),)), keep=())
    assert not found.queue_grew


@pytest.mark.parametrize(("count", "grows"), [(20, False), (400, True)])
def test_so_few_requests_may_be_chance(count: int, grows: bool) -> None:
    """Each stays longer than the one before it: at the end 5 are there, or 100."""
    arrivals = np.linspace(0, 100, count)
    assert queue_grew(arrivals, arrivals, arrivals * 4 / 3) == grows


def test_a_rate_that_rises_is_none_beyond_capacity() -> None:
    """From 2 to 34 requests a second, which stay three times as long then."""
    arrivals = np.concatenate([np.linspace(0, 75, 150), np.linspace(75, 100, 850)])
    stays = np.where(arrivals < 75, 1.0, 3.0)
    assert not queue_grew(arrivals, arrivals, arrivals + stays)
