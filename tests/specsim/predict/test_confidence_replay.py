"""Drafts that stop where the drafter is unsure, against every pattern of acceptance."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.checks import UnsupportedError
from specsim.predict.replay.confidence import replay_confidence
from specsim.predict.replay.fixed_gamma import replay
from specsim.traces import Trace


def trace(accepted: list[float], tops: list[float]) -> Trace:
    size = len(accepted)
    return Trace(np.array(accepted), np.array([0, size]), {"draft_top": np.array(tops)})


def enumerated(accepted: list[float], tops: list[float], p_min: float, gamma: int) -> list[float]:
    """Expected calls, drafts and stopped blocks, over whether each token would be accepted."""
    found = np.zeros(3)
    for pattern in product([False, True], repeat=len(accepted)):
        chance = np.prod([a if yes else 1 - a for a, yes in zip(accepted, pattern, strict=True)])
        place = 0
        while place < len(accepted):
            drafts = 0
            while drafts < gamma and place + drafts < len(accepted):
                if tops[place + drafts] < p_min:
                    found[2] += chance
                    break
                drafts += 1
            found[:2] += chance, chance * drafts
            kept = 0
            while kept < drafts and pattern[place + kept]:
                kept += 1
            place += kept + 1
    return found.tolist()


@given(
    rows=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=7),
    p_min=st.floats(0, 1),
    gamma=st.integers(1, 4),
)
def test_every_pattern(rows: list[tuple[float, float]], p_min: float, gamma: int) -> None:
    accepted, tops = (list(column) for column in zip(*rows, strict=True))
    found = replay_confidence(trace(accepted, tops), p_min, gamma)
    calls, drafts, stopped = enumerated(accepted, tops, p_min, gamma)
    assert found.calls == pytest.approx(calls, rel=1e-9)
    assert found.lengths @ np.arange(gamma + 1) == pytest.approx(drafts, rel=1e-9, abs=1e-12)
    assert found.stopped == pytest.approx(stopped, rel=1e-9, abs=1e-12)


def test_the_ends_are_plain_and_fixed() -> None:
    rng = np.random.default_rng(5)
    text = trace(rng.random(40).tolist(), rng.random(40).tolist())
    assert replay_confidence(text, 1.0, 4).tokens_per_call == 1.0
    (fixed,) = replay(text, [4])
    assert replay_confidence(text, 0.0, 4).calls == pytest.approx(fixed.total_calls, rel=1e-12)


def test_a_trace_without_confidences_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="draft_top"):
        replay_confidence(Trace(np.array([0.5]), np.array([0, 1])), 0.5, 2)
