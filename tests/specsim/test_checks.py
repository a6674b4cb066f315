"""What refusals say of numbers."""

from __future__ import annotations

import pytest

from specsim.checks import InvalidArgumentError, integer, number, probability, reason_of


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


def test_a_number_that_is_almost_whole_is_shown_in_all_digits() -> None:
    with pytest.raises(InvalidArgumentError, match=r"got 2\.0000000000000004$"):
        integer("gamma", 2.0000000000000004)


@pytest.mark.parametrize("value", ["x" * 10**6, 10**400, [[]], {}, None, "1e5000x"])
def test_what_is_no_number_is_refused_in_a_short_line(value: object) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        number("alpha", value)
    assert len(str(refused.value)) < 200
    assert "\n" not in str(refused.value)


def test_an_exception_without_words_is_told_by_its_kind() -> None:
    assert reason_of(MemoryError()) == "MemoryError"
    assert reason_of(ValueError("first\nsecond")) == "first"
