"""Curves, the optimum and regret against slow twins: loops, enumeration, a linear programme."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import linprog

from specsim.checks import Floats, InvalidArgumentError
from specsim.frontier import Sweep, best_within, frontier, mean_regret, optimum

UNIT = st.floats(0, 1, allow_subnormal=False)
SIXTEENTHS = st.integers(0, 16).map(lambda part: part / 16)
# Few values, so that ties, TV = 0 and equal losses come often.
COARSE = st.sampled_from([0.0, 0.25, 0.5, 1.0])


def columns(elements: Any, most: int = 12) -> Any:
    """tv, draft losses, target losses and scores of a few positions."""
    return st.integers(1, most).flatmap(
        lambda size: arrays.arrays(np.float64, (4, size), elements=elements)
    )


@given(columns(UNIT | COARSE), st.data())
def test_curve_is_the_rule_at_every_threshold(rows: Floats, data: st.DataObject) -> None:
    tv, draft, target, score = rows
    curve = Sweep.of(score).curve(tv, draft, target)
    assert (np.diff(curve.setting) < 0).all()
    # At each of its own thresholds, and at any other one: defer where the score is above.
    other = data.draw(UNIT)
    for threshold in [*curve.setting, other]:
        at = int((curve.setting > threshold).sum())
        defer = score > threshold
        assert curve.rejection[at] == pytest.approx(np.where(defer, tv, 0).mean(), abs=1e-12)
        assert curve.loss[at] == pytest.approx(np.where(defer, target, draft).mean(), abs=1e-12)


@given(columns(UNIT | COARSE))
def test_outcomes_average_to_the_curve(rows: Floats) -> None:
    tv, draft, target, score = rows
    sweep = Sweep.of(score)
    curve = sweep.curve(tv, draft, target)
    for at in range(len(curve.setting)):
        outcome = sweep.outcome(at, tv, draft, target)
        assert outcome.rejection.mean() == pytest.approx(curve.rejection[at], abs=1e-12)
        assert outcome.loss.mean() == pytest.approx(curve.loss[at], abs=1e-12)


@given(columns(UNIT | COARSE), st.data())
def test_weights_are_repetitions(rows: Floats, data: st.DataObject) -> None:
    """A weighted curve is the curve of the positions repeated, at the same thresholds."""
    tv, draft, target, score = rows
    counts = data.draw(arrays.arrays(np.int64, tv.shape, elements=st.integers(0, 3)))
    counts[0] += 1
    weighted = Sweep.of(score).curve(tv, draft, target, counts.astype(float))
    repeated = [np.repeat(row, counts) for row in rows]
    plain = Sweep.of(repeated[3]).curve(*repeated[:3])
    for at, threshold in enumerate(plain.setting):
        same = int((weighted.setting > threshold).sum())
        assert weighted.rejection[same] == pytest.approx(plain.rejection[at], abs=1e-12)
        assert weighted.loss[same] == pytest.approx(plain.loss[at], abs=1e-12)


def test_infinite_scores() -> None:
    """An infinite score defers at every finite threshold; minus infinity never does."""
    curve = Sweep.of(np.array([np.inf, -np.inf, 1.0])).curve(
        *np.array([[0.3] * 3, [1] * 3, [0] * 3])
    )
    assert curve.setting.tolist() == [np.inf, 1.0, 0.0]
    assert curve.loss == pytest.approx([1, 2 / 3, 1 / 3])
    never = Sweep.of(np.full(2, -np.inf)).curve(*np.array([[0.3] * 2, [1] * 2, [0] * 2]))
    assert never.loss.tolist() == [1.0]
    with pytest.raises(InvalidArgumentError, match="got nan at 1"):
        Sweep.of(np.array([0.0, np.nan]))


# The solver takes coefficients below 1e-9 for zero, so none is that small.
@given(columns(SIXTEENTHS, most=8), SIXTEENTHS)
def test_lemma_6_optimum_is_the_linear_programme(rows: Floats, budget: float) -> None:
    """min sum r (l_p - l_q) with sum r TV <= budget, 0 <= r <= 1, by an independent solver."""
    tv, draft, target, _ = rows
    size = len(tv)
    best = optimum(tv, draft, target).curve(tv, draft, target)
    solved = linprog(
        (target - draft) / size, A_ub=[tv / size], b_ub=[budget], bounds=(0, 1), method="highs"
    )
    assert solved.status == 0
    # HiGHS solves to feasibility and optimality tolerances of 1e-7.
    assert frontier(best, budget) == pytest.approx(draft.mean() + solved.fun, abs=1e-6)


@given(columns(COARSE, most=8))
def test_lemma_6_threshold_is_the_price_of_rejection(rows: Floats) -> None:
    """At the optimum's threshold alpha, no set of positions has less loss + alpha rejection."""
    tv, draft, target, _ = rows
    curve = optimum(tv, draft, target).curve(tv, draft, target)
    for price, rejection, loss in zip(curve.setting, curve.rejection, curve.loss, strict=True):
        if np.isfinite(price):
            least = np.minimum(draft, target + price * tv).mean()
            assert loss + price * rejection == pytest.approx(least, abs=1e-12)


@given(columns(UNIT | COARSE, most=8))
def test_no_set_of_positions_beats_the_optimum(rows: Floats) -> None:
    tv, draft, target, _ = rows
    best = optimum(tv, draft, target).curve(tv, draft, target)
    sets = np.array(list(np.ndindex(*[2] * len(tv))), dtype=np.bool_)
    rejection = np.where(sets, tv, 0).mean(axis=1)
    loss = np.where(sets, target, draft).mean(axis=1)
    assert (loss >= frontier(best, rejection) - 1e-12).all()
    # The frontier falls and is convex, and its last point is the least loss of all.
    assert (np.diff(best.loss) <= 0).all()
    assert frontier(best, 1.0) == pytest.approx(np.minimum(draft, target).mean())


@given(columns(UNIT | COARSE), st.data())
def test_regret_by_quadrature(rows: Floats, data: st.DataObject) -> None:
    tv, draft, target, score = rows
    curve = Sweep.of(score).curve(tv, draft, target)
    best = optimum(tv, draft, target).curve(tv, draft, target)
    start, widest = float(draft.mean()), float(tv.mean())
    regret = mean_regret(curve, best, start, widest)
    assert regret >= -1e-12
    if widest > 1e-6:
        # Midpoints between all corners: constant minus straight is integrated exactly.
        corners = np.unique(np.concatenate([curve.rejection, best.rejection, [0, widest]]))
        corners = corners[corners <= widest]
        middle = (corners[1:] + corners[:-1]) / 2
        gap = best_within(curve, start, middle) - frontier(best, middle)
        assert regret == pytest.approx(gap @ np.diff(corners) / widest, abs=1e-9)


@given(columns(UNIT | COARSE))
def test_the_optimum_itself_regrets_its_steps_only(rows: Floats) -> None:
    """Without the coin for the last position, the optimum's curve is above its chords."""
    tv, draft, target, _ = rows
    best = optimum(tv, draft, target).curve(tv, draft, target)
    assert best_within(best, float(draft.mean()), best.rejection) == pytest.approx(
        frontier(best, best.rejection), abs=1e-12
    )


def test_best_within_is_never_better_than_allowed() -> None:
    curve = Sweep.of(np.array([3.0, 2.0])).curve(
        np.array([0.2, 0.6]), np.array([0.0, 1.0]), np.array([1.0, 0.0])
    )
    # Draft alone 0.5; deferring the first makes it worse; both: 0.5 again.
    assert best_within(curve, 0.5, [0.0, 0.1, 0.4]).tolist() == [0.5, 0.5, 0.5]
    better = Sweep.of(np.array([2.0, 3.0])).curve(
        np.array([0.2, 0.6]), np.array([0.0, 1.0]), np.array([1.0, 0.0])
    )
    assert best_within(better, 0.5, [0.0, 0.29, 0.3, 1.0]).tolist() == [0.5, 0.5, 0.0, 0.0]
