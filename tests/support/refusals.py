"""Calls that must be refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from specsim.checks import InvalidArgumentError, SpecsimError

Case = tuple[Callable[[], object], str]


def refuses(
    *cases: Case, error: type[SpecsimError] = InvalidArgumentError
) -> Callable[[Callable[[], object], str], None]:
    """A test that each call raises this error, with one line that matches the pattern beside it."""

    @pytest.mark.parametrize(("call", "message"), cases)
    def test(call: Callable[[], object], message: str) -> None:
        with pytest.raises(error, match=message) as refusal:
            call()
        assert "\n" not in str(refusal.value)

    return test
