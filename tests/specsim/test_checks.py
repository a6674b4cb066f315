"""What is accepted and what refusals say of numbers, ranges and words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.checks import (
    InvalidArgumentError,
    check_choice,
    did_you_mean,
    integer,
    integer_range,
    integers,
    number,
    numbers,
    probabilities,
    probability,
    reason_of,
    refuse,
    shown,
    significant,
)
from tests.support.refusals import refuses

INF = float("inf")
FIGURES = st.floats(min_value=1e-5, max_value=1e14, exclude_max=True)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0000000000000002, "1.0000000000000002"),  # the smallest number above one
        (1.5, "1.5"),
        (-1e-12, "-1e-12"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_a_refused_number_is_shown_as_one_that_is_not_allowed(value: float, shown: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        probability("alpha", value)
    assert str(refused.value) == f"alpha must be in [0, 1], got {shown}"


def test_a_refused_number_is_never_shown_as_an_end_of_the_range() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^x must be in \[1, 2\], got 0\.999999999$"):
        number("x", 0.999999999, low=1, high=2)


def test_what_is_long_is_cut_to_120_characters() -> None:
    whole, longer = ["x" * 36] * 3, ["x" * 36, "x" * 36, "x" * 37]
    assert shown(whole) == repr(whole)
    assert len(repr(whole)) == len(shown(longer)) == 120
    assert shown(longer) == repr(longer)[:117] + "..."


def test_lists_in_lists_are_shown_down_to_the_third() -> None:
    assert shown([[[[[1]]]]]) == "[[[[...]]]]"


def test_a_number_that_is_almost_whole_is_shown_in_all_digits() -> None:
    with pytest.raises(InvalidArgumentError, match=r"got 2\.0000000000000004$"):
        integer("gamma", 2.0000000000000004)


@pytest.mark.parametrize("value", ["x" * 10**6, 10**400, [[]], {}, None, "1e5000x"])
def test_what_is_no_number_is_refused_in_a_short_line(value: object) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        number("alpha", value)
    assert len(str(refused.value)) < 200
    assert "\n" not in str(refused.value)


class Long:
    """Nothing that is a number, and says a lot."""

    def __repr__(self) -> str:
        return "y" * 1000


@pytest.mark.parametrize("value", ["x" * 10**6, Long()], ids=["word", "object"])
def test_of_what_is_long_eighty_characters_are_shown(value: object) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        number("alpha", value)
    assert len(str(refused.value)) == len("alpha must be a number, got ") + 80


def test_a_number_of_more_digits_than_are_written_is_refused_in_a_short_line() -> None:
    with pytest.raises(InvalidArgumentError, match=r"alpha must be a number, got '0\.8/0\.6'$"):
        numbers("alpha", ["0.9", "0.8/0.6"])
    with pytest.raises(InvalidArgumentError, match="must be a number, got int that is too long"):
        number("alpha", 1 << 40_000)


def test_an_exception_without_words_is_told_by_its_kind() -> None:
    assert reason_of(MemoryError()) == "MemoryError"
    assert reason_of(ValueError("first\nsecond")) == "first"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10210.4, "10,210"),
        (1368.42, "1,368"),
        (0.283523, "0.2835"),
        (0.419, "0.419"),
        (36.0, "36"),
        (200.0, "200"),
        (-12604.3, "-12,604"),
        (0.0, "0"),
        (1e-5, "0.00001"),
        (9.99e-6, "9.99e-06"),
        (999_999_999_999_999.0, "999,999,999,999,999"),
        (1e15, "1e+15"),
        (math.inf, "inf"),
    ],
)
def test_figures_have_no_exponent(value: float, text: str) -> None:
    assert significant(value) == text


@given(FIGURES)
def test_four_significant_digits_are_kept(value: float) -> None:
    for zeros in (True, False):
        text = significant(value, zeros=zeros)
        assert "e" not in text
        assert float(text.replace(",", "")) == pytest.approx(value, rel=5.001e-4)
    assert len(significant(value, zeros=True).replace(",", "").replace(".", "").lstrip("0")) >= 4


def test_the_ends_of_a_range_are_in_it() -> None:
    for value in (0, 0.0, 1, 1.0, np.float64(1), "1", "0.5"):
        found = probability("alpha", value)
        assert found == float(value)
        assert type(found) is float
    for low, high, value in ((-INF, INF, -1e300), (0.0, INF, 1e300), (-INF, 0.0, -5.0), (2, 2, 2)):
        assert number("x", value, low=low, high=high) == value
        assert numbers("x", [value, value], low=low, high=high).tolist() == [value, value]
    assert probabilities("x", [[0, 1], [0.5, 0.25]]).tolist() == [[0, 1], [0.5, 0.25]]
    assert number("x", -1e300) == -1e300


test_numbers_outside_are_refused = refuses(
    (lambda: number("x", -0.001, low=0.0), r"^x must be >= 0, got -0\.001$"),
    (lambda: number("x", 1.001, high=1.0), r"^x must be <= 1, got 1\.001$"),
    (lambda: number("x", 3.5, low=0.0, high=2.5), r"^x must be in \[0, 2\.5\], got 3\.5$"),
    (lambda: numbers("x", [1, -2, -3], low=0.0), "^x must be >= 0, got -2$"),
    (lambda: integer("x", 0, low=1, high=2**31 - 1), r"^x must be .* in \[1, 2147483647\], got 0$"),
    (lambda: number("x", 0, low=1e-7, high=1e20), r"^x must be in \[1e-07, 1e\+20\], got 0$"),
    (lambda: numbers("x", [[0.5, 2.0], [3.0, 0.5]], high=1.0), "^x must be <= 1, got 2$"),
    # The first that is outside, not one at an end of the range.
    (lambda: numbers("x", [0.0, 1.0, 5.0, -5.0], low=0.0, high=1.0), r"in \[0, 1\], got 5$"),
    (lambda: numbers("x", [1.0, 0.0, -5.0, 5.0], low=0.0, high=1.0), r"in \[0, 1\], got -5$"),
    (lambda: probabilities("x", [0.5, 1.001]), r"^x must be in \[0, 1\], got 1\.001$"),
    (lambda: probabilities("x", [-0.001, 0.5]), r"^x must be in \[0, 1\], got -0\.001$"),
    # What no number line holds is no question of the range.
    (lambda: number("x", INF), "^x must be finite, got inf$"),
    (lambda: number("x", -INF), "^x must be finite, got -inf$"),
    (lambda: number("x", INF, low=0.0), "^x must be finite, got inf$"),
    (lambda: number("x", -INF, high=0.0), "^x must be finite, got -inf$"),
    (lambda: number("x", -INF, low=0.0), "^x must be >= 0, got -inf$"),
    (lambda: number("x", INF, high=0.0), "^x must be <= 0, got inf$"),
    (lambda: number("x", float("nan")), "^x must be finite, got nan$"),
    (lambda: numbers("x", [0.0, float("nan")], low=0.0), "^x must be >= 0, got nan$"),
    (lambda: numbers("x", []), "^x is empty, expected at least one number$"),
    (lambda: number("x", [0.5, 0.5]), "^x must be one number, got 2 of them$"),
    (lambda: number("x", [0.5]), "^x must be one number, got 1 of them$"),
)


def test_whole_numbers_are_taken_in_every_form() -> None:
    for value in (3, 3.0, "3", np.int32(3), np.float32(3)):
        found = integer("n", value)
        assert found == 3
        assert type(found) is int
    assert integer("n", 0) == 0
    assert integer("n", -4, low=-4) == integer("n", -4, low=-4, high=-4) == -4
    assert integers("n", [0, 5.0]).dtype == np.int64
    assert integers("n", [0, 5], high=5).tolist() == [0, 5]
    # As far as float64 holds every whole number.
    assert integer("n", 2**53) == integer("n", 2.0**53) == 2**53
    assert integers("n", [2**53]).tolist() == [2**53]
    assert integer("n", -(2**53), low=-(2**60)) == -(2**53)


test_whole_numbers_outside_are_refused = refuses(
    (lambda: integer("n", -1), r"^n must be a whole number >= 0, got -1$"),
    (lambda: integer("n", 0.5), r"^n must be a whole number >= 0, got 0\.5$"),
    (lambda: integer("n", 6, high=5), r"^n must be a whole number in \[0, 5\], got 6$"),
    (lambda: integer("n", 1, low=2), r"^n must be a whole number >= 2, got 1$"),
    (lambda: integers("n", [1, 7, 0], low=1, high=5), r"in \[1, 5\], got 7$"),
    (lambda: integers("n", [0, 1], low=1), r">= 1, got 0$"),
    (lambda: integers("n", [1, 5, 6], low=1, high=5), r"in \[1, 5\], got 6$"),
    (lambda: integers("n", [0, -3]), r">= 0, got -3$"),
    (
        lambda: integer("n", 2**53 + 2),
        r"^n must be a whole number in \[0, 9007199254740992\], got ",
    ),
    (lambda: integer("n", 2**53 + 2, high=7), r"^n must be a whole number in \[0, 7\], got "),
    (lambda: integer("n", 10**30), r"\[0, 9007199254740992\], got 1e\+30$"),
    (lambda: integers("n", [1, 2.0**60]), r"\[0, 9007199254740992\], got 1\.15292e\+18$"),
    (lambda: integer("n", INF), "^n must be finite, got inf$"),
    (lambda: integer("n", [1, 2]), "^n must be one whole number, got 2 of them$"),
)


def test_ranges_of_whole_numbers() -> None:
    assert integer_range("gamma", "4") == [4]
    assert integer_range("gamma", "1,2,4") == [1, 2, 4]
    assert integer_range("gamma", "1:5") == [1, 2, 3, 4, 5]
    assert integer_range("gamma", " 1 : 3 , 8,0") == [1, 2, 3, 8, 0]
    assert integer_range("gamma", "7:7") == [7]
    assert len(integer_range("gamma", "1:1000000")) == 1_000_000
    assert len(integer_range("gamma", "1:999999,5")) == 1_000_000


test_what_is_no_range_is_refused = refuses(
    (lambda: integer_range("gamma", "5:3"), "^gamma must be a range first:last, got 5:3$"),
    (lambda: integer_range("gamma", "0:1000000"), "^gamma must be at most 1,000,000 numbers$"),
    (lambda: integer_range("gamma", "1:1000000,5"), "^gamma must be at most 1,000,000 numbers$"),
    (lambda: integer_range("gamma", "1:10000000000000"), "at most 1,000,000 numbers"),
    (lambda: integer_range("gamma", "0:3", low=1), "must be a whole number >= 1, got 0"),
    (lambda: integer_range("gamma", "-1"), "must be a whole number >= 0, got -1"),
    (lambda: integer_range("gamma", "2:1", low=2), "must be a whole number >= 2, got 1"),
    (lambda: integer_range("gamma", "1,,2"), "gamma must be a number, got ''"),
    (lambda: integer_range("gamma", "1:2:3"), "gamma must be a number, got '2:3'"),
)


def test_words_are_of_a_list() -> None:
    check_choice("law", "b", iter("abc"))
    with pytest.raises(InvalidArgumentError, match=r"^law must be one of a, b, c, got 'd'$"):
        check_choice("law", "d", iter("abc"))


def test_names_that_are_near_are_asked_for() -> None:
    known = ["qwen3-8b", "qwen3-4b", "llama-3.1-8b", "-"]
    assert did_you_mean("Qwen_3", known) == ", did you mean qwen3-8b or qwen3-4b?"
    assert did_you_mean("qwen3-8b-instruct", known) == ", did you mean qwen3-8b?"
    assert did_you_mean("LLAMA318B", known) == ", did you mean llama-3.1-8b?"
    assert did_you_mean("lama-31-8b", known) == ", did you mean llama-3.1-8b?"
    assert did_you_mean("mixtral", known) == ""
    assert did_you_mean("...", known[:3]) == ""


def test_the_first_argument_that_is_there_is_refused() -> None:
    refuse({"alpha": None, "c": None}, "is not taken here")
    with pytest.raises(InvalidArgumentError, match=r"^c is not taken here$"):
        refuse({"alpha": None, "c": 0, "gamma": 3}, "is not taken here")
