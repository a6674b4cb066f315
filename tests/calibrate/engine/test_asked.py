"""Which requests of a profile an engine is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrate.engine.asked import Asked
from calibrate.validate.speedups import CheckedPrompts
from specsim.checks import UnsupportedError


def test_the_first_requests_are_those_of_fewer_prompts() -> None:
    """Texts of 6 tokens with drafts of 5 are too short, and so are prompts of one token."""

    def trace(lengths: np.ndarray) -> Any:
        return SimpleNamespace(
            lengths=lengths, columns={"token": lengths}, take=lambda kept: trace(lengths[kept])
        )

    workload: Any = SimpleNamespace(trace=trace(np.array([6, 9, 12, 9, 20])))
    prompts = [[1, 2], [1, 2], [1, 2, 3], [1], [1, 2]]
    every = Asked.of(CheckedPrompts(workload, True, prompts), 5)
    assert (every.requests, every.tokens) == ((1, 2, 4), (4, 7, 15))
    for count in (2, 3, 4, 5, 9):
        of_fewer = Asked.of(CheckedPrompts(workload, True, prompts[:count]), 5)
        assert every.first(count) == of_fewer
    with pytest.raises(UnsupportedError, match="requests must be > 1, the first that is long"):
        every.first(1)
