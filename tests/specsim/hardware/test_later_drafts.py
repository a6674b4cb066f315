"""Draft runs behind the first of a block get faster with their place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from specsim.hardware.later_drafts import (
    fading_of,
    mean_inverse_place,
    times_late,
    without_fading,
)
from specsim.hardware.run_time_fit import of_length
from specsim.predict.measured import MeasuredCost, Spent
from specsim.profiles import Overhead, RunTime

PLAIN_S = 0.004


def place_s(place: int, fading: float) -> float:
    return 0.0003 * (1 + fading / place)


def later_runs(fading: float, gammas: tuple[int, ...], told: bool = True) -> RunTime:
    """Means over the places 2 to K, as calibration keeps them."""
    means = [float(np.mean([place_s(i, fading) for i in range(2, k + 1)])) for k in gammas]
    plain = [PLAIN_S] * len(gammas)
    return RunTime(
        *("draft", "draft", 1, 1, 32, "eager"),
        means,
        plain,
        passes=list(range(len(gammas))),
        runs=[10 * k for k in gammas],
        gammas=list(gammas) if told else [],
    )


@given(fading=st.floats(0.0, 1.9), gammas=st.sets(st.integers(2, 20), min_size=2))
def test_the_law_is_found_and_taken_off(fading: float, gammas: set[int]) -> None:
    row = later_runs(fading, tuple(sorted(gammas)))
    found = fading_of([row])
    assert found == pytest.approx(fading, rel=1e-6, abs=1e-9)
    (steady,) = without_fading([row], found)
    assert steady.seconds == pytest.approx([0.0003] * len(gammas), rel=1e-6)


def test_lengths_that_are_not_told_or_are_one_tell_nothing() -> None:
    silent = later_runs(0.7, (2, 8), told=False)
    assert fading_of([silent]) == fading_of([later_runs(0.7, (3, 3))]) == fading_of([]) == 0.0
    assert without_fading([silent], 0.7) == [silent]


def test_runs_that_get_slower_do_not_fade() -> None:
    assert fading_of([later_runs(-0.5, (2, 4, 8))]) == 0.0


def test_an_interruption_is_no_slope() -> None:
    row = later_runs(0.7, (2,) * 8 + (8,) * 8)
    interrupted = replace(row, seconds=[2 * row.seconds[0], *row.seconds[1:]])
    assert fading_of([interrupted]) == pytest.approx(0.7, rel=1e-6)


def test_what_is_too_steep_is_not_believed() -> None:
    assert fading_of([later_runs(9.0, (2, 4, 8))]) == 2.0
    falling = replace(later_runs(0.0, (2, 8)), seconds=[0.001, 1e-9])
    assert fading_of([falling]) == 2.0


def test_the_repeats_of_a_length() -> None:
    row = later_runs(0.7, (2, 4, 2))
    assert of_length(row, 2).seconds == [row.seconds[0], row.seconds[2]]
    assert (of_length(row, 4).passes, of_length(row, 4).runs) == ([1], [40])


def test_the_mean_of_one_over_the_places_of_a_block() -> None:
    assert mean_inverse_place(1) == mean_inverse_place(2) == 0.5
    assert mean_inverse_place(4) == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)
    assert times_late(3, 0.6) == pytest.approx(1 + 0.6 * 5 / 12)


def priced() -> tuple[list[RunTime], list[Overhead]]:
    """Run times and host times of a machine whose draft runs get faster."""
    rows = [
        RunTime("target", "target", 1, 1, 32, "eager", [PLAIN_S] * 2, [PLAIN_S] * 2, [0, 1]),
        RunTime("target", "draft", 9, 1, 32, "eager", [2 * PLAIN_S] * 2, [PLAIN_S] * 2, [0, 1]),
        RunTime("draft", "target", 1, 1, 32, "eager", [0.0005] * 2, [PLAIN_S] * 2, [0, 1]),
        later_runs(0.7, (2, 4, 8)),
    ]
    return rows, [Overhead(0.0, k, 1, 0, "eager", [0.0], [PLAIN_S], [0]) for k in (0, 8)]


@pytest.mark.parametrize("gamma", [1, 2, 5, 8])
def test_a_block_is_priced_run_by_run(gamma: int) -> None:
    cost = MeasuredCost.of(*priced(), 0.0)
    later_s = sum(place_s(place, 0.7) for place in range(2, gamma + 1))
    expected = float(cost.target(gamma + 1, np.array([32.0]))[0]) + 0.0005 + later_s
    assert cost.block(gamma, 32.0) == pytest.approx(expected, rel=1e-3)
    # The papers' c is of draft runs as in a block of eight.
    late_s = np.mean([place_s(place, 0.7) for place in range(2, 9)])
    assert cost.draft_cost(32.0) == pytest.approx(late_s / PLAIN_S, rel=1e-3)


def test_a_replay_is_priced_run_by_run() -> None:
    """Two blocks of four drafts and one of two at the end, all rejected."""
    cost = MeasuredCost.of(*priced(), 0.0)
    spent = Spent(
        {
            ("first draft", 1, 4): (np.array([2.0]), np.array([64.0])),
            ("first draft", 1, 2): (np.array([1.0]), np.array([32.0])),
            ("next draft", 1, 4): (np.array([6.0]), np.array([192.0])),
            ("next draft", 1, 2): (np.array([1.0]), np.array([32.0])),
        },
        {},
    )
    expected = sum(
        cost.draft_run(place, 32.0, gamma) for gamma in (4, 4, 2) for place in range(1, gamma + 1)
    )
    assert cost.price(spent)[0] == pytest.approx(expected, rel=1e-9)
