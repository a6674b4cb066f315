"""Counted rates are worth their number where tokens are independent, less where texts repeat."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.effective_drafts import of_blocks, of_every_place
from specsim.checks import Floats
from specsim.extrapolation import GapLaw
from specsim.traces import Trace

LONGEST = 4


def worth_of_blocks(texts: Floats) -> tuple[float, float]:
    """Mean over positions of what blocks are worth, and how many there are; texts (R, T)."""
    tokens = texts.shape[1]
    trace = Trace(texts.ravel(), np.arange(0, texts.size + 1, tokens))
    rounds = trace.tokens / float(GapLaw.of_trace(trace).tokens_per_call(LONGEST)[-1])
    return float(of_blocks(trace, LONGEST).mean()), rounds


def test_independent_tokens_are_worth_their_number_and_repeated_ones_are_not() -> None:
    # 300 requests, whose jackknife variance is known to 8 % (standard deviation); over three rises
    # 30 % is more than six of these.  The seed is fixed.
    texts = (np.random.default_rng(3).random((300, 40)) < 0.6).astype(float)
    worth, rounds = worth_of_blocks(texts)
    assert worth == pytest.approx(rounds, rel=0.3)
    again, twice = worth_of_blocks(np.tile(texts, (1, 4)))
    assert twice == pytest.approx(4 * rounds, rel=0.05)
    assert again < 2 * rounds


def test_averages_are_worth_more_than_counts() -> None:
    random = np.random.default_rng(4)
    texts = random.uniform(0.55, 0.65, (100, 40))
    trace = Trace(texts.ravel(), np.arange(0, 4001, 40))
    assert (of_every_place(trace, LONGEST) > 10 * 3700).all()
