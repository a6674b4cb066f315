"""What of a ranking is simulated, so that the answer was, and cards between the rates of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.api.plan_ranking import by_rate, cards_by_rate, cheapest, order, with_simulated
from specsim.api.plan_result import Answer
from specsim.intervals import Interval
from specsim.serving.levels import levels_of
from specsim.serving.planning.settling import Settled
from specsim.serving.planning.sizing import replicas_needed

LEVELS = levels_of({"tpot_p99": 0.05})
RATE = 20.0
# More replicas than the analytic mode asks for that are tried.
MORE = 4


@dataclass(frozen=True, eq=False)
class Planned:
    """Of a set-up, all that a ranking looks at.

    enough : replicas that meet the levels in simulation
    """

    speculates: bool
    enough: int
    accelerator: str = "H100"
    cards: int = 1
    name: str = "set-up"


def enough(one: Answer) -> int:
    """Of its ``Planned``."""
    planned: Any = one.planned
    count: int = planned.enough
    return count


def answer(speculates: bool, sustained: float, enough: int) -> Answer:
    """As the analytic mode has it; ``sustained`` 0 misses the levels at any load."""
    planned: Any = Planned(speculates, enough)
    count = replicas_needed(RATE, sustained) if sustained else 0
    return Answer(planned, count, sustained, {"tpot_p99": 0.03 if count else 0.2})


def settled(asked: Answer) -> Sequence[Settled]:
    """What was asked for where that is enough, or up to four more."""
    found = []
    for count in range(asked.replicas, asked.replicas + MORE + 1):
        met = count >= enough(asked)
        seconds = 0.04 if met else 0.06
        figures = {"tpot_p99": Interval(seconds, seconds, seconds)}
        found.append(Settled(count, figures, {}, met))
        if met:
            break
    return found[::-1]


ANSWERS = st.lists(
    st.builds(answer, st.booleans(), st.sampled_from([0.0, 3.0, 5.0, 9.0, 22.0]), st.integers(1, 9))
)


@given(ANSWERS.filter(len))
def test_the_answer_was_simulated(several: list[Answer]) -> None:
    asked: list[Any] = []

    def noted(one: Answer) -> Sequence[Settled]:
        asked.append(one.planned)
        return settled(one)

    heard: list[tuple[str, int, int]] = []
    found = with_simulated(
        sorted(several, key=order), LEVELS, noted, lambda *each: heard.append(each)
    )
    assert {each.planned for each in found} == {each.planned for each in several}
    assert len(asked) == len(set(asked))
    first: dict[bool, Answer | None] = {}
    for kind in (False, True):
        own = [each for each in found if each.planned.speculates == kind]
        met = first[kind] = next((each for each in own if each.met(LEVELS)), None)
        known = [each for each in own if each.settled is None and each.replicas]
        count = sum(each.speculates == kind for each in asked)
        assert count >= min(2, count + len(known))
        if met is not None:
            assert met.settled is not None
            assert met.replicas >= enough(met)
        # What was not simulated does not even promise more than what was.
        assert not known or (met is not None and order(met) <= min(map(order, known)))
    best = cheapest(found, first[False], first[True], 0.05, LEVELS)
    assert (best.settled is not None) == any(each.replicas for each in several)
    done = [each[1] for each in heard]
    assert done == sorted(done)
    assert all(at <= total for _, at, total in heard)
    assert not heard or heard[-1] == ("simulating", len(asked), len(asked))


def test_what_fails_in_simulation_gives_its_place_to_the_next() -> None:
    """Three ask for one card and need three; the fourth needs the two that it asks for."""
    several = [answer(True, each, 3) for each in (22.0, 21.5, 21.0)]
    several += [answer(True, 12.0, 2), answer(True, 11.0, 2)]
    found = with_simulated(several, LEVELS, settled)
    assert [each.planned for each in found[:2]] == [each.planned for each in several[3:]]
    assert [each.settled is None for each in found[:2]] == [False, True]
    assert [each.replicas for each in found if each.met(LEVELS)] == [2, 2, 3, 3, 3]


def test_what_no_number_of_replicas_is_enough_for_costs_what_its_cards_do() -> None:
    """Beyond 10,000 replicas a set-up has none, and was the cheapest at every rate."""
    dear, cheap = replace(answer(False, 0.001, 1), replicas=0), answer(False, 5.0, 1)
    several = [replace(each, price=2.0) for each in (dear, cheap)]
    for begins, cards, chosen in cards_by_rate(several, False, 1.0, 40.0):
        assert chosen.planned is cheap.planned
        assert cards == replicas_needed(begins, 5.0)
        assert chosen.hourly == 2.0 * chosen.cards


@given(ANSWERS, st.floats(0.3, 300.0))
def test_cards_between_rates_are_those_of_every_rate(several: list[Answer], rate: float) -> None:
    """The steps against every set-up at that one rate, as the slow twin."""
    rows = cards_by_rate(several, True, 0.2, 400.0)
    each = [one.sustained for one in several if one.planned.speculates and one.sustained]
    if not each:
        assert rows == []
        return
    assert (rows[0][0], rows[-1][0]) == (0.2, 400.0)
    if any(abs(rate / one - round(rate / one)) < 1e-5 for one in each):
        return  # at a step, which is where it is to a millionth
    at = [cards for begins, cards, _ in rows if begins <= rate][-1]
    assert at == min(replicas_needed(rate, one) for one in each)


def test_no_set_up_of_a_kind_has_no_steps() -> None:
    assert cards_by_rate([answer(False, 5.0, 1)], True, 1.0, 2.0) == []
    rows = cards_by_rate([answer(False, 5.0, 1)], False, 1.0, 11.0)
    assert [(pytest.approx(rate, rel=1e-5), cards) for rate, cards, _ in rows] == [
        *((1.0, 1), (5.0, 2), (10.0, 3), (11.0, 3))
    ]


def test_what_costs_the_same_at_other_rates_is_told_apart_as_the_ranking_does() -> None:
    """Two at half the price sustain 6 requests a second, one at the price 5."""
    several = [
        replace(answer(kind, each, 1), price=price)
        for kind, each, price in ((False, 3.0, 1.0), (True, 5.0, 2.0))
    ]
    several = [replace(each, replicas=replicas_needed(5.0, each.sustained)) for each in several]
    best = cheapest(several, several[0], several[1], 0.05, LEVELS)
    (row,) = (each for each in by_rate(several, 5.0, 0.05) if each["rate"] == 5.0)
    assert not best.planned.speculates
    assert (row["pays"], row["cards"]) == (False, 2)
