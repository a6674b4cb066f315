"""How many replicas, which schedule, where drafts stop paying, and what simulation settles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.serving.analytic.offered import Offered
from specsim.serving.analytic.replica import Replica
from specsim.serving.analytic.rounds import RoundCounts
from specsim.serving.analytic.step_times import StepTimes
from specsim.serving.levels import levels_of
from specsim.serving.planning.crossing import Crossing, binds_at, crossing, gains_from
from specsim.serving.planning.settling import Settled, settle
from specsim.serving.planning.sizing import best_schedule, replicas_needed, slack, sustained

_SURVIVAL = [0.8, 0.64, 0.5]


def replica(decode_s: Any, gamma: int = 0, **given: Any) -> Replica:
    """Requests of 100 tokens after the first, whose prompts cost nothing."""
    decode_s = np.asarray(decode_s, dtype=float)
    counts = np.array([0, 1, decode_s.size])
    return Replica(
        times=StepTimes(
            decode_s=decode_s,
            counts=counts,
            tokens=np.array([0.0, 1e4]),
            read_s=np.zeros((3, 2)),
            budget=np.full(3, 1e4),
            prompts=np.ones(1),
        ),
        gammas=np.full(decode_s.size + 1, gamma),
        laws=lambda gamma: RoundCounts.of_survival(_SURVIVAL, gamma),
        offered=Offered(np.ones(1, np.int64), np.full(1, 101)),
        **given,
    )


COUNTS = np.arange(1, 129)
PLAIN = replica(5e-3 + 1e-4 * COUNTS)
# A round is 60 % dearer alone, and grows more than twice as fast with the batch.
DRAFTING = replica(8e-3 + 4e-4 * COUNTS, gamma=3)


@settings(max_examples=5, deadline=None)
@given(st.floats(6e-3, 15e-3))
def test_the_highest_rate_meets_the_level_and_no_higher_one(limit: float) -> None:
    levels = levels_of({"tpot_mean": limit})
    rate = sustained(PLAIN, levels)
    assert slack(PLAIN.at(rate, levels).figures, levels) <= 1.0
    more = 1.02 * rate
    if more < PLAIN.capacity:
        assert slack(PLAIN.at(more, levels).figures, levels) > 1.0


def test_what_a_request_alone_misses_nobody_sustains() -> None:
    assert sustained(PLAIN, levels_of("tpot_mean=0.005")) == 0.0
    assert sustained(PLAIN, levels_of("tpot_mean=1")) == pytest.approx(PLAIN.capacity, rel=2e-6)


@given(st.floats(0.01, 1e3), st.floats(0.01, 1e3))
def test_so_many_replicas_are_enough_and_no_fewer(rate: float, each: float) -> None:
    count = replicas_needed(rate, each)
    assert rate <= count * each * (1 + 1e-6)
    assert count == 1 or (count - 1) * each < rate


def test_levels_are_compared_with_their_own_figures() -> None:
    levels = levels_of("ttft_p99=1,tpot=0.1,tpot_mean=0.02")
    figures = {"ttft_p99": 0.5, "tpot_mean": 0.03}
    assert slack(figures, levels) == pytest.approx(1.5)
    assert slack({"ttft_p99": 0.5, "tpot_mean": float("nan")}, levels) == 0.5


def test_drafts_stop_where_both_are_as_fast() -> None:
    found = crossing(DRAFTING, PLAIN)
    assert found is not None
    assert DRAFTING.mean_tpot_s(found.rate) == pytest.approx(
        PLAIN.mean_tpot_s(found.rate), rel=1e-3
    )
    assert found.batch == pytest.approx(DRAFTING.shared(found.rate).mean, rel=1e-2)
    sooner = crossing(DRAFTING, PLAIN, 0.9)
    assert sooner is not None
    assert sooner.rate < found.rate


def test_drafts_that_always_or_never_pay() -> None:
    always = replica(6e-3 + 1e-4 * COUNTS, gamma=3)
    assert crossing(always, PLAIN) is None
    assert gains_from(always, PLAIN) is None
    never = replica(40e-3 + 1e-4 * COUNTS, gamma=3)
    assert crossing(never, PLAIN) == gains_from(never, PLAIN) == Crossing(0.0, 0.0)


def test_drafts_that_pay_at_load_alone() -> None:
    """As where the tokens of a round of few requests each load experts of their own."""
    few = COUNTS < 12
    later = replica(np.where(few, 40e-3, 8e-3) + 4e-4 * COUNTS, gamma=3)
    begins, ends = gains_from(later, PLAIN), crossing(later, PLAIN)
    assert begins is not None
    assert ends is not None
    assert 0 < begins.rate < ends.rate
    assert 6 < begins.batch < 20
    for rate, faster in ((0.9 * begins.rate, False), (1.1 * begins.rate, True)):
        assert (later.mean_tpot_s(rate) < PLAIN.mean_tpot_s(rate)) == faster


def test_less_room_ends_drafts_at_their_capacity() -> None:
    """Faster at every batch, but so few fit beside the drafter that plain decoding takes more."""
    few = replica((6e-3 + 1e-4 * COUNTS)[:8], gamma=3, binds="cache")
    found = crossing(few, PLAIN)
    assert found is not None
    assert found.rate <= few.capacity
    assert binds_at(few, PLAIN, found, None) == "cache"


def test_the_largest_graph_binds() -> None:
    found = crossing(DRAFTING, PLAIN)
    assert found is not None
    batch = round(found.batch)
    assert binds_at(DRAFTING, PLAIN, found, graph_tokens=2 * batch) == "graph"
    assert binds_at(DRAFTING, PLAIN, found, graph_tokens=100 * batch) is None


def test_the_schedule_is_the_fastest_at_every_batch() -> None:
    """Each batch by itself, as the slow twin."""
    decode_s = {0: 5e-3 + 1e-4 * COUNTS, 1: 5.5e-3 + 2e-4 * COUNTS, 3: 8e-3 + 4e-4 * COUNTS}
    schedule = best_schedule(
        {gamma: replica(each, gamma=gamma) for gamma, each in decode_s.items()}, 0.0
    )
    laws = {gamma: RoundCounts.of_survival(_SURVIVAL, gamma) for gamma in decode_s}
    for first, last, chosen in schedule:
        for n in range(first, last + 1):
            speeds = {g: laws[g].tokens_per_call / decode_s[g][n - 1] for g in decode_s}
            assert speeds[chosen] == max(speeds.values())
    assert [first for first, _, _ in schedule] == [1, *(last + 1 for _, last, _ in schedule[:-1])]


@dataclass(frozen=True)
class Replicas:
    """Of a set-up, all that ``settle`` looks at."""

    replicas: int = 1


@pytest.mark.parametrize(
    ("wanted", "least", "enough", "first", "tried"),
    [
        (4, 2, 4, 4, [3]),  # the analytic mode was right, and one less is not enough
        (4, 2, 2, 2, [3, 4]),
        (4, 3, 1, 3, [4]),  # fewer have no capacity for it
        (4, 2, 6, 6, [4, 5]),
        (4, 2, 7, 7, [4, 5, 6, 8]),
        (4, 2, 32, 32, [4, 5, 6, 8, 12, 20, 28, 30, 31, 36]),
        (4, 2, 99, 36, [4, 5, 6, 8, 12, 20]),  # nothing that was tried is enough
    ],
)
def test_simulation_settles_how_many(
    wanted: int, least: int, enough: int, first: int, tried: list[int]
) -> None:
    def simulated(setup: Any) -> Settled:
        return Settled(setup.replicas, {}, {}, setup.replicas >= enough)

    setup: Any = replace(Replicas())
    found = settle(setup, wanted, least, simulated)
    assert found[0].replicas == first
    assert [each.replicas for each in found[1:]] == tried


@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 20_000))
def test_many_replicas_are_settled_by_few_simulations(wanted: int, least: int, enough: int) -> None:
    def simulated(setup: Any) -> Settled:
        return Settled(setup.replicas, {}, {}, setup.replicas >= enough)

    setup: Any = Replicas()
    least = min(least, wanted)
    found = settle(setup, wanted, least, simulated)
    most = 8 * wanted + 4
    assert found[0].replicas == min(max(enough, least), most)
    assert found[0].met == (enough <= most)
    assert len(found) <= 40
