"""The shares of an error add up to it, and each names its own cause."""

from __future__ import annotations

from dataclasses import replace
from math import isclose, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.predict.error_decomposition import BlockTiming, decompose_error

seconds = st.floats(1e-6, 10.0)
spent = st.builds(BlockTiming, st.floats(1.0, 9.0), seconds, seconds, seconds, seconds)


@given(spent, spent)
def test_the_shares_add_up(predicted: BlockTiming, measured: BlockTiming) -> None:
    total = sum(decompose_error(predicted, measured).values())
    assert isclose(total, log(predicted.speedup / measured.speedup), rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize(
    ("part", "value"), [("tokens", 3.0), ("draft_s", 0.5), ("verify_s", 0.9), ("overhead_s", 0.01)]
)
def test_one_wrong_part_bears_all_of_it(part: str, value: float) -> None:
    measured = BlockTiming(2.5, 0.4, 1.2, 0.1, 1.0)
    shares = decompose_error(replace(measured, **{part: value}), measured)
    guilty = "error_" + {"tokens": "acceptance"}.get(part, part.removesuffix("_s"))
    assert all((share != 0) == (name == guilty) for name, share in shares.items())


def test_a_slower_machine_is_no_error() -> None:
    """Everything twice as slow leaves the speedup, and every share, alone."""
    measured = BlockTiming(2.5, 0.4, 1.2, 0.1, 1.0)
    slower = BlockTiming(2.5, 0.8, 2.4, 0.2, 2.0)
    assert decompose_error(slower, measured) == dict.fromkeys(
        decompose_error(measured, measured), 0.0
    )
