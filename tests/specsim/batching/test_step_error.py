"""What step times of an engine leave open of a speedup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, expm1
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from specsim.batching.decision import decide
from specsim.batching.source import Source
from specsim.batching.step_error import StepError
from specsim.batching.workload import Basis
from specsim.counts.file import read_acceptance
from specsim.counts.steps import StepTime
from specsim.predict.engine_sets import SERVERS_APART

TIMED = Path(__file__).parents[3] / "studies" / "measured" / "vllm" / "blind-timed.json"


def steps(offs: Sequence[float], gammas: Sequence[int] = (0, 2, 4)) -> list[StepTime]:
    """10 ms + 1 ms a request, 2 ms for a round, 1.5 ms for each draft token; the rounds of a repeat
    take longer by so much, as a logarithm.
    """
    return [
        StepTime(
            gamma,
            batch,
            (10 + batch + (2 + 1.5 * gamma) * (gamma > 0)) / 1e3 * exp(off * (gamma > 0)),
            context=64.0,
            repeat=repeat,
        )
        for repeat, off in enumerate(offs)
        for gamma in gammas
        for batch in (1, 8)
    ]


def error(timed: list[StepTime], batch: int = 8) -> float | None:
    return StepError(timed)(batch, 64.0)


def half(*parts: tuple[float, int]) -> float:
    """Of the interval of a sum of errors: variances with degrees of freedom, by Welch."""
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / each for part, each in parts)
    return expm1(float(stats.t.ppf(0.975, freedom)) * variance**0.5)


def servers(squares: float = 0.0, freedom: int = 0) -> tuple[float, int]:
    """Of four servers that are so far off their lines, beside those of other timings."""
    return 4 * (3 * SERVERS_APART**2 + squares) / (3 + freedom), max(3, freedom)


@pytest.mark.parametrize("offs", [(-0.01, 0.01), (-0.03, 0.0, 0.01, 0.02)])
def test_repeats_that_differ_leave_as_much_open_as_their_mean(offs: tuple[float, ...]) -> None:
    """To first order in how much they differ."""
    size = len(offs)
    of_mean = float(np.var(offs, ddof=1)) / size
    expected = half((of_mean, size - 1), servers())
    assert error(steps(offs)) == pytest.approx(expected, rel=0.05)


def test_repeats_that_agree_leave_open_what_servers_differ_by() -> None:
    """Two draft lengths lie on any line, so that it is as others did."""
    assert error(steps((0.0, 0.0, 0.0))) == pytest.approx(half(servers()))


def test_servers_that_are_off_their_line_leave_more_open() -> None:
    timed = steps((0.0, 0.0), (0, 1, 2, 3, 4))
    assert error(timed) == pytest.approx(half(servers(0.0, 4)))
    slow = [
        replace(each, seconds=each.seconds * 1.03) if each.gamma == 2 else each for each in timed
    ]
    # Four degrees of freedom, two batches of four lengths about lines.
    gammas, off = np.arange(1, 5), []
    for batch in (1, 8):
        of_batch = {each.gamma: each.seconds for each in slow if each.batch == batch}
        ratios = np.array([of_batch[gamma] / of_batch[0] for gamma in gammas])
        off.append(np.log(ratios / np.polyval(np.polyfit(gammas, ratios, 1), gammas)))
    off_line = servers(float(np.square(off).sum()), 4)
    assert error(slow) == pytest.approx(half(off_line))
    # Beside two repeats that differ.
    both = [
        replace(each, seconds=each.seconds * exp(0.02 * (each.gamma > 0) * each.repeat))
        for each in slow
    ]
    assert error(both) == pytest.approx(half((0.01**2, 1), off_line), rel=0.02)


def test_what_repeats_explain_is_not_the_servers() -> None:
    """Each repeat has another length off the line, and their mean is nearly on it."""
    timed = [
        replace(each, seconds=each.seconds * exp(0.03 * (-1) ** (each.repeat + each.gamma)))
        if each.gamma
        else each
        for each in steps((0.0,) * 4, (0, 1, 2, 3, 4))
        if each.repeat is not None and each.gamma is not None
    ]
    slow = [
        replace(each, seconds=each.seconds * 1.01) if each.gamma == 2 else each for each in timed
    ]
    found = StepError(slow)
    # By chance alone the mean of four would be off by more than that.
    assert found._of_servers == pytest.approx((3 / 7 * SERVERS_APART**2, 4))


def test_nobody_knows_where_nothing_was_repeated() -> None:
    once = steps((0.0,))
    assert error(once) is None
    assert error([replace(each, repeat=None) for each in steps((0.0, 0.1))]) is None
    # Nor beyond the batches that were timed.
    assert error(steps((0.0, 0.1)), batch=9) is None


@pytest.mark.parametrize("gamma", [2, 4])
def test_repeats_that_are_not_alike_tell_nothing(gamma: int) -> None:
    """What one of them lacks would be put between others, and differ for that alone."""
    timed = steps((0.0, 0.1, 0.0))
    assert error(timed) is not None
    assert error([each for each in timed if (each.repeat, each.gamma) != (1, gamma)]) is None
    assert error([each for each in timed if (each.repeat, each.batch) != (1, 8)], batch=1) is None


def test_steps_under_load_are_left_out_by_two_repeats() -> None:
    """Every other repeat has every other number of clients."""
    file = read_acceptance(TIMED)
    streamed = file.streamed_steps()
    repeats = sorted({each.repeat for each in streamed})
    assert len(repeats) >= 4
    assert StepError((), (), streamed)(4, 64.0) is not None
    two = [each for each in streamed if each.repeat in repeats[:2]]
    assert StepError((), (), two)(4, 64.0) is None


def test_of_few_repeats_whole_sets_tell() -> None:
    """With two or three, no repeats may be left out of the steps under load."""
    file = read_acceptance(TIMED)
    repeats = sorted({each.repeat for each in file.streamed_steps()})
    for count in (2, 3):
        kept = [
            [each for each in rows if each.repeat in repeats[:count]]
            for rows in (file.step_times(), file.streamed_steps())
        ]
        found = StepError(kept[0], file.prompt_times(), kept[1])(4, 64.0)
        assert found is not None
        assert 0.01 < found < 0.5


def test_repeats_that_are_never_left_out_count() -> None:
    """Of five repeats, of which two and two are left out, a mean is as sure as five tell: the
    factor against drawn repeats, 20,000 times, whose ratio is good to 1 %.
    """
    streamed = read_acceptance(TIMED).streamed_steps()
    first = streamed[0].repeat
    five = [replace(each, repeat=number) for number in range(5) for each in streamed[:1]]
    found = StepError((), (), five)
    assert first is not None
    assert found._groups == [{0, 1}, {2, 3}]
    drawn = np.random.default_rng(5).normal(size=(20_000, 5))
    means = [drawn[:, 2:].mean(axis=1), drawn[:, [0, 1, 4]].mean(axis=1)]
    assert found._jackknife * np.var(means, axis=0).mean() == pytest.approx(1 / 5, rel=0.05)


def test_a_draft_length_that_a_repeat_lacks_tells_nothing() -> None:
    streamed = read_acceptance(TIMED).streamed_steps()
    repeats = sorted({each.repeat for each in streamed})
    lacking = [each for each in streamed if (each.repeat, each.gamma) != (repeats[0], 0)]
    assert StepError((), (), lacking)(4, 64.0) is None


def test_the_interval_of_an_engine_has_what_its_steps_leave_open() -> None:
    """Beside what its counts do."""
    (workload,) = Source(profile=TIMED).workloads()
    known, unknown = (
        decide(each, 4, 64, 0.0, 2).speedup
        for each in (workload, replace(workload, basis=Basis("step times of the engine")))
    )
    assert known is not None
    assert unknown is not None
    assert known.best == unknown.best
    found = workload.basis.error(4, 64.0)
    assert found is not None
    assert 0.005 < found < 0.5
    below = [np.log(each.best / each.low) for each in (known, unknown)]
    assert below[0] == pytest.approx(np.hypot(below[1], np.log1p(found)))
