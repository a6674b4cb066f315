"""Host times of draft lengths: repeats that scatter are drawn to neighbours, and others are not."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.hardware.host_times import HostTimes
from specsim.hardware.repeats import PassDraws
from specsim.profiles import Overhead

PASSES, PLAIN_S = 8, 6e-3
GAMMAS = range(1, 9)


def host_times(seconds: dict[int, np.ndarray]) -> HostTimes:
    """By draft length, in each pass."""
    rows = [
        Overhead(1.0, gamma, 1, 0, "eager", each.tolist(), [PLAIN_S] * PASSES, [*range(PASSES)])
        for gamma, each in seconds.items()
    ]
    return HostTimes.of(rows, 1.0)


def noisy(seed: int, noise_s: float, by_gamma: dict[int, float]) -> dict[int, np.ndarray]:
    random = np.random.default_rng(seed)
    return {gamma: s + random.normal(0.0, noise_s, PASSES) for gamma, s in by_gamma.items()}


def line(gamma: int) -> float:
    return 0.4e-3 + 0.02e-3 * gamma


def test_repeats_that_scatter_are_drawn_to_what_neighbours_say() -> None:
    """Stretches scatter by 5 % of a plain step, as those of a lookup do, and lengths lie on a line:
    of 30 calibrations the errors are half as large as those of means (root mean square).  A line
    through eight means has a quarter of their variance, on average over them.
    """
    of_means, smoothed, told = [], [], []
    for seed in range(30):
        rows = noisy(seed, 0.3e-3, {0: 0.2e-3, **{gamma: line(gamma) for gamma in GAMMAS}})
        found = host_times(rows)
        of_means += [found.by_gamma[gamma].mean - line(gamma) for gamma in GAMMAS]
        smoothed += [found(gamma) - line(gamma) for gamma in GAMMAS]
        draws = PassDraws(tuple(range(PASSES)), seed)
        told += [found.drawn(gamma, draws).std() for gamma in GAMMAS]
        assert found(0) == pytest.approx(max(found.by_gamma[0].mean, 0.0))
    ratio = np.linalg.norm(smoothed) / np.linalg.norm(of_means)
    assert 0.4 < ratio < 0.75
    # Draws know of it; Student's t makes them wider than the errors are.
    assert 0.8 < np.mean(told) / np.std(smoothed) < 1.8


def test_what_repeats_agree_on_stays() -> None:
    """A length that takes a third of a plain step longer, in every pass."""
    seconds = {0: 0.2e-3, **{gamma: line(gamma) for gamma in GAMMAS}}
    seconds[5] += 2e-3
    found = host_times(noisy(1, 0.02e-3, seconds))
    for gamma, s in seconds.items():
        assert found(gamma) == pytest.approx(s, abs=0.04e-3)


def test_single_measurements_and_two_lengths_are_met_exactly() -> None:
    once = [
        Overhead(0.0, gamma, 1, 0, "eager", [s], [PLAIN_S])
        for gamma, s in ((0, 1e-4), (1, 5e-4), (2, 2e-4), (3, 9e-4))
    ]
    found = HostTimes.of(once, 0.0)
    assert [found(gamma) for gamma in range(4)] == pytest.approx([1e-4, 5e-4, 2e-4, 9e-4])
    two = host_times(noisy(2, 0.3e-3, {0: 0.2e-3, 1: 0.4e-3, 4: 0.9e-3}))
    assert [two(gamma) for gamma in (1, 4)] == [two.by_gamma[gamma].mean for gamma in (1, 4)]


def test_a_mean_of_differences_is_never_below_nothing() -> None:
    """Single stretches may be, so that their mean is not too large."""
    rows = noisy(3, 0.3e-3, {0: 0.2e-3, **dict.fromkeys(GAMMAS, -0.4e-3)})
    found = host_times(rows)
    assert found.by_gamma[1].mean < 0
    assert {found(gamma) for gamma in GAMMAS} == {0.0}
    draws = PassDraws(tuple(range(PASSES)))
    assert min(found.drawn(gamma, draws).min() for gamma in GAMMAS) == 0.0
