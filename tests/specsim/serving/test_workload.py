"""Requests drawn from laws: their rates, spreads, seeds, and what stays as it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.api.workload import workload
from specsim.api.workload_result import describe_workload
from specsim.checks import InvalidArgumentError
from specsim.serving.arrivals import (
    Arrivals,
    ClosedLoop,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    ScheduledArrivals,
)
from specsim.serving.lengths import (
    EmpiricalLength,
    FixedLength,
    Lengths,
    LognormalLength,
    UniformLength,
)
from specsim.serving.prefixes import blocks_of_names
from specsim.serving.readers.records import RecordedRequests
from specsim.serving.requests import WorkloadError
from specsim.serving.workload import DrawnWorkload, RecordedWorkload, at_rate, serving_seed
from specsim.serving.workload_summary import WorkloadSummary

COUNT = 20_000


def drawn(arrivals: Arrivals | ClosedLoop, prompt: Lengths | None = None) -> DrawnWorkload:
    return DrawnWorkload(arrivals, prompt or FixedLength(100), FixedLength(10), COUNT)


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [
        (PoissonArrivals(4.0), 1.0),
        # burstiness is the shape of the gamma law, so the coefficient of variation is its -1/2th
        # power: vllm/benchmarks/serve.py, get_request (0.33.0)
        (GammaArrivals(4.0, 0.25), 2.0),
        (GammaArrivals(4.0, 4.0), 0.5),
        (ConstantArrivals(4.0), 0.0),
    ],
)
def test_rate_and_spread(arrivals: Arrivals, cv: float) -> None:
    """Within 5 standard errors of 20,000 intervals: a false alarm in 2 million seeds."""
    intervals = np.diff(arrivals.times(COUNT, np.random.default_rng(1)))
    assert intervals.mean() == pytest.approx(0.25, abs=5 * 0.25 * cv / COUNT**0.5 + 1e-12)
    # Of a gamma law the variance of the sample's CV is about cv^2 (1 + cv^2) / (2 n) or less.
    error = cv * ((1 + 2 * cv**2) / (2 * COUNT)) ** 0.5
    assert intervals.std() / intervals.mean() == pytest.approx(cv, abs=5 * error + 1e-9)


def test_gamma_of_shape_one_is_poisson() -> None:
    """Mean, spread and the share beyond the mean, which is 1/e, at 5 standard errors."""
    intervals = np.diff(GammaArrivals(1.0, 1.0).times(COUNT, np.random.default_rng(2)))
    share = (intervals > 1.0).mean()
    assert share == pytest.approx(np.exp(-1), abs=5 * (0.2325 / COUNT) ** 0.5)


def test_a_schedule_has_its_rates() -> None:
    """Counts of a Poisson process in each piece, at 5 standard deviations."""
    arrivals = ScheduledArrivals((0.0, 100.0, 150.0, 400.0), (10.0, 0.0, 30.0, 5.0))
    times = arrivals.times(COUNT, np.random.default_rng(3))
    for first, last, rate in ((0, 100, 10), (150, 400, 30), (400, 1000, 5)):
        mean = rate * (last - first)
        found = ((times >= first) & (times < last)).sum()
        assert found == pytest.approx(mean, abs=5 * mean**0.5)
    assert not ((times > 100) & (times < 150)).any()
    assert (np.diff(times) >= 0).all()


def test_a_schedule_of_one_rate_is_poisson_of_the_same_numbers() -> None:
    one = ScheduledArrivals((0.0, 7.0), (3.0, 3.0)).times(1000, np.random.default_rng(4))
    np.testing.assert_allclose(one, PoissonArrivals(3.0).times(1000, np.random.default_rng(4)))


def test_the_mean_of_a_lognormal_law_is_of_the_tokens() -> None:
    """Mean and median, at 5 standard errors."""
    tokens = LognormalLength(1155.0, 0.9).draw(COUNT, np.random.default_rng(5))
    spread = 1155 * (np.exp(0.81) - 1) ** 0.5
    assert tokens.mean() == pytest.approx(1155, abs=5 * spread / COUNT**0.5)
    median = 1155 * np.exp(-0.405)
    error = 1.2533 * 0.9 * median / COUNT**0.5
    assert np.median(tokens) == pytest.approx(median, abs=5 * error)


def test_laws_of_lengths_keep_their_bounds() -> None:
    random = np.random.default_rng(6)
    uniform = UniformLength(3, 5).draw(COUNT, random)
    # Each a third, at 5 standard deviations.
    assert [(uniform == n).mean() for n in (3, 4, 5)] == pytest.approx([1 / 3] * 3, abs=0.017)
    assert LognormalLength(10, 2, high=30).draw(COUNT, random).max() == 30
    assert LognormalLength(1, 2).draw(COUNT, random).min() == 1
    seen = EmpiricalLength(np.array([7, 2, 7])).draw(COUNT, random)
    assert set(seen.tolist()) == {2, 7}
    assert (seen == 7).mean() == pytest.approx(2 / 3, abs=0.017)


@given(st.integers(0, 2**40), st.floats(0.01, 1e4), st.floats(0.01, 1e4))
def test_another_rate_sees_the_same_pattern(seed: int, rate: float, other: float) -> None:
    prompt = LognormalLength(50, 1.0)
    workload = DrawnWorkload(PoissonArrivals(rate), prompt, UniformLength(1, 99), 20)
    one, two = workload.draw(seed), at_rate(workload, other).draw(seed)
    np.testing.assert_allclose(two.arrival_s * other, one.arrival_s * rate, rtol=1e-12)
    assert (one.prompt_tokens == two.prompt_tokens).all()
    assert (one.output_tokens == two.output_tokens).all()


def test_streams_are_independent() -> None:
    """Other prompts leave arrivals and outputs as they were; other replications change all."""
    prompts = FixedLength(7), LognormalLength(99.0, 0.5)
    one, two = (
        DrawnWorkload(GammaArrivals(2.0, 0.5), each, UniformLength(1, 500), 50) for each in prompts
    )
    a, b, c = one.draw(9), two.draw(9), two.draw(9, 1)
    assert (a.arrival_s == b.arrival_s).all()
    assert (a.output_tokens == b.output_tokens).all()
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert (getattr(b, name) != getattr(c, name)).any()
    seeds = {serving_seed(seed, replication) for seed in range(5) for replication in range(5)}
    assert len(seeds) == 25


def test_a_duration_is_the_begin_of_more_requests() -> None:
    workload = DrawnWorkload(PoissonArrivals(50.0), FixedLength(5), UniformLength(1, 9), None, 40.0)
    some = workload.draw(3)
    many = DrawnWorkload(PoissonArrivals(50.0), FixedLength(5), UniformLength(1, 9), 9000).draw(3)
    assert len(some) == (many.arrival_s <= 40).sum()
    assert (some.output_tokens == many.output_tokens[: len(some)]).all()


def test_a_duration_has_no_more_requests_than_may_be_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2,000 in 40 s, of a constant rate: one more is too many."""
    work = DrawnWorkload(ConstantArrivals(50.0), FixedLength(5), FixedLength(5), None, 40.0)
    many = len(work.draw(0))
    monkeypatch.setattr("specsim.serving.workload._MOST", many)
    assert len(work.draw(0)) == many
    monkeypatch.setattr("specsim.serving.workload._MOST", many - 1)
    with pytest.raises(InvalidArgumentError, match="duration_s 40 has more than"):
        work.draw(0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: PoissonArrivals(0.0), "rate must be > 0 requests per second, got 0"),
        (lambda: PoissonArrivals(-1.0), "rate must be > 0 requests per second, got -1"),
        (lambda: PoissonArrivals(1e-10), "rate must be >= 1e-09, got 1e-10"),
        (lambda: PoissonArrivals(float("inf")), "rate must be"),
        (lambda: GammaArrivals(1.0, 0.0), "burstiness must be in"),
        (lambda: ScheduledArrivals((1.0,), (2.0,)), "starts_s must rise from 0, got 1"),
        (lambda: ScheduledArrivals((0.0, 2.0), (2.0,)), "rates must be as many as starts_s, 2"),
        (lambda: ScheduledArrivals((0.0, 2.0), (2.0, 0.0)), "the last of rates must be > 0"),
        (lambda: ClosedLoop(0), "concurrency must be a whole number >= 1, got 0"),
        (lambda: FixedLength(0), "tokens must be a whole number in"),
        (lambda: UniformLength(5, 3), "high must be >= low = 5, got 3"),
        (lambda: LognormalLength(0.5, 1.0), "mean must be in"),
        (
            lambda: DrawnWorkload(ClosedLoop(4), FixedLength(1), FixedLength(1), None, 5.0),
            "duration_s has no meaning in a closed loop",
        ),
        (
            lambda: DrawnWorkload(
                PoissonArrivals(1.0), FixedLength(1), FixedLength(1), None, 1e-9
            ).draw(0),
            "duration_s 1e-09 ends before any request",
        ),
        (lambda: at_rate(drawn(ClosedLoop(4)), 2.0), "has no single rate to change"),
    ],
)
def test_what_is_refused(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidArgumentError) as error:
        make()
    assert said in str(error.value)


def recorded(times: bool = True) -> RecordedRequests:
    return RecordedRequests(
        "test",
        np.array([10, 20, 30, 40]),
        np.array([1, 2, 3, 4]),
        np.array([5.0, 6.0, 9.0, 11.0]) if times else None,
    )


def test_a_file_is_stretched_and_cut() -> None:
    plain = RecordedWorkload(recorded()).draw(0)
    assert plain.arrival_s.tolist() == [5, 6, 9, 11]
    twice = RecordedWorkload(recorded(), scale=2.0, scale_prompt=0.04, scale_output=1.5).draw(0)
    assert twice.arrival_s.tolist() == [2.5, 3, 4.5, 5.5]
    assert twice.prompt_tokens.tolist() == [1, 1, 1, 2]
    assert twice.output_tokens.tolist() == [2, 3, 4, 6]  # halves to even
    window = RecordedWorkload(recorded(), window_s=(6.0, 11.0)).draw(0)
    assert window.arrival_s.tolist() == [0, 3]
    assert window.prompt_tokens.tolist() == [20, 30]
    fast = RecordedWorkload(recorded(), rate=3.0, requests=3).draw(0)
    assert WorkloadSummary.of(fast).rate == pytest.approx(3.0)
    assert len(fast) == 3


def test_a_file_without_times_is_drawn_without_repeats_first() -> None:
    workload = RecordedWorkload(recorded(False), PoissonArrivals(2.0), requests=6)
    requests = workload.draw(1)
    pairs = list(zip(requests.prompt_tokens, requests.output_tokens, strict=True))
    assert sorted(pairs[:4]) == [(10, 1), (20, 2), (30, 3), (40, 4)]
    assert all(prompt == 10 * output for prompt, output in pairs)
    assert workload.notes == ("the file has 4 requests and 6 are asked for: they come again",)
    faster = at_rate(workload, 4.0).draw(1)
    np.testing.assert_allclose(faster.arrival_s * 2, requests.arrival_s)
    assert (faster.prompt_tokens == requests.prompt_tokens).all()


def test_requests_that_come_again_share_what_different_requests_share() -> None:
    """Blocks of 5 tokens: the first two prompts begin alike, and end as no other does."""
    names = [("a", "b"), ("a", "c"), ("d",), ()]
    prefix = blocks_of_names(names, np.array([10, 20, 30, 40]), 5)
    work = RecordedWorkload(replace(recorded(False), prefix=prefix), PoissonArrivals(2.0))
    once, thrice = work.draw(1), replace(work, requests=12).draw(1)
    assert once.prefix is not None
    assert sorted(once.prefix.hashes.tolist()) == sorted(prefix.hashes.tolist())
    found = thrice.prefix
    assert found is not None
    of_prompt = {
        prompt: [found.of(at).tolist() for at in np.flatnonzero(thrice.prompt_tokens == prompt)]
        for prompt in (10, 20, 30, 40)
    }
    assert [len(each) for each in of_prompt.values()] == [3] * 4
    assert len({each[0] for each in of_prompt[10] + of_prompt[20]}) == 1
    assert len({each[-1] for prompt in (10, 20, 30) for each in of_prompt[prompt]}) == 9
    assert of_prompt[40] == [[]] * 3
    (said,) = replace(work, requests=12).notes
    assert said.endswith("they come again, with other texts but for what different requests share")


def test_a_file_with_times_has_no_more_requests_than_it_has() -> None:
    assert RecordedWorkload(recorded(), requests=4).notes == ()
    many = RecordedWorkload(recorded(), requests=6)
    assert len(many.draw(0)) == 4
    (said,) = many.notes
    assert said.startswith("the file has 4 requests and 6 are asked for: all come once")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: RecordedWorkload(recorded(False)),
            "the file has no times of arrival: give a rate",
        ),
        (
            lambda: RecordedWorkload(recorded(), PoissonArrivals(1.0), scale=2.0),
            "rate and scale stretch a file's own times",
        ),
        (lambda: RecordedWorkload(recorded(), window_s=(3.0, 3.0)), "must be first < last"),
        (
            lambda: RecordedWorkload(recorded(), window_s=(30.0, 40.0)).draw(0),
            "no request arrives in the window from 30 s to 40 s; the file's are from 5 s to 11 s",
        ),
        (lambda: RecordedWorkload(recorded(), scale=0.0), "scale must be > 0, got 0"),
        (
            lambda: RecordedWorkload(recorded(), rate=2.0, requests=1).draw(0),
            "the requests have no rate",
        ),
    ],
)
def test_what_a_file_refuses(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises((WorkloadError, InvalidArgumentError)) as error:
        make()
    assert said in str(error.value)


def test_requests_of_a_closed_loop_have_no_times() -> None:
    found = describe_workload(workload(concurrency=4, prompt=8, output=2))
    (row,) = found.rows()
    assert np.isnan([row["duration_s"], row["rate"], row["interval_cv"]]).all()


def test_a_summary_of_hand_made_requests() -> None:
    found = WorkloadSummary.of(RecordedWorkload(recorded()).draw(0))
    assert (found.requests, found.duration_s, found.rate) == (4, 6.0, 0.5)
    # Intervals 1, 3, 2.
    assert found.interval_cv == pytest.approx((2 / 3) ** 0.5 / 2)
    assert found.prompt == {
        "mean": 25,
        "p50": 25,
        "p90": pytest.approx(37),
        "p99": pytest.approx(39.7),
    }
    assert "shared" not in found.row()
