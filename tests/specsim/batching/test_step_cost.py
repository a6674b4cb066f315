"""Step times of an engine as the cost of a batch."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.batching.cost import CellUnavailableError
from specsim.batching.point import batch_point, best_of_cell
from specsim.batching.step_cost import StepLoadCost
from specsim.checks import UnsupportedError
from specsim.counts.step_costs import StepCosts
from specsim.counts.steps import StepTime


def cost(gammas: tuple[int, ...] = (0, 2, 4), batches: tuple[int, ...] = (1, 8)) -> StepLoadCost:
    """Steps of 10 ms + 1 ms a request, 2 ms for a round, 1.5 ms for each draft token."""
    return StepLoadCost(
        StepCosts.of(
            StepTime(gamma, batch, (10 + batch + (2 + 1.5 * gamma) * (gamma > 0)) / 1e3)
            for gamma in gammas
            for batch in batches
        )
    )


def test_a_block_costs_what_its_step_took() -> None:
    survival = [0.8, 0.6, 0.5, 0.4]
    found = batch_point(survival, cost(), 4, 8, 0)
    assert found.block_s == pytest.approx(0.026)
    assert found.speedup == pytest.approx((1 + sum(survival)) * 0.018 / 0.026)


def test_lengths_between_and_below_the_timed_ones_follow_the_law_of_a_step() -> None:
    for gamma in (1, 3):
        assert batch_point([0.5] * 4, cost(), gamma, 1, 0).block_s == pytest.approx(
            (13 + 1.5 * gamma) / 1e3
        )
    # One length alone says nothing of what a round costs: shorter ones cost as much at most.
    alone = cost(gammas=(0, 4))
    assert batch_point([0.5] * 4, alone, 2, 1, 0).block_s == pytest.approx(0.019)
    assert batch_point([0.5] * 4, alone, 0, 1, 0).block_s == pytest.approx(0.011)


def test_a_short_draft_never_costs_less_than_a_plain_step() -> None:
    # Beyond 8 drafts a step gets dear: the line through 8 and 10 is below zero at 1.
    steps = StepCosts.of(
        StepTime(gamma, 1, seconds) for gamma, seconds in ((0, 0.010), (8, 0.013), (10, 0.1))
    )
    dear = StepLoadCost(steps)
    for gamma in range(1, 8):
        found = batch_point([0.5] * 10, dear, gamma, 1, 0)
        assert 0.010 <= found.block_s <= 0.013
    assert batch_point([0.5] * 10, dear, 9, 1, 0).block_s == pytest.approx(0.0565)


@pytest.mark.parametrize(
    ("timed", "near", "far"),
    [(None, [0.0], [1.0, 512.0]), (1000.0, [500.0, 2000.0], [0.0, 4096.0])],
)
def test_contexts_unlike_the_timed_one_are_not_covered(
    timed: float | None, near: list[float], far: list[float]
) -> None:
    steps = [StepTime(gamma, 1, 0.01 + gamma / 1e3, context=timed) for gamma in (0, 3)]
    found = StepLoadCost(StepCosts.of(steps))
    assert [found.covers(1, each) for each in near] == [True] * len(near)
    assert [found.covers(1, each) for each in far] == [False] * len(far)


def test_batches_that_one_length_was_not_timed_at_have_no_price() -> None:
    """Of plain decoding up to 64, of two drafts up to 32: which is best at 64 nobody knows."""
    timed = [(0, 1), (0, 32), (0, 64), (2, 1), (2, 32), (4, 1), (4, 64)]
    found = StepLoadCost(StepCosts.of(StepTime(g, b, 0.01 + b / 1e3) for g, b in timed))
    assert found.batches == (1, 32)
    for gamma in (0, 2, 3, 4):
        with pytest.raises(
            CellUnavailableError, match="of 2 draft tokens were timed at batch 1, 32"
        ):
            found.timed_s(gamma, 64)
        assert found.timed_s(gamma, 32) > 0


def test_the_best_length_is_found_among_those_timed() -> None:
    for alpha in (0.1, 0.5, 0.9):
        survival = alpha ** np.arange(1.0, 5.0)
        points = [batch_point(survival, cost(), gamma, 4, 0) for gamma in range(5)]
        best = best_of_cell(survival, cost(), 4, 0, 4)
        assert best.speedup == max(point.speedup for point in points)
    with pytest.raises(UnsupportedError, match="gamma 5"):
        batch_point([0.5] * 5, cost(), 5, 1, 0)


def test_larger_batches_than_were_timed_have_no_price() -> None:
    with pytest.raises(CellUnavailableError, match="batch 1, 8, 9 is beyond"):
        batch_point([0.5] * 4, cost(), 2, 9, 0)
    with pytest.raises(UnsupportedError, match="batch 4, 8, 2 is beyond") as found:
        batch_point([0.5] * 4, cost(batches=(4, 8)), 2, 2, 0)
    assert not isinstance(found.value, CellUnavailableError)


@pytest.mark.parametrize(("gammas", "missing"), [((0,), "with drafts"), ((3,), "plain decoding")])
def test_steps_with_and_without_drafts_are_needed(gammas: tuple[int, ...], missing: str) -> None:
    with pytest.raises(UnsupportedError, match=missing):
        cost(gammas=gammas)
