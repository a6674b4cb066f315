"""Runs of cascades by model, counted block by block.

Whatever is accepted, a drafter of fixed length drafts as much as there is room for, so that only
the places where blocks begin are left to chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.laws import TARGET
from specsim.predict.replay.blocks import Expected, replay_blocks
from specsim.predict.replay.drafters import AutoregressiveReplay, DeterministicReplay, Proposal
from specsim.predict.replay.head import HeadReplay
from specsim.predict.replay.horizontal import HorizontalReplay
from specsim.predict.replay.run_counts import RunCounts
from specsim.predict.replay.vertical import VerticalReplay

SIZE = 5
rates = st.lists(st.sampled_from([0.0, 0.3, 0.8, 1.0]), min_size=SIZE, max_size=SIZE).map(np.array)
# From a block's start and room: tokens proposed, and its runs by model.
Block = Callable[[int, int], tuple[int, Counter[str]]]


def outcomes(chances: np.ndarray) -> Iterator[tuple[tuple[bool, ...], float]]:
    for coins in product((False, True), repeat=len(chances)):
        mass = float(np.prod(np.where(coins, chances, 1 - chances)))
        if mass:
            yield coins, mass


def counted(accepted: np.ndarray, limit: int, block: Block) -> Counter[str]:
    """Expected runs; what lies behind the text is never accepted."""
    runs: Counter[str] = Counter()
    for coins, mass in outcomes(accepted):
        place = 0
        while place < SIZE:
            proposed, of_block = block(place, limit - place - 1)
            kept = 0
            while kept < proposed and place + kept < SIZE and coins[place + kept]:
                kept += 1
            for model, count in of_block.items():
                runs[model] += mass * count
            runs[TARGET] += mass
            place += kept + 1
    return runs


def same_runs(found: Expected, wanted: Counter[str]) -> None:
    mine = {model: count for model, count in found.runs.counts.items() if count}
    theirs = {model: count for model, count in wanted.items() if count}
    assert mine == pytest.approx(theirs, rel=1e-12)


@given(rates, st.integers(0, 6), st.integers(SIZE, SIZE + 3))
def test_of_one_model(accepted: np.ndarray, gamma: int, limit: int) -> None:
    def block(start: int, room: int) -> tuple[int, Counter[str]]:
        length = min(gamma, room)
        return length, Counter(draft=length)

    found = replay_blocks(AutoregressiveReplay("draft", accepted, gamma), SIZE, limit)
    same_runs(found, counted(accepted, limit, block))


@given(rates, st.integers(0, 3), st.integers(0, 3), st.integers(SIZE, SIZE + 3))
def test_of_drafters_in_turn(accepted: np.ndarray, a: int, b: int, limit: int) -> None:
    drafter = HorizontalReplay(
        (AutoregressiveReplay("a", accepted, a), AutoregressiveReplay("b", accepted, b))
    )

    def block(start: int, room: int) -> tuple[int, Counter[str]]:
        first = min(a, room)
        second = min(b, room - first)
        return first + second, Counter(a=first, b=second)

    found = replay_blocks(drafter, SIZE, limit)
    same_runs(found, counted(accepted, limit, block))


FORMS = st.one_of(st.tuples(st.integers(0, 3), st.none()), st.tuples(st.none(), st.integers(0, 5)))


@given(rates, st.sampled_from([0.0, 1.0]), st.one_of(st.none(), st.integers(0, 2)), FORMS)
def test_of_a_reviewer_whose_steps_are_all_of_one_length(
    outer: np.ndarray, rate: float, gamma: int | None, form: tuple[int | None, int | None]
) -> None:
    """The inner drafter is always right or never, on the text and off it."""
    steps, at_least = form
    inner = AutoregressiveReplay("inner", np.full(SIZE, rate), 2)
    off = AutoregressiveReplay("inner", np.full(50, rate), 2)
    drafter = VerticalReplay(
        "reviewer", outer, inner, lambda place: [off, off], gamma, steps, at_least
    )

    def block(start: int, room: int) -> tuple[int, Counter[str]]:
        runs: Counter[str] = Counter()
        tokens = taken = 0
        while tokens < room and (taken < steps if steps is not None else tokens < (at_least or 0)):
            below = min(2 if gamma is None else gamma, room - tokens - 1)
            runs += Counter(inner=below, reviewer=1)
            tokens, taken = tokens + 1 + (below if rate else 0), taken + 1
        return tokens, runs

    found = replay_blocks(drafter, SIZE, SIZE)
    same_runs(found, counted(outer, SIZE, block))


@given(rates, rates, st.integers(0, 2), st.integers(0, 3))
def test_of_a_reviewer_of_so_many_steps(
    outer: np.ndarray, below: np.ndarray, gamma: int, steps: int
) -> None:
    """Where there is room, a proposal has its steps whatever stands of it."""
    inner = AutoregressiveReplay("inner", below, gamma)
    drafter = VerticalReplay("reviewer", outer, inner, lambda place: [inner], gamma, steps)
    found = replay_blocks(drafter, SIZE, SIZE + 100)
    assert found.runs.runs("reviewer") == pytest.approx(steps * found.calls, rel=1e-12)
    assert found.runs.runs("inner") == pytest.approx(steps * gamma * found.calls, rel=1e-12)


def test_a_reviewer_goes_on_at_the_place_of_what_was_rejected() -> None:
    """The text of its own begins with the token that is rejected, and its inner drafter is right
    there and nowhere behind.
    """
    inner = AutoregressiveReplay("inner", np.ones(1), 1)
    once = AutoregressiveReplay("inner", np.array([1.0, 0.0, 0.0, 0.0, 0.0]), 1)

    def proposed(steps: int | None, at_least: int | None) -> Proposal:
        drafter = VerticalReplay(
            "reviewer", np.zeros(1), inner, lambda place: [once], 1, steps, at_least
        )
        return drafter.propose(0, 99)

    # A step of the inner token and one of its own, and then one of its own alone.
    assert proposed(1, None).length == 2
    assert proposed(2, None).length == 2 + 1
    assert proposed(None, 4).length == 2 + 1 + 1
    assert proposed(None, 4).runs.runs("reviewer") == 3


def test_off_the_text_a_reviewer_begins_behind_what_was_rejected() -> None:
    """In the mean over its texts, of whose second token one inner drafter is sure."""
    right = AutoregressiveReplay("inner", np.array([0.0, 1.0, 0.0, 0.0]), 1)
    wrong = AutoregressiveReplay("inner", np.zeros(4), 1)
    drafter = VerticalReplay("reviewer", np.zeros(1), wrong, lambda _: [right, wrong], 1, steps=1)
    runs, length = drafter.expected_off_text(9)
    assert length == 0.5 * 2 + 0.5 * 1
    assert runs.runs("reviewer") == runs.runs("inner") == 1
    runs, length = drafter.expected_off_text(1)
    assert (length, runs.runs("reviewer"), runs.runs("inner")) == (1, 1, 0)
    assert drafter.expected_off_text(0)[1] == 0


def test_a_drafter_that_may_end_the_text_drafts_its_last_token() -> None:
    """Nothing stands, so that a block begins at each of the four tokens."""
    never = AutoregressiveReplay("draft", np.zeros(4), 3)
    assert replay_blocks(never, 4, 4).runs.runs("draft") == 3 + 2 + 1
    assert replay_blocks(never, 4, 4, verdict=False).runs.runs("draft") == 3 + 3 + 2 + 1


def test_reaches_are_the_longest_proposals() -> None:
    a, b = (AutoregressiveReplay(name, np.ones(9), size) for name, size in (("a", 2), ("b", 3)))
    both = HorizontalReplay((a, b))
    assert both.reach == 5
    assert HorizontalReplay(()).reach == 0

    def review(gamma: int | None, steps: int | None, at_least: int | None) -> VerticalReplay:
        return VerticalReplay("r", np.ones(9), both, lambda place: [both], gamma, steps, at_least)

    assert review(None, 2, None).reach == 2 * 6
    assert review(4, 2, None).reach == 2 * 5
    assert review(9, 2, None).reach == 2 * 6
    assert review(4, None, 7).reach == 6 + 5
    assert review(4, None, 0).reach == 0
    assert HeadReplay("h", np.ones((4, 3)), np.full(4, 3)).reach == 3
    assert DeterministicReplay("copy", np.ones((4, 3)), np.full(4, 3)).reach == 3


@pytest.mark.parametrize(
    ("make", "runs"),
    [
        # A copy is one look-up for all its tokens, a mask one run; beams and heads run for each.
        (lambda a, n: DeterministicReplay("d", a, n), 1),
        (lambda a, n: DeterministicReplay("d", a, n, runs_per_token=True), 3),
        (lambda a, n: HeadReplay("d", a, n), 3),
    ],
)
def test_of_what_proposes_from_its_place(
    make: Callable[[np.ndarray, np.ndarray], DeterministicReplay | HeadReplay], runs: int
) -> None:
    """One block of three tokens that all stand, and the bonus token."""
    drafter = make(np.ones((4, 3)), np.full(4, 3))
    found = replay_blocks(drafter, 4, 4)
    assert found.calls == found.runs.runs(TARGET) == 1
    assert found.runs.runs("d") == runs
    assert drafter.propose(0, 3).length == 3
    # Off the text it proposes as much as it does on it, where there is room.
    for room, tokens in ((2, 2), (3, 3), (9, 3)):
        rest, length = drafter.expected_off_text(room)
        assert length == tokens
        assert rest.runs("d") == (tokens if runs > 1 else 1)
    rest, length = drafter.expected_off_text(0)
    assert (length, rest.counts) == (0.0, {})
    # Behind the end of the text nothing stands, and it is drafted all the same.
    first = AutoregressiveReplay("a", np.ones(3), 3)
    both = HorizontalReplay((first, make(np.ones((3, 3)), np.full(3, 3))))
    found = replay_blocks(both, 3, 9)
    assert found.calls == 1
    assert both.propose(0, 8).length == 3 + 3
    assert (found.runs.runs("a"), found.runs.runs("d")) == (3, runs)


def test_tallies_add_up_by_model() -> None:
    one, other = RunCounts(), RunCounts()
    one.add("a", 1.0)
    one.add("a", 0.5)
    other.add("a", 4.0)
    other.add("b", 1.0)
    other.merge(one, 2.0)
    assert other.counts == {"a": 4 + 3, "b": 1}
    assert (other.runs("a"), other.runs("b"), other.runs("c")) == (7, 1, 0)
    before = dict(other.counts)
    other.merge(one, 0.0)
    assert other.counts == before
    other.merge(one)
    assert other.runs("a") == 7 + 1.5
