"""Seconds of sets of requests: against step-by-step decoding of made-up engines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from specsim.checks import UnsupportedError
from specsim.counts.steps import StepTime, StreamedStep, StreamedSteps
from specsim.predict.engine_sets import (
    SERVERS_APART,
    AskedSets,
    StepRepeats,
    rounds_at_batches,
    rounds_while_running,
    step_seconds,
)

BATCHES, TIMED = (1, 4, 16), (1, 3, 5)


def decoded_s(rounds: list[int], step_s: Callable[[int], float]) -> float:
    """A set step by step: each round is one step of the requests that are not done."""
    left, seconds = list(rounds), 0.0
    while left:
        seconds += step_s(len(left))
        left = [more - 1 for more in left if more > 1]
    return seconds


def law(batch: float, gamma: int) -> float:
    """Made-up seconds of a step, straight between batches and lines in K at each."""
    plain = np.interp(batch, BATCHES, [0.010, 0.012, 0.020])
    fixed = np.interp(batch, BATCHES, [0.002, 0.003, 0.006])
    slope = np.interp(batch, BATCHES, [0.001, 0.002, 0.005])
    return float(plain + (fixed + gamma * slope if gamma else 0.0))


def steps(
    noise: float = 0.0, off: float = 0.0, drift: float = 0.0, repeats: int = 6, seed: int = 0
) -> list[StepTime]:
    """Step times with noise in each cell, servers that are off for good, and repeats that drift."""
    random = np.random.default_rng(seed)
    servers = {gamma: float(np.exp(off * random.standard_normal())) for gamma in (0, *TIMED)}
    found = []
    for repeat in range(repeats):
        moment = float(np.exp(drift * random.standard_normal()))
        for gamma, server in servers.items():
            for batch in BATCHES:
                cell = moment * server * float(np.exp(noise * random.standard_normal()))
                found.append(
                    StepTime(
                        gamma,
                        batch,
                        cell * law(batch, gamma),
                        repeat=repeat,
                        first_s=cell * 0.003 * batch,
                    )
                )
    return found


@given(st.lists(st.integers(0, 30), min_size=1, max_size=16))
def test_rounds_while_running_are_those_of_decoding_step_by_step(rounds: list[int]) -> None:
    running = rounds_while_running(np.array(rounds))
    for many in range(1, len(rounds) + 1):
        counted = decoded_s([each for each in rounds if each], lambda left, n=many: left == n)
        assert running[many - 1] == counted


@given(st.lists(st.integers(1, 30), min_size=1, max_size=16), st.integers(0, 5))
def test_a_set_takes_what_decoding_it_step_by_step_takes(rounds: list[int], gamma: int) -> None:
    at = rounds_at_batches(np.array(rounds), BATCHES)
    prices = np.array([law(batch, gamma) for batch in BATCHES])
    assert at.sum() == pytest.approx(max(rounds))
    assert float(at @ prices) == pytest.approx(decoded_s(rounds, lambda left: law(left, gamma)))


def test_steps_follow_from_whole_sets() -> None:
    random = np.random.default_rng(1)
    sets = [random.integers(30, 90, batch) for batch in BATCHES]
    counts = np.array([rounds_at_batches(each, BATCHES) for each in sets])
    seconds = np.array([decoded_s(each.tolist(), lambda left: law(left, 3)) for each in sets])
    assert step_seconds(seconds, counts) == pytest.approx([law(batch, 3) for batch in BATCHES])


def asked(batch: int = 16, seed: int = 2) -> AskedSets:
    random = np.random.default_rng(seed)
    accepted = {0: 1.0, 1: 1.6, 2: 2.0, 3: 2.2, 4: 2.35, 5: 2.45}
    return AskedSets(
        batch,
        {
            gamma: [
                np.full(batch, 127)
                if not gamma
                else (127 / more * random.uniform(0.7, 1.3, batch)).round().astype(int)
                for _ in range(2)
            ]
            for gamma, more in accepted.items()
        },
    )


def decoded(sets: AskedSets, gamma: int) -> float:
    """Seconds of all sets, step by step, with first tokens after 0.003 s a request or in ratio."""
    price = 0.003 * sets.batch
    return sum(
        price + decoded_s(each.tolist(), lambda left: law(left, gamma))
        for each in sets.rounds[gamma]
    )


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("gamma", range(1, 6))
def test_without_noise_the_speedup_is_that_of_decoding(gamma: int, batch: int) -> None:
    """K = 2 and 4 were never timed; drift from repeat to repeat leaves ratios alone, and the
    interval is what other servers differed by.
    """
    sets = asked(batch)
    found = StepRepeats.of(steps(drift=0.2)).speedup(sets, gamma)
    measured = decoded(sets, 0) / decoded(sets, gamma)
    assert found.speedup.best == pytest.approx(measured, rel=1e-9)
    # Three batches of three lengths, one degree of freedom each, say that theirs do not.
    line = np.polyfit(TIMED, np.eye(3), 1)
    leverage = float(np.square(gamma * line[0] + line[1]).sum())
    for starts in (1, 4):
        found = StepRepeats.of(steps(drift=0.2)).speedup(sets, gamma, starts=starts)
        of_servers = (1 + 2 / starts + leverage) * 3 / 6 * SERVERS_APART**2
        half = float(t.ppf(0.975, 3)) * of_servers**0.5
        assert np.log(found.speedup.high / found.speedup.best) == pytest.approx(half, rel=1e-6)


@pytest.mark.parametrize("starts", [1, 4])
@pytest.mark.parametrize(
    ("noise", "off"),
    [(0.03, 0.02), (0.03, SERVERS_APART), (0.06, SERVERS_APART), (0.03, 0.0), (0.06, 0.0)],
)
def test_intervals_hold_a_measurement_on_other_servers(
    noise: float, off: float, starts: int
) -> None:
    """400 calibrations and 400 means over other plain and drafting servers, each cell and each
    server so far off: 95 % intervals must hold 92 to 99.5 % (a binomial with 380 of 400 leaves
    92 % once in 300); more where servers do not differ, which few of them cannot tell.
    """
    random, sets, inside = np.random.default_rng(3), asked(4), 0
    truth = decoded(sets, 0) / decoded(sets, 2)
    for seed in range(400):
        repeats = StepRepeats.of(steps(noise=noise, off=off, seed=seed))
        found = repeats.speedup(sets, 2, starts=starts).speedup
        plain, drafting = random.standard_normal((2, starts)).mean(axis=1)
        measured = truth * np.exp(off * (plain - drafting))
        inside += found.low <= measured <= found.high
    assert 0.92 * 400 <= inside <= (0.995 if off else 1.0) * 400


def test_steps_under_load_of_a_repeat_count_as_much_as_its_sets() -> None:
    timed = StepRepeats.of(steps(noise=0.1))

    def seen(gamma: int, repeat: int, slower: float, count: int = 15) -> StreamedSteps:
        rows = [
            StreamedStep(16, 0, 0, slower * law(16, gamma) * share, count) for share in (0.9, 1.1)
        ]
        # Nor do steps that read a prompt count, nor batches that were not timed.
        return StreamedSteps(
            gamma,
            (*rows, StreamedStep(16, 1, 9, 1.0, 99), StreamedStep(5, 0, 0, 1.0, 99)),
            repeat=repeat,
        )

    streamed = [seen(0, 2, 1.0), seen(3, 2, 1.2), seen(0, 4, 1.0, 4), seen(3, 4, 1.2, 4)]
    found = timed.beside(streamed)
    expected = timed.steps.copy()
    ratio = 1.2 * law(16, 3) / law(16, 0)
    expected[2, 2, 1] = np.sqrt(expected[2, 2, 1] * ratio)
    np.testing.assert_allclose(found.steps, expected, rtol=1e-12)
    np.testing.assert_array_equal(found.plain_s, timed.plain_s)
    np.testing.assert_allclose(timed.beside([]).steps, timed.steps, rtol=1e-12)


def test_what_has_no_answer_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="a set of 17 requests is beyond the batches"):
        rounds_at_batches(np.full(17, 5), BATCHES)
    with pytest.raises(UnsupportedError, match="0 repeats at 0 draft lengths"):
        StepRepeats.of([StepTime(1, 1, 0.01)])
    with pytest.raises(UnsupportedError, match="repeat 5 has no step with 5 drafts at batch 16"):
        StepRepeats.of(steps()[:-1])
