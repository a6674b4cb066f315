"""Sums of what was counted apart, and the intervals of what they say."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.counts.drafts import DraftCounts, DraftTotals, MeanLength
from specsim.counts.pooling import pooled_counts, pooled_lengths
from specsim.engines.readers.pooling import pooled_files
from tests.support.mutations import sample
from tests.support.refusals import refuses


@st.composite
def counted(draw: st.DrawFn) -> DraftCounts:
    """Rounds of a draft length from 1 to 3, with positions or without."""
    gamma = draw(st.integers(1, 3))
    bins = draw(st.lists(st.integers(0, 50), min_size=gamma + 1, max_size=gamma + 1))
    reached = tuple(float(sum(bins[i:])) for i in range(1, gamma + 1))
    positions = reached if draw(st.booleans()) else ()
    return DraftCounts(gamma, sum(bins), sum(reached), gamma * sum(bins), positions)


@given(st.lists(counted(), max_size=12), st.randoms(use_true_random=False))
def test_order_and_grouping_do_not_matter(counts: list[DraftCounts], rng: random.Random) -> None:
    whole = [each for each, _ in pooled_counts(counts)]
    shuffled = rng.sample(counts, len(counts))
    half = rng.randrange(len(counts) + 1)
    parts = [each for part in (shuffled[:half], shuffled[half:]) for each, _ in pooled_counts(part)]
    assert [each for each, _ in pooled_counts(parts)] == whole
    assert sum(each.rounds for each in whole) == sum(each.rounds for each in counts)


def test_a_position_that_one_of_two_does_not_tell_is_not_known_of_both() -> None:
    few = DraftCounts(5, 1000, 2300, 5000, (800, 650))
    more = DraftCounts(5, 1000, 2300, 5000, (800, 650, 450))
    for both in (few + more, more + few):
        assert both.reached == (1600, 1300)
    varied = replace(few, gamma=None, accepted=1450) + replace(more, gamma=None, accepted=1900)
    assert varied.reached == (1600, 1300, 450)


@pytest.mark.parametrize("name", ["vllm-log-current.txt", "vllm-log-2025-04.txt", "sglang-log.txt"])
def test_a_log_cut_in_two_gives_the_same(name: str) -> None:
    lines = sample(name).splitlines(keepends=True)
    whole = pooled_files([("whole", "".join(lines).encode())])
    for cut in range(len(lines)):
        parts = ["".join(lines[:cut]), "".join(lines[cut:])]
        if all("metrics: " in part or "Decode batch" in part for part in parts):
            halves = pooled_files([(f"part {i}", part.encode()) for i, part in enumerate(parts)])
            assert (halves.counts, halves.totals) == (whole.counts, whole.totals)
            for one, other in zip(halves.lengths, whole.lengths, strict=True):
                assert one.tokens_per_call == pytest.approx(other.tokens_per_call, rel=1e-12)


def test_lengths_of_another_weight_stay_apart() -> None:
    lengths = [
        MeanLength(3, 2.0, 1, "requests"),
        MeanLength(3, 3.0, 3, "requests"),
        MeanLength(3, 9 / 4, 1, "servers"),
        MeanLength(None, 5.0, 1, "requests"),
    ]
    assert [(each.gamma, each.tokens_per_call) for each in pooled_lengths(lengths)] == [
        *((3, 2.75), (3, 2.25), (None, 5.0))
    ]


def test_the_interval_of_a_length_covers_as_often_as_it_says() -> None:
    # Rounds of K = 4 with alpha 0.7: 95 % intervals of 2000 draws cover 1900 times; fewer than
    # 1870 or more than 1930 has probability 0.002.
    rng = np.random.default_rng(0)
    stood = (rng.random((2000, 200, 4)) < 0.7).cumprod(axis=2)
    mean = 1 + sum(0.7**i for i in range(1, 5))
    reached = stood.sum(axis=1)
    found = [DraftCounts(4, 200, float(r.sum()), None, tuple(map(float, r))) for r in reached]
    intervals = [counts.length() for counts in found]
    inside = sum(each.low <= mean <= each.high for each in intervals if each is not None)
    assert 1870 <= inside <= 1930
    # Without positions the interval is wider.
    totals = DraftCounts(4, 200, found[0].accepted).length()
    assert totals is not None
    assert intervals[0] is not None
    assert totals.low < intervals[0].low < intervals[0].best < intervals[0].high < totals.high


def test_positions_that_were_not_all_counted_do_not_tell_how_rounds_differ() -> None:
    """Half of the rounds have two positions of five, so that of all of them two are known."""
    whole = DraftCounts(5, 500, 960, None, (450, 400, 60, 30, 20))
    part = DraftCounts(5, 500, 850, None, (450, 400))
    assert (whole + part).length() == DraftCounts(5, 1000, 1810).length()
    twice, totals = (whole + whole).length(), (whole + part).length()
    assert twice is not None
    assert totals is not None
    assert totals.high - totals.low > twice.high - twice.low


def test_as_many_as_the_last_known_position_may_get_to_every_later_one() -> None:
    assert DraftCounts(5, 100, 250, None, (50,)).tokens_per_call == 3.5


@pytest.mark.parametrize(("accepted", "low", "high"), [(0, 1, 1.5), (300, 3.5, 4)])
def test_the_interval_of_a_length_stays_in_its_range(
    accepted: float, low: float, high: float
) -> None:
    found = DraftCounts(3, 100, accepted, 300, (accepted / 3,) * 3).length()
    assert found is not None
    assert low <= found.low <= found.best <= found.high <= high


test_what_does_not_add_up_is_refused = refuses(
    (
        lambda: DraftCounts(5, 100, 400, None, (50,)),
        "accepted must be at most 250, as no later position .* got 400",
    ),
    (lambda: DraftCounts(5, 100, 40, None, (50,)), "accepted must be the sum over positions, 50"),
    (lambda: MeanLength(3, 4.1), r"in \[1, 4\], got 4.1"),
    (lambda: MeanLength(None, 0.9), ">= 1, got 0.9"),
    (lambda: MeanLength(None, float("nan")), "got nan"),
    (lambda: MeanLength(3, 2.0, 0.0), "weight must be a number > 0"),
    (lambda: DraftTotals(3, 2), "at most drafted = 2, got 3"),
    (lambda: DraftTotals(float("inf"), 2), "accepted must be a number >= 0, got inf"),
)
