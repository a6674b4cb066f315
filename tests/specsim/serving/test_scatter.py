"""Factors by which single steps are longer, or shorter, than their kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import lognorm

from specsim.checks import InvalidArgumentError
from specsim.serving.scatter import factors


@given(st.floats(1e-6, 1.0))
def test_factors_are_log_normal_with_mean_one(variation: float) -> None:
    found = factors(variation)
    assert found.mean() == pytest.approx(1.0, abs=1e-12)
    assert (np.diff(found) > 0).all()
    assert found[0] > 0
    # What shares of the law scatter in themselves is lacking.
    assert 0.994 * variation < found.std() < variation
    spread = np.sqrt(np.log1p(variation**2))
    law = lognorm(spread, scale=np.exp(-(spread**2) / 2))
    for share in (0.1, 0.5, 0.9, 0.99):
        assert (found <= law.ppf(share)).mean() == pytest.approx(share, abs=1 / found.size)


def test_without_variation_there_is_one_factor() -> None:
    assert factors(0.0).tolist() == [1.0]
    for bad in (-0.1, 3.1, np.nan):
        with pytest.raises(InvalidArgumentError, match=r"variation must be .*3"):
            factors(bad)
