"""Replay of cascades: equal to a walk over every outcome of every acceptance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.predict.replay.blocks import replay_blocks
from specsim.predict.replay.drafters import AutoregressiveReplay, DeterministicReplay
from specsim.predict.replay.fixed_gamma import replay
from specsim.predict.replay.head import HeadReplay, rates_by_depth
from specsim.predict.replay.horizontal import HorizontalReplay
from specsim.predict.replay.vertical import VerticalReplay
from specsim.traces import Trace
from tests.support.refusals import refuses

SIZE = 5
rates = st.lists(st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0]), min_size=SIZE, max_size=SIZE).map(
    np.array
)
# Whether a token is accepted, by place.
Coins = tuple[bool, ...]


def outcomes(chances: np.ndarray) -> Iterator[tuple[Coins, float]]:
    """Every outcome of independent coins, and its probability."""
    for coins in product((False, True), repeat=len(chances)):
        mass = float(np.prod(np.where(coins, chances, 1 - chances)))
        if mass:
            yield coins, mass


def walk(propose: Callable[[int, int], tuple[int, bool]], limit: int) -> int:
    """Target calls of a request; ``propose(start, room)`` gives (tokens accepted, all of them)."""
    place = calls = 0
    while place < limit:
        accepted, _ = propose(place, limit - place - 1)
        place += accepted + 1
        calls += 1
    return calls


def run_of(coins: Coins, start: int, most: int) -> int:
    """How many tokens from ``start`` on are accepted, at most so many."""
    count = 0
    while count < most and coins[start + count]:
        count += 1
    return count


@given(rates, st.integers(0, 6))
def test_one_model_is_the_replay_of_a_trace(accepted: np.ndarray, gamma: int) -> None:
    expected = replay_blocks(AutoregressiveReplay("draft", accepted, gamma), SIZE, SIZE)
    (whole,) = replay(Trace(accepted, np.array([0, SIZE])), [gamma])
    assert expected.calls == pytest.approx(whole.total_calls, rel=1e-12)
    # A block never drafts past the request.
    drafted = sum(start * min(gamma, SIZE - 1 - s) for s, start in enumerate(whole.starts))
    assert expected.runs.runs("draft") == pytest.approx(drafted, rel=1e-12, abs=1e-12)
    assert expected.runs.runs("target") == pytest.approx(expected.calls)


@given(rates, rates, st.integers(0, 3), st.integers(0, 3))
def test_drafters_in_turn(first: np.ndarray, second: np.ndarray, a: int, b: int) -> None:
    drafter = HorizontalReplay(
        (AutoregressiveReplay("a", first, a), AutoregressiveReplay("b", second, b))
    )
    calls = 0.0
    for one, mass in outcomes(first):
        for other, share in outcomes(second):

            def propose(
                start: int, room: int, one: Coins = one, other: Coins = other
            ) -> tuple[int, bool]:
                most = min(a, room)
                kept = run_of(one, start, most)
                if kept < most:
                    return kept, False
                rest = min(b, room - most)
                behind = run_of(other, start + most, rest)
                return most + behind, behind == rest

            calls += mass * share * walk(propose, SIZE)
    assert replay_blocks(drafter, SIZE, SIZE).calls == pytest.approx(calls, rel=1e-12)


@given(
    st.lists(rates, min_size=0, max_size=3),
    st.lists(st.booleans(), min_size=SIZE, max_size=SIZE),
)
def test_a_head_is_accepted_as_its_start_says(
    columns: list[np.ndarray], proposes: list[bool]
) -> None:
    """Every start has coins of its own, and tokens are the runs of a drafter in turn."""
    depths = len(columns)
    accepted = np.array(columns).T if columns else np.zeros((SIZE, 0))
    behind = np.add.outer(np.arange(SIZE), np.arange(depths)) >= SIZE
    accepted = np.where(behind, 0.0, accepted)
    lengths = np.where(proposes, depths, 0)
    found = replay_blocks(HeadReplay("head", accepted, lengths), SIZE, SIZE)

    def spent(start: int, chance: float) -> tuple[float, float]:
        """Target calls and runs of the head from a start that is reached with this chance."""
        if start >= SIZE or not chance:
            return 0.0, 0.0
        room = min(int(lengths[start]), SIZE - start - 1)
        calls, runs = chance, chance * room
        for kept in range(room + 1):
            share = chance * float(np.prod(accepted[start, :kept]))
            share *= 1 - accepted[start, kept] if kept < room else 1.0
            more = spent(start + kept + 1, share)
            calls, runs = calls + more[0], runs + more[1]
        return calls, runs

    calls, runs = spent(0, 1.0)
    assert found.calls == pytest.approx(calls, rel=1e-12)
    assert found.runs.runs("head") == pytest.approx(runs, rel=1e-12, abs=1e-12)


@given(st.lists(rates, min_size=1, max_size=3))
def test_rates_by_depth_are_of_all_starts_with_so_much_text(columns: list[np.ndarray]) -> None:
    accepted, depths = np.array(columns).T, len(columns)
    counted = list(rates_by_depth(accepted, np.full(SIZE, depths)))
    for depth in range(depths):
        stood = tried = 0.0
        for start in range(SIZE - depth):
            tried += np.prod(accepted[start, :depth])
            stood += np.prod(accepted[start, : depth + 1])
        assert counted[depth] == pytest.approx((stood, tried))


def reviewed(
    outer: np.ndarray, inner: np.ndarray, gamma: int, steps: int | None, at_least: int | None
) -> VerticalReplay:
    below = AutoregressiveReplay("inner", inner, gamma)
    return VerticalReplay("reviewer", outer, below, lambda place: [below], gamma, steps, at_least)


@given(
    rates,
    rates,
    st.integers(0, 2),
    st.one_of(st.tuples(st.integers(0, 3), st.none()), st.tuples(st.none(), st.integers(0, 4))),
)
def test_a_model_that_reviews_another(
    outer: np.ndarray, inner: np.ndarray, gamma: int, form: tuple[int | None, int | None]
) -> None:
    steps, at_least = form
    enough = at_least or 0
    calls = 0.0
    for one, mass in outcomes(outer):
        for other, share in outcomes(inner):

            def propose(
                start: int, room: int, one: Coins = one, other: Coins = other
            ) -> tuple[int, bool]:
                tokens = taken = 0
                while tokens < room and (tokens < enough if steps is None else taken < steps):
                    most = min(gamma, room - tokens - 1)
                    # The inner drafter's accepted tokens, and one of the reviewer's own.
                    pushed = run_of(other, start + tokens, most) + 1
                    kept = run_of(one, start + tokens, pushed)
                    if kept < pushed:
                        return tokens + kept, False
                    tokens, taken = tokens + pushed, taken + 1
                return tokens, True

            calls += mass * share * walk(propose, SIZE)
    expected = replay_blocks(reviewed(outer, inner, gamma, steps, at_least), SIZE, SIZE)
    assert expected.calls == pytest.approx(calls, rel=1e-12)


def test_copies_depend_on_where_they_start() -> None:
    agrees = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]], float)
    lengths = np.array([3, 0, 2, 0, 0])
    copies = DeterministicReplay("copy", agrees, lengths)
    expected = replay_blocks(copies, 5, 5)
    # Two accepted and one recovered; then nothing is proposed, twice.
    assert expected.calls == 3
    assert expected.runs.runs("copy") == 2  # the last block has no room
    assert [copies.propose(start, 4 - start).length for start in (0, 3, 4)] == [3, 0, 0]


def test_a_drafter_that_gives_up() -> None:
    # Sure of tokens 0 and 1, unsure of 2, sure of 3 and 4; 3 is rejected.
    drafter = AutoregressiveReplay(
        "small",
        np.array([1.0, 1.0, 1.0, 0.0, 1.0]),
        tokens=10,
        unsure=np.array([False, False, True, False, False]),
        written_on=np.array([0, 0, 0, 5, 0]),
    )
    expected = replay_blocks(drafter, 5, 8)
    # 0, 1 and the target's 2: three draft runs.  Then 3 is replaced: its run and those behind it,
    # as many as there is room for (8 - 3 - 1).  Then 4 ends the text, and the draft stops there.
    assert expected.calls == 3
    assert expected.runs.runs("small") == 3 + 4 + 1
    assert [drafter.propose(start, 7 - start).length for start in (0, 3, 4)] == [2, 4, 1]


def test_a_sequential_cascade_may_end_without_the_target() -> None:
    sure = AutoregressiveReplay("small", np.ones(4), 3, np.zeros(4, bool), np.zeros(4, int))
    # Three of the draft, one of the target, which is the last.
    assert replay_blocks(sure, 4, 4, verdict=False).calls == 1
    assert replay_blocks(sure, 3, 3, verdict=False).calls == 0


def test_a_row_for_the_bonus_is_a_run_more() -> None:
    drafter = AutoregressiveReplay("draft", np.ones(4), 1, bonus_needs_draft=True)
    expected = replay_blocks(drafter, 4, 4)
    assert expected.calls == 2
    assert expected.runs.runs("draft") == 4
    # A block without room for a draft draws its only token with a row of the draft too.
    assert replay_blocks(drafter, 3, 3).runs.runs("draft") == 3


def test_steps_of_a_reviewer_are_counted_off_the_text() -> None:
    never, always = np.zeros(SIZE), np.ones(SIZE)
    # The target rejects the first token of every proposal, and both steps are run all the same.
    expected = replay_blocks(reviewed(never, always, 1, 2, None), 1, 100)
    assert expected.runs.runs("reviewer") == pytest.approx(2)
    assert expected.runs.runs("inner") == pytest.approx(2)
    # Steps of two tokens, until there are three.
    reviewer = reviewed(never, always, 1, None, 3)
    expected = replay_blocks(reviewer, 1, 100)
    assert expected.runs.runs("reviewer") == pytest.approx(2)
    assert reviewer.propose(0, 99).length == pytest.approx(4)


def test_a_reviewer_goes_on_in_the_text_that_it_writes_at_that_place() -> None:
    never, always = (AutoregressiveReplay("inner", np.full(SIZE, rate), 1) for rate in (0.0, 1.0))
    # The target rejects both tokens of the text.  Behind the first the inner drafter is right, so
    # two steps give four tokens; behind the second it is wrong: four steps of a token.
    drafter = VerticalReplay(
        "reviewer", np.zeros(2), never, lambda place: [(always, never)[place or 0]], 1, at_least=4
    )
    assert replay_blocks(drafter, 2, 100).runs.runs("reviewer") == pytest.approx(2 + 4)
    # One text of two: four steps or two, where four steps of the mean law would be three or less.
    both = VerticalReplay(
        "reviewer", np.zeros(1), never, lambda place: [always, never], 1, at_least=4
    )
    assert replay_blocks(both, 1, 100).runs.runs("reviewer") == pytest.approx(3)


test_refusals = refuses(
    (lambda: AutoregressiveReplay("d", np.ones(2), -1), "tokens"),
    (lambda: AutoregressiveReplay("d", np.ones(2), 1, unsure=np.zeros(2, bool)), "together"),
    (lambda: reviewed(np.ones(2), np.ones(2), 1, 1, 1), "either steps or at_least"),
)
