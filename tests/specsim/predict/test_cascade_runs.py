"""Runs of cascades, by model and by who ran before, and what they read: counted block by block.

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
from specsim.predict.replay.drafters import AutoregressiveReplay, DeterministicReplay
from specsim.predict.replay.head import HeadReplay
from specsim.predict.replay.horizontal import HorizontalReplay
from specsim.predict.replay.run_counts import RunCounts, RunKind
from specsim.predict.replay.vertical import VerticalReplay

SIZE = 5
rates = st.lists(st.sampled_from([0.0, 0.3, 0.8, 1.0]), min_size=SIZE, max_size=SIZE).map(np.array)
# Runs and positions of a block by (model, whether another ran before it).
Kinds = Counter[tuple[str, bool]]
# From a block's start and room: tokens proposed, its runs, positions read.
Block = Callable[[int, int], tuple[int, Kinds, Counter[str]]]


def outcomes(chances: np.ndarray) -> Iterator[tuple[tuple[bool, ...], float]]:
    for coins in product((False, True), repeat=len(chances)):
        mass = float(np.prod(np.where(coins, chances, 1 - chances)))
        if mass:
            yield coins, mass


def counted(accepted: np.ndarray, limit: int, block: Block) -> tuple[Kinds, Counter[str]]:
    """Expected runs and positions; what lies behind the text is never accepted."""
    runs: Kinds = Counter()
    read: Counter[str] = Counter()
    for coins, mass in outcomes(accepted):
        place = 0
        while place < SIZE:
            proposed, of_block, positions = block(place, limit - place - 1)
            kept = 0
            while kept < proposed and place + kept < SIZE and coins[place + kept]:
                kept += 1
            for kind, count in of_block.items():
                runs[kind] += mass * count
            for model, count in positions.items():
                read[model] += mass * count
            runs[TARGET, proposed > 0] += mass
            read[TARGET] += mass * (1 + proposed)
            if proposed and kept == proposed:
                read["unread"] += mass
            place += kept + 1
    return runs, read


def same_runs(found: Expected, wanted: Kinds) -> None:
    mine = {tuple(kind): count for kind, count in found.runs.counts.items() if count}
    theirs = {kind: count for kind, count in wanted.items() if count}
    assert mine == pytest.approx(theirs, rel=1e-12)


def drafted(model: str, tokens: int) -> Kinds:
    """One run a token, the first of them after another model's."""
    return Counter({(model, True): min(tokens, 1), (model, False): max(tokens - 1, 0)})


@given(rates, st.integers(0, 6), st.integers(SIZE, SIZE + 3))
def test_of_one_model(accepted: np.ndarray, gamma: int, limit: int) -> None:
    def block(start: int, room: int) -> tuple[int, Kinds, Counter[str]]:
        length = min(gamma, room)
        return length, drafted("draft", length), Counter(draft=length)

    found = replay_blocks(AutoregressiveReplay("draft", accepted, gamma), SIZE, limit)
    runs, read = counted(accepted, limit, block)
    same_runs(found, runs)
    assert found.runs.read(TARGET) == pytest.approx(read[TARGET], rel=1e-12)
    # After a bonus token there are two tokens to read.
    assert found.runs.read("draft") == pytest.approx(
        read["draft"] + read["unread"], rel=1e-12, abs=1e-12
    )


@given(rates, st.integers(0, 3), st.integers(0, 3), st.integers(SIZE, SIZE + 3))
def test_of_drafters_in_turn(accepted: np.ndarray, a: int, b: int, limit: int) -> None:
    """The second reads what the first drafted, the first what stands of the second's."""
    drafter = HorizontalReplay(
        (AutoregressiveReplay("a", accepted, a), AutoregressiveReplay("b", accepted, b))
    )

    def block(start: int, room: int) -> tuple[int, Kinds, Counter[str]]:
        first = min(a, room)
        second = min(b, room - first)
        read = Counter(a=first, b=second + first)
        return first + second, drafted("a", first) + drafted("b", second), read

    found = replay_blocks(drafter, SIZE, limit)
    runs, read = counted(accepted, limit, block)
    same_runs(found, runs)
    assert found.runs.read(TARGET) == pytest.approx(read[TARGET], rel=1e-12)
    assert found.runs.read("b") == pytest.approx(read["b"], rel=1e-12, abs=1e-12)


def test_the_first_reads_what_stands_of_the_second() -> None:
    """One block of 2 + 2 drafts, of which three stand, then one of two, which end the text."""
    accepted = np.array([1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    drafter = HorizontalReplay(
        (AutoregressiveReplay("a", accepted, 2), AutoregressiveReplay("b", accepted, 2))
    )
    found = replay_blocks(drafter, 7, 7)
    assert found.calls == 2
    assert found.runs.read("a") == 2 + 1 + 2
    assert found.runs.read("b") == 2 + 2 + 2
    whole = replay_blocks(drafter, 3, 9)
    # All stand that are in the text; behind it none does.
    assert whole.calls == 1
    assert whole.runs.read("a") == 2 + 1


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

    def block(start: int, room: int) -> tuple[int, Kinds, Counter[str]]:
        runs: Kinds = Counter()
        read: Counter[str] = Counter()
        tokens = taken = 0
        while tokens < room and (taken < steps if steps is not None else tokens < (at_least or 0)):
            below = min(2 if gamma is None else gamma, room - tokens - 1)
            runs += drafted("inner", below)
            runs["reviewer", taken == 0 or below > 0] += 1
            read["reviewer"] += 1 + below
            tokens, taken = tokens + 1 + (below if rate else 0), taken + 1
        return tokens, runs, read

    found = replay_blocks(drafter, SIZE, SIZE)
    runs, read = counted(outer, SIZE, block)
    same_runs(found, runs)
    assert found.runs.read(TARGET) == pytest.approx(read[TARGET], rel=1e-12)
    # After the target's bonus token the reviewer has two tokens to read.
    assert found.runs.read("reviewer") == pytest.approx(
        read["reviewer"] + read["unread"], rel=1e-12, abs=1e-12
    )


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

    def proposed(steps: int | None, at_least: int | None) -> Expected:
        drafter = VerticalReplay(
            "reviewer", np.zeros(1), inner, lambda place: [once], 1, steps, at_least
        )
        return replay_blocks(drafter, 1, 100)

    # A step of the inner token and one of its own, and then one of its own alone.
    assert proposed(1, None).runs.read(TARGET) == 1 + 2
    assert proposed(2, None).runs.read(TARGET) == 1 + 2 + 1
    assert proposed(None, 4).runs.read(TARGET) == 1 + 2 + 1 + 1
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
    assert both.catching_up == ("a",)
    assert HorizontalReplay(()).reach == 0
    assert HorizontalReplay(()).catching_up == ()

    def review(gamma: int | None, steps: int | None, at_least: int | None) -> VerticalReplay:
        return VerticalReplay("r", np.ones(9), both, lambda place: [both], gamma, steps, at_least)

    assert review(None, 2, None).reach == 2 * 6
    assert review(4, 2, None).reach == 2 * 5
    assert review(9, 2, None).reach == 2 * 6
    assert review(4, None, 7).reach == 6 + 5
    assert review(4, None, 0).reach == 0
    assert review(4, 2, None).catching_up == ("r", "a")
    assert HeadReplay("h", np.ones((4, 3)), np.full(4, 3)).reach == 3
    assert DeterministicReplay("copy", np.ones((4, 3)), np.full(4, 3)).reach == 3


@pytest.mark.parametrize(
    ("make", "model", "reads_text", "widths"),
    [
        # A copy is one look-up for all its tokens, a mask one run, beams a run for each.
        (lambda a, n: DeterministicReplay("d", a, n), False, False, [3]),
        (lambda a, n: DeterministicReplay("d", a, n, reads_text=True), True, True, [3]),
        (lambda a, n: DeterministicReplay("d", a, n, False, 2, True), True, False, [2, 2, 2]),
        (lambda a, n: HeadReplay("d", a, n), True, True, [0, 1, 1]),
    ],
)
def test_of_what_proposes_from_its_place(
    make: Callable[[np.ndarray, np.ndarray], DeterministicReplay | HeadReplay],
    model: bool,
    reads_text: bool,
    widths: list[int],
) -> None:
    """One block of three tokens that all stand, and the bonus token."""
    drafter = make(np.ones((4, 3)), np.full(4, 3))
    found = replay_blocks(drafter, 4, 4)
    assert found.calls == 1
    (target,) = (kind for kind in found.runs.counts if kind.model == TARGET)
    assert target.after_other_model is model
    assert found.runs.counts[RunKind("d", True)] == 1
    assert found.runs.counts.get(RunKind("d", False), 0) == len(widths) - 1
    text = 4 if reads_text else 0
    assert found.runs.positions[RunKind("d", True)] == widths[0] + text
    assert found.runs.positions.get(RunKind("d", False), 0) == sum(widths[1:])
    beams = 2 if widths == [2, 2, 2] else 1
    assert found.runs.read(TARGET) == 1 + 3 * beams
    # Off the text it proposes as much as it does on it, where there is room.
    for room, tokens in ((2, 2), (3, 3), (9, 3)):
        rest, length = drafter.expected_off_text(room)
        assert length == tokens * beams
        assert rest.runs("d") == (tokens if len(widths) > 1 else 1)
    rest, length = drafter.expected_off_text(0)
    assert (length, rest.counts) == (0.0, {})
    # Behind the end of the text nothing stands, and it is drafted all the same.
    first = AutoregressiveReplay("a", np.ones(3), 3)
    found = replay_blocks(HorizontalReplay((first, make(np.ones((3, 3)), np.full(3, 3)))), 3, 9)
    assert found.calls == 1
    assert found.runs.read(TARGET) == 1 + 3 + 3 * beams
    assert found.runs.runs("d") == (3 if len(widths) > 1 else 1)
    assert found.runs.read("a") == 3
    # Behind another drafter, which reads what stands of it and has nothing else to catch up with.
    first = AutoregressiveReplay("a", np.ones(6), 2)
    found = replay_blocks(HorizontalReplay((first, make(np.ones((6, 3)), np.full(6, 3)))), 6, 6)
    assert found.calls == 1
    assert found.runs.read("a") == 2 + 3


def test_tallies_add_up_by_kind() -> None:
    one, other = RunCounts(), RunCounts()
    one.add(RunKind("a", True), 1.0, 2.0)
    one.add(RunKind("a", True), 0.5, 1.0)
    one.add(RunKind("a", False), 2.0, 3.0)
    other.add(RunKind("a", True), 4.0, 8.0)
    other.add(RunKind("b", True), 1.0, 5.0)
    other.merge(one, 2.0)
    assert other.counts == {
        RunKind("a", True): 4 + 3,
        RunKind("a", False): 4,
        RunKind("b", True): 1,
    }
    assert other.runs("a") == 11
    assert other.read("a") == 8 + 2 * 3 + 6
    assert (other.runs("b"), other.read("b"), other.runs("c")) == (1, 5, 0)
    before = dict(other.counts)
    other.merge(one, 0.0)
    assert other.counts == before
    other.merge(one)
    assert other.runs("a") == 11 + 3.5
