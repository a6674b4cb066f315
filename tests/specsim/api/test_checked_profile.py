"""What a check of a profile is asked for."""

from __future__ import annotations

import pytest

from specsim.api.checked_profile import draft_lengths
from specsim.checks import InvalidArgumentError


def test_draft_lengths_are_those_of_the_profile_each_once() -> None:
    assert draft_lengths(None, 3) == draft_lengths((), 3) == (1, 2, 3)
    assert draft_lengths((3, 1, 3), 3) == (3, 1)


@pytest.mark.parametrize("gamma", [0, -1, 4])
def test_other_draft_lengths_are_refused(gamma: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"gamma must be .*, got {gamma}$"):
        draft_lengths((2, gamma), 3)
