"""What all rules share: rows that are taken, ranges of thresholds, and small functions of rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from specsim import rules
from specsim.checks import Floats, InvalidArgumentError
from specsim.rules import Distributions
from specsim.rules.base import (
    at,
    cross_entropy,
    distance,
    entropy,
    kth_largest,
    normalised,
    one_hot_top,
)

LIBRARIES = pytest.mark.parametrize("array", [np.array, torch.tensor], ids=["numpy", "torch"])
Make = Callable[..., Floats]


def test_rows_may_sum_to_one_up_to_the_rounding_of_their_type() -> None:
    row = np.full(4, 0.25)
    for kind, off in ((np.float64, 0.9e-4), (np.float32, 0.9e-4), (np.float16, 1.5e-3)):
        for sign in (1, -1):
            Distributions.checked((row * (1 + sign * off)).astype(kind), row.astype(kind))
    for kind, off in ((np.float64, 1.1e-4), (np.float32, 1.1e-4), (np.float16, 3e-3)):
        for sign in (1, -1):
            wrong = (row * (1 + sign * off)).astype(kind)
            with pytest.raises(InvalidArgumentError, match="p must sum to one over its last axis"):
                Distributions.checked(wrong, row.astype(kind))
    # The worst of the rows is shown.
    with pytest.raises(InvalidArgumentError, match=r"got 1\.3$"):
        Distributions.checked(np.array([row, 0.8 * row, 1.3 * row]), np.tile(row, (3, 1)))
    # Sums are taken in float32 or better: neither of these is infinite.
    for kind, number, said in ((np.float16, 0.5, "100000"), (np.float64, 1e35, r"2e\+40")):
        wrong = np.full(200_000, number, kind)
        with pytest.raises(InvalidArgumentError, match=rf"got {said}$"):
            Distributions.checked(wrong, wrong)
    Distributions.checked(np.ones((0, 3)), np.ones((0, 3)))


def test_numbers_too_small_for_a_short_type_are_no_error() -> None:
    """Of a million tokens nearly all have 2.9e-8, which float16 rounds to zero."""
    size = 10**6
    row = np.full(size, 2.9e-8)
    row[0] = 1 - row[1:].sum()
    short = row.astype(np.float16)
    assert np.count_nonzero(short) == 1
    assert abs(float(short[0]) - 1) > 2e-2
    Distributions.checked(short, short)
    with pytest.raises(InvalidArgumentError, match="must sum to one"):
        Distributions.checked(short[: size // 10], short[: size // 10])


def test_short_rows_alone_are_made_anew() -> None:
    for kind in (np.float32, np.float64):
        row = np.array([0.25, 0.75 + 5e-5], kind)
        assert Distributions(row, row).p is row
    short = np.array([0.25, 0.751], np.float16)
    rows = Distributions(short, short)
    assert rows.p.dtype == np.float32
    assert float(rows.p.sum()) == pytest.approx(1.0, abs=1e-7)
    assert float(rows.p[1] / rows.p[0]) == pytest.approx(float(short[1]) / 0.25, rel=1e-6)


@LIBRARIES
def test_functions_of_rows_by_hand(array: Make) -> None:
    rows = array([[0.5, 0.5, 0.0], [0.25, 0.0, 0.75]])
    others = array([[0.25, 0.5, 0.25], [0.0, 0.5, 0.5]])
    assert at(rows, array([1, 2])).tolist() == [0.5, 0.75]
    assert one_hot_top(rows).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert distance(rows, others).tolist() == [0.25, 0.5]
    assert entropy(rows).tolist() == pytest.approx(
        [math.log(2), -0.25 * math.log(0.25) - 0.75 * math.log(0.75)]
    )
    # -sum w log p; no weight counts no impossible token.
    assert cross_entropy(rows, others).tolist() == pytest.approx([1.5 * math.log(2), math.inf])
    assert cross_entropy(rows, rows).tolist() == pytest.approx(entropy(rows).tolist())
    assert cross_entropy(array([[1.0, 0.0]]), array([[1.0, 0.0]])).tolist() == [0.0]
    weights = array([[2.0, 6.0, 0.0], [0.0, 0.0, 0.0]])
    assert normalised(weights, others).tolist() == [[0.25, 0.75, 0.0], [0.0, 0.5, 0.5]]
    ties = array([[3.0, 1.0, 3.0, 2.0]])
    assert [kth_largest(ties, k).tolist() for k in (1, 2, 3, 4)] == [[3.0], [3.0], [2.0], [1.0]]


@pytest.mark.parametrize(
    ("make", "low", "high"),
    [
        (rules.Chow, 0.0, 1.0),
        (rules.ChowLog, 0.0, None),
        (rules.Diff, -1.0, 1.0),
        (rules.BildStar, 0.0, None),
        (rules.TokenV1, -1.0, 1.0),
        (rules.TokenV2, -1.0, 1.0),
        (rules.TokenV3, 0.0, 1.0),
        (rules.GreedyLenient, 0.0, 1.0),
        (rules.Lenient, 0.0, 1.0),
        (rules.LenientScaledResidual, 0.0, 1.0),
        (rules.LenientRedraw, 0.0, 1.0),
        (rules.LossyStar, 0.0, None),
        (lambda tau: rules.TopBeta(1, tau), 0.0, None),
        (lambda scale: rules.Lossy(0.25, scale), 0.75, None),
    ],
)
def test_ranges_end_where_the_papers_end_them(
    make: Callable[[float], object], low: float, high: float | None
) -> None:
    make(low)
    with pytest.raises(InvalidArgumentError):
        make(float(np.nextafter(low, -np.inf)))
    if high is None:
        make(0.99)
        return
    make(high)
    with pytest.raises(InvalidArgumentError):
        make(float(np.nextafter(high, np.inf)))


def test_rules_without_bounds_take_any_number() -> None:
    for rule in (rules.DiffLog, rules.Opt, rules.OptLog):
        assert rule(-1e3).threshold == -1e3
        assert rule(1e3).threshold == 1e3
    assert rules.ChowLog(1e3).threshold == rules.BildStar(1e3).threshold == 1e3
    assert rules.TopBeta(10**6, 1e3).tau == 1e3
    assert rules.Lossy(0.0, 1e6).scale == 1e6
    with pytest.raises(InvalidArgumentError, match=r"looseness must be in \[0, 1\), got 1"):
        rules.LossyStar(1.0)
