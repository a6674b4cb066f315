"""Replicas behind a router, and what an engine did, against single runs and hand counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specsim.checks import InvalidArgumentError
from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.arrivals import PoissonArrivals
from specsim.serving.costs.coefficients import coefficients
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.engines.sglang import SglangEngine
from specsim.serving.engines.vllm import VllmEngine
from specsim.serving.lengths import LognormalLength, UniformLength
from specsim.serving.prefixes import blocks_of_names
from specsim.serving.requests import Requests
from specsim.serving.routing import PrefixAware, Routing, parts, route
from specsim.serving.service import Served, SetUp, engine_figures, serve_requests
from specsim.serving.simulation import run
from specsim.serving.workload import DrawnWorkload

STEPS = coefficients(step_ms=5, token_us=20, draft_run_ms=0.5, host_ms=0.5)
SCATTERED = replace(STEPS, step_variation=0.2, prompt_step_variation=0.3)
ENGINE = VllmEngine("0.28.0", num_gpu_blocks=160, max_num_seqs=16)
SGLANG = SglangEngine("0.5.23", max_total_num_tokens=2560, page_size=16)
LAW = RoundAcceptance.law([0.8, 0.6, 0.4])


def requests(count: int = 120, rate: float = 12.0) -> Requests:
    laws = LognormalLength(200, 0.8, high=1000), UniformLength(1, 80)
    return DrawnWorkload(PoissonArrivals(rate), *laws, count).draw(5)


def test_each_request_that_comes_makes_one_step_longer() -> None:
    """Also those that then wait for a place."""
    engine = replace(ENGINE, max_num_seqs=4, async_scheduling=False)
    model = coefficients(step_ms=5, arrival_ms=2)
    found = run(requests(), engine, model, keep=())
    assert found.busy_s == pytest.approx(0.005 * found.step_count + 0.002 * 120)
    assert (found.scheduled_s - found.arrival_s).max() > 0.1


def setup(replicas: int, routing: Routing = "round-robin", drafts: int = 3) -> SetUp:
    return SetUp(ENGINE, STEPS, DraftPolicy.fixed(drafts), LAW, replicas, routing)


def test_one_replica_is_a_run() -> None:
    served = serve_requests(setup(1), requests(), seed=3, keep=("steps", "rounds"))
    alone = run(requests(), ENGINE, STEPS, DraftPolicy.fixed(3), LAW, seed=3, keep=("rounds",))
    for name in ("arrival_s", "first_token_s", "last_token_s", "rounds"):
        assert (served.each(name) == getattr(alone, name)).all()
    log = alone.round_log
    assert log is not None
    gaps = [np.diff(log.end_s[log.request == request]) for request in range(120)]
    assert np.sort(served.times.itl_s).tolist() == np.sort(np.concatenate(gaps)).tolist()


def test_gaps_belong_to_their_requests() -> None:
    """The gaps of a request add up to the time from its first to its last token."""
    times = serve_requests(setup(3), requests(), seed=3, keep=("rounds",)).times
    sums = np.bincount(times.itl_request, times.itl_s, minlength=times.arrival_s.size)
    np.testing.assert_allclose(sums, times.last_token_s - times.first_token_s, atol=1e-9)


def test_steps_of_replicas_have_their_own_luck() -> None:
    """Two replicas that are sent the same at the same moments, and draft nothing."""
    twice = Requests(np.repeat(np.arange(50) * 0.1, 2), np.full(100, 30), np.full(100, 20))
    for step_model, same in ((STEPS, True), (SCATTERED, False)):
        made = SetUp(ENGINE, step_model, replicas=2)
        one, other = serve_requests(made, twice, seed=3).runs
        assert np.array_equal(one.last_token_s, other.last_token_s) is same
        assert made.certain is same


def test_round_robin_serves_each_replica_its_own() -> None:
    scattered = replace(setup(2), step_model=SCATTERED)
    served = serve_requests(scattered, requests(), seed=3)
    assert served.split.tolist() == [0, 1] * 60
    odd = np.arange(1, 120, 2)
    second = run(
        requests().take(odd),
        ENGINE,
        SCATTERED,
        DraftPolicy.fixed(3),
        LAW,
        seed=3,
        numbers=odd,
    )
    assert served.each("last_token_s")[1::2].tolist() == second.last_token_s.tolist()


@pytest.mark.parametrize("routing", ["round-robin", "least-outstanding"])
def test_a_request_has_the_same_luck_at_every_replica(routing: Routing) -> None:
    """Every round drafts three tokens, as no step is full: how many are there is all that chance
    decides.
    """
    roomy = replace(ENGINE, num_gpu_blocks=4000)
    alone, *others = (
        serve_requests(replace(setup(replicas, routing), engine=roomy), requests(), seed=3)
        for replicas in (1, 2, 5)
    )
    for served in others:
        assert served.each("rounds").tolist() == alone.each("rounds").tolist()


def shared() -> Requests:
    """Prompts that share blocks with others: of each five the first 8 to 20 of 16 tokens."""
    some = requests(rate=40.0)
    names = [[(n % 5, at) for at in range(8 + n % 13)] for n in range(len(some))]
    prompts = np.maximum(some.prompt_tokens, 16 * 21)
    return replace(some, prompt_tokens=prompts, prefix=blocks_of_names(names, prompts, 16))


@pytest.mark.parametrize("engine", [ENGINE, SGLANG])
@pytest.mark.parametrize("routing", ["least-outstanding", "prefix-aware"])
@pytest.mark.parametrize("traced", [False, True])
def test_a_replica_that_is_looked_at_does_what_a_run_does(
    routing: Routing, engine: ServingEngine, traced: bool
) -> None:
    """To the last bit; so decisions taken from what came out are those that were taken."""
    work = shared()
    acceptance = LAW
    if traced:
        chances = np.random.default_rng(1).random(300)
        acceptance = RoundAcceptance.trace(chances, [0, 100, 180, 300])
    made = replace(setup(3, routing), engine=engine, acceptance=acceptance, step_model=SCATTERED)
    served = serve_requests(made, work, seed=3)
    done = served.each("last_token_s")

    class Looked:
        """Knows when all is done."""

        def __init__(self) -> None:
            self.ends: list[float] = []

        def give(self, request: int) -> None:
            self.ends.append(done[request])

        def outstanding(self, now: float) -> int:
            return sum(end > now for end in self.ends)

    aware = PrefixAware() if routing == "prefix-aware" else None
    assert route(work, [Looked() for _ in range(3)], aware).tolist() == served.split.tolist()
    assert len({len(each) for each in parts(served.split, 3)}) > 1  # not in turn
    if routing == "prefix-aware":
        turn = serve_requests(replace(made, routing="round-robin"), work, seed=3)
        assert served.each("cached_tokens").sum() > turn.each("cached_tokens").sum()


def test_least_outstanding_waits_less() -> None:
    work = requests(300, 60.0)
    turn, least = (
        serve_requests(setup(3, each), work, seed=3).times.e2e_s.mean()
        for each in ("round-robin", "least-outstanding")
    )
    assert least < turn


def test_a_closed_loop_is_shared_out() -> None:
    served = serve_requests(setup(3), requests(30), concurrency=8, seed=3)
    assert [each.concurrency for each in served.runs] == [3, 3, 2]
    # As many more requests for those that take more at a time, so that none is idle before the end.
    many = serve_requests(setup(3), requests(800), concurrency=8, seed=3)
    assert [each.first_token_s.size for each in many.runs] == [300, 300, 200]
    ends = [each.last_token_s.max() for each in many.runs]
    assert max(ends) < 1.1 * min(ends)
    with pytest.raises(InvalidArgumentError, match="routing least-outstanding has no meaning in"):
        serve_requests(setup(3, "least-outstanding"), requests(), concurrency=8)
    with pytest.raises(InvalidArgumentError, match="concurrency must be >= replicas = 3, got 2"):
        serve_requests(setup(3), requests(), concurrency=2)


def test_a_request_keeps_its_text_at_every_replica() -> None:
    """Texts whose drafts all stand, or none: rounds of a request tell which it had."""
    texts = RoundAcceptance.trace(np.repeat([1.0, 0.0, 1.0], 100), [0, 100, 200, 300])
    some = Requests(np.arange(12.0), np.full(12, 50), np.full(12, 41))
    # One round a token where none stands; behind the prompt's first token 4 a round.
    for sources in (None, np.arange(12) % 3):
        named = replace(texts, sources=sources)
        drawn = named.of_requests(12, seed=1).sources
        assert drawn is not None
        for replicas in (1, 2, 5):
            setup = SetUp(ENGINE, STEPS, DraftPolicy.fixed(3), named, replicas)
            rounds = serve_requests(setup, some, seed=1).each("rounds")
            assert rounds.tolist() == np.array([11, 41, 11])[drawn].tolist()


def test_which_text_a_request_has_is_drawn() -> None:
    texts = RoundAcceptance.recorded([1, 2, 3], [0, 1, 2, 3])
    assert not texts.certain
    one, same, other = (texts.of_requests(30_000, seed).sources for seed in (7, 7, 8))
    assert one is not None
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    # Each text 10,000 times, give or take five standard deviations of 82: fails once in 600,000.
    assert np.abs(np.bincount(one) - 10_000).max() < 410
    named = replace(texts, sources=np.arange(5) % 3)
    assert named.certain
    assert named.of_requests(5, 9) is named
    with pytest.raises(InvalidArgumentError, match="a text for each of 6 requests, got 5"):
        named.of_requests(6, 9)


def test_more_replicas_than_requests() -> None:
    served = serve_requests(setup(5), requests(3), seed=3)
    assert len(served.runs) == 3
    assert np.isfinite(served.each("last_token_s")).all()


def test_what_the_engine_did() -> None:
    made = replace(setup(2), engine=replace(ENGINE, num_gpu_blocks=90))
    served = serve_requests(made, requests(rate=200.0), seed=3)
    found = engine_figures(served, made)
    steps = [each.steps for each in served.runs]
    assert found["preemptions"] == sum(each.preempted.sum() for each in steps if each) > 0
    rows = [
        (size, span)
        for each in steps
        if each
        for size, span in zip(each.sequences.tolist(), each.seconds.tolist(), strict=True)
    ]
    total = sum(span for _, span in rows)
    assert found["batch_mean"] == pytest.approx(sum(s * t for s, t in rows) / total)
    # The slow way: the least size at which 99 % of the time is reached.
    reached = [size for size in range(17) if sum(t for s, t in rows if s <= size) >= 0.99 * total]
    assert found["batch_p99"] == reached[0]
    assert 0.9 < found["cache_peak"] <= 1
    assert 1 < found["tokens_per_call"] < 1 + 0.8 + 0.6 + 0.4
    assert found["share_target"] + found["share_draft"] + found["share_host"] == pytest.approx(1)


def test_nothing_is_lost_between_replicas() -> None:
    served: Served = serve_requests(setup(4), requests(), seed=3, keep=("rounds", "steps"))
    tokens = np.zeros(120)
    for each, chosen in zip(served.runs, served.chosen, strict=True):
        assert each.round_log is not None
        np.add.at(tokens, chosen[each.round_log.request], each.round_log.tokens)
    assert tokens.tolist() == served.requests.output_tokens.tolist()
