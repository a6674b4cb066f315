"""Latencies, throughput, goodput and levels, by hand; and whether intervals hold what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.checks import InvalidArgumentError
from specsim.serving import resampling
from specsim.serving.levels import ServiceLevel, levels_of, request_limits
from specsim.serving.metrics import Measured, RequestTimes, measure, short_span, tail_share
from specsim.serving.resampling import percentile_draws, percentile_ends
from specsim.serving.spread import intervals, replicate


def by_hand() -> RequestTimes:
    """Three requests; the second has one token, the third waits."""
    return RequestTimes(
        arrival_s=np.array([1.0, 2.0, 3.0]),
        first_token_s=np.array([1.5, 2.25, 6.0]),
        last_token_s=np.array([2.5, 2.25, 7.0]),
        output_tokens=np.array([5, 1, 3]),
        itl_s=np.array([0.5, 0.5, 1.0]),
        itl_request=np.array([0, 0, 2]),
    )


def test_latencies_by_hand() -> None:
    found = measure(by_hand()).figures
    assert found["ttft_mean"] == pytest.approx((0.5 + 0.25 + 3.0) / 3)
    assert found["ttft_p50"] == 0.5
    # Linear between order statistics, as numpy.percentile in vllm/benchmarks/serve.py
    assert found["ttft_p90"] == pytest.approx(0.5 + 0.8 * 2.5)
    # 0.25 and 0.5 s a token; a request of one token has no TPOT
    assert found["tpot_mean"] == pytest.approx(0.375)
    assert found["itl_mean"] == pytest.approx(2 / 3)
    assert found["e2e_mean"] == pytest.approx((1.5 + 0.25 + 4.0) / 3)
    assert found["output_tokens_per_s"] == pytest.approx(9 / 6)
    assert found["requests_per_s"] == pytest.approx(3 / 6)
    assert "goodput" not in found


@pytest.mark.parametrize(
    ("words", "good"),
    [
        ("ttft=0.5", 2),  # a limit is kept where it is met exactly
        ("ttft_p99=0.4,tpot_p50=0.3", 1),
        ("tpot=0.2", 1),  # one token has a TPOT of 0, as vllm bench serve has it
        ("e2e_mean=2,ttft=1", 2),
        ("e2e=5,e2e_p99=0.3", 1),  # the least of two limits
    ],
)
def test_goodput_counts_as_vllm_does(words: str, good: int) -> None:
    found = measure(by_hand(), levels_of(words)).figures
    assert found["goodput"] == pytest.approx(good / 6)
    assert found["good_share"] == pytest.approx(good / 3)


@pytest.mark.parametrize(
    "words",
    [
        "e2e_mean=2",  # those above a mean are what makes it one
        "itl_p99=0.1",  # gaps are not a request's
    ],
)
def test_without_a_limit_of_requests_none_is_good_or_not(words: str) -> None:
    assert not {"goodput", "good_share"} & set(measure(by_hand(), levels_of(words)).figures)


def test_the_warm_up_is_left_out() -> None:
    cut = measure(by_hand(), warmup=0.34)
    assert cut.counted == 2
    assert cut.figures["ttft_mean"] == pytest.approx(3.25 / 2)
    assert cut.figures["itl_mean"] == 1.0
    # All end after the second arrival, at 2 s.
    assert cut.figures["output_tokens_per_s"] == pytest.approx(9 / 5)


def test_a_percentile_of_a_level_is_measured() -> None:
    found = measure(by_hand(), levels_of("ttft_p99.9=1")).figures
    assert found["ttft_p99.9"] == pytest.approx(3 - 2.5 * 0.002)


def test_levels() -> None:
    levels = levels_of({"ttft_p99": 1.0, "tpot": 0.06})
    assert levels == (ServiceLevel("ttft", "p99", 1.0), ServiceLevel("tpot", None, 0.06))
    assert levels == levels_of("ttft_p99=1, tpot=0.06")
    assert request_limits(levels) == {"ttft": 1.0, "tpot": 0.06}
    assert levels_of(None) == ()


def test_a_latency_that_no_request_has_meets_its_level() -> None:
    (level,) = levels_of("tpot_p99=0.05")
    assert [level.met(each) for each in (0.05, 0.0501, float("nan"))] == [True, False, True]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ttft", "slo must be NAME=SECONDS,..., such as ttft_p99=1,tpot_p99=0.06, got 'ttft'"),
        ("ttlt_p99=1", "slo must name ttft, tpot, itl, e2e, each alone or with _mean or a per"),
        ("ttft_p100=1", "slo must name"),
        ("ttft_p99=0", "ttft_p99 must be > 0 seconds, got 0"),
        (
            "ttft_p99=x",
            "slo ttft_p99 must be a number of seconds, or one with its unit such as 60ms",
        ),
        ("itl=0.1", "itl is a latency of tokens, not of requests"),
        ("ttft=1,ttft=2", "slo has one level twice"),
    ],
)
def test_levels_that_are_refused(words: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        levels_of(words)
    assert said in str(error.value)


def drawn(seed: int, count: int) -> RequestTimes:
    """Independent TTFT of mean 1 and standard deviation 1, at about 1 request a second."""
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.standard_exponential(count))
    first = arrivals + random.standard_exponential(count)
    return RequestTimes(arrivals, first, first + 1.0, np.full(count, 11))


@pytest.mark.parametrize("replications", [1, 8])
def test_intervals_hold_the_truth_as_often_as_they_say(replications: int) -> None:
    """200 intervals of 95 %: 179 to 199 hold it but in one of 2,000 seeds (binomial)."""
    held = 0
    for seed in range(200):
        runs = [measure(drawn(1000 * seed + r, 1000 // replications)) for r in range(replications)]
        found = intervals(runs)["ttft_mean"]
        held += found.low <= 1.0 <= found.high
    assert 179 <= held <= 199


def test_intervals_of_a_queue_that_is_remembered_for_a_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Latencies that are alike for as long as a request stays, in runs of ten stays and of a
    hundred.  Of 300 intervals that hold the mean with 0.88, fewer than 240 do once in 10,000 seeds;
    batches of half a stay, 20 in ten, hold it in fewer than that.
    """
    stay, count = 100.0, 1000
    for stays, of_batch, least, most in ((10, 2, 240, 300), (100, 2, 250, 300), (10, 0.5, 0, 239)):
        monkeypatch.setattr(resampling, "STAYS_OF_BATCH", of_batch)
        times = stays * stay * np.arange(count) / count
        same = np.exp(-(times[1] - times[0]) / stay)
        held = 0
        for seed in range(300):
            random = np.random.default_rng(9000 + seed)
            level = np.empty(count)
            level[0] = random.standard_normal()
            for n in range(1, count):
                level[n] = same * level[n - 1] + (1 - same**2) ** 0.5 * random.standard_normal()
            late = times + stay + level
            run = RequestTimes(times, late, late, np.ones(count, np.int64))
            found = intervals([measure(run)])["ttft_mean"]
            held += found.low <= stay <= found.high
        assert least <= held <= most


def test_a_run_of_few_stays_is_told_from_one_of_many() -> None:
    arrivals = np.arange(100.0)
    for stay, short in ((9.0, False), (11.0, True)):
        late = arrivals + stay
        found = short_span(RequestTimes(arrivals, late, late, np.ones(100, np.int64)))
        assert (found is not None) == short


def test_the_interval_of_a_percentile_holds_it() -> None:
    """200 intervals of 95 % of a 90th percentile, ln 10, of 1,000 independent requests in 20
    batches, and in 5: at least 170 hold it but in one of 10,000 seeds if each does with 0.92.
    """
    for batches in (20, 5):
        held = 0
        batch = np.repeat(np.arange(batches), 1000 // batches)
        for seed in range(200):
            values = drawn(5000 + seed, 1000).ttft_s
            ((low, high),) = percentile_ends(values, batch, batches, [0.9])
            held += low <= np.log(10) <= high
        assert 170 <= held <= 199


def test_throughput_of_an_engine_that_empties_has_no_interval() -> None:
    """The last request takes as long as all others arrive: half of the time is behind them."""
    steady = drawn(3, 1000)
    last = steady.last_token_s.copy()
    last[-1] += steady.arrival_s[-1]
    empties = RequestTimes(steady.arrival_s, steady.first_token_s, last, steady.output_tokens)
    assert tail_share(empties) == pytest.approx(0.5, abs=0.01)
    found = intervals([measure(empties, levels_of("ttft=1"))])
    for name in ("output_tokens_per_s", "requests_per_s", "goodput"):
        assert np.isnan(found[name].low)
        assert not np.isnan(intervals([measure(steady, levels_of("ttft=1"))])[name].low)
    assert not np.isnan(found["ttft_mean"].low)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=60))
def test_percentiles_of_drawn_batches(drawn_values: list[tuple[int, int]]) -> None:
    """Against the slow way: the batches that are drawn, put together and sorted."""
    values, batch = (np.array(column) for column in zip(*drawn_values, strict=True))
    random = np.random.default_rng(0).multinomial(4, np.full(4, 0.25), size=1000)
    expected = []
    for times in random:
        pooled = np.sort(np.repeat(values, times[batch]))
        # Where no value is drawn the least of all stands for it.
        at = max(int(np.ceil(0.9 * pooled.size)) - 1, 0)
        expected.append(pooled[at] if pooled.size else values.min())
    (found,) = percentile_draws(values.astype(float), batch, 4, [0.9])
    assert found.tolist() == expected
    # Of four batches with three degrees of freedom: 3.182 for 1.96, and the root of 4 over 3.
    ((low, high),) = percentile_ends(values.astype(float), batch, 4, [0.9])
    middle = np.quantile(values, 0.9)
    ends = middle + 3.182446 / 1.959964 * (4 / 3) ** 0.5 * (
        np.quantile(expected, [0.025, 0.975]) - middle
    )
    assert (low, high) == pytest.approx((max(ends[0], 0.0), ends[1]), rel=1e-5)


def test_of_few_requests_nobody_knows_the_spread() -> None:
    found = intervals([measure(drawn(1, 249))])["ttft_p99"]
    assert found.best == measure(drawn(1, 249)).figures["ttft_p99"]
    assert np.isnan(found.low)
    assert np.isnan(found.high)


def test_batches_are_all_requests_once() -> None:
    found = measure(drawn(2, 1000), warmup=0.1)
    assert len(found.batches) == 18
    assert np.mean([each["ttft_mean"] for each in found.batches]) == pytest.approx(
        found.figures["ttft_mean"]
    )
    # Throughput by order of the ends: tokens over seconds, whose sums are those of the whole.
    assert 1 / np.mean(
        [1 / each["output_tokens_per_s"] for each in found.batches]
    ) == pytest.approx(found.figures["output_tokens_per_s"], rel=0.01)


def test_a_figure_that_is_missing_has_no_interval() -> None:
    runs = [Measured({"tpot_mean": float("nan")}, (), 1)] * 2
    assert np.isnan(intervals(runs)["tpot_mean"].best)


def test_replications_do_not_depend_on_workers() -> None:
    told: list[int] = []
    for workers in (1, 2):
        assert replicate(abs, 5, workers, lambda: told.append(1)) == [0, 1, 2, 3, 4]
    assert len(told) == 2 * 5


def begin_and_wait(number: int) -> None:
    print("begun", flush=True)
    time.sleep(600)


def test_workers_end_with_the_process_that_asked() -> None:
    """Killed, it can tell them nothing."""
    script = (
        "from specsim.serving.spread import replicate\n"
        "from tests.specsim.serving.test_metrics import begin_and_wait\n"
        "replicate(begin_and_wait, 2, workers=2)"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, start_new_session=True
    ) as asked:
        assert asked.stdout is not None
        try:
            assert asked.stdout.read(2 * len("begun\n")).count(b"begun") == 2
            asked.kill()
            # The output ends once nobody is left who could write to it.
            asked.communicate(timeout=60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(asked.pid, signal.SIGKILL)
