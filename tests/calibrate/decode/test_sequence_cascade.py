"""Sequence-level cascades: the small model's response is kept whole, or written anew."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from calibrate.decode.engine import CachedModel, DecodeRequest
from calibrate.decode.plain import plain
from calibrate.decode.sequence_cascade import sequence_cascade
from calibrate.measure.trace import generator
from specsim.rules.confidence import Confidence, mean_log_probability, sum_log_probability
from tests.support.executions import Choose, Tokens, law, quantile_log_probability
from tests.support.executions import sequence_cascade as execute
from tests.support.imitations import (
    CPU,
    ORDINARY,
    TextModel,
    assert_drawn_from,
    greedy,
    lawless,
    prompts,
    top,
    uncached,
)

CONFIDENCES = [
    (sum_log_probability, -12.0),
    (mean_log_probability, -1.0),
    (quantile_log_probability(0.3), -1.2),
]


@pytest.mark.parametrize(("confidence", "threshold"), CONFIDENCES)
def test_greedy_is_the_execution(
    models: dict[str, CachedModel], confidence: Confidence, threshold: float
) -> None:
    large, small = models["target"], models["draft"]
    rows = uncached(large), uncached(small)
    kept = 0
    for prompt in prompts(12):
        result = sequence_cascade(large, small, greedy(prompt, 12), confidence, threshold).finish()
        expected = execute(confidence, threshold, *rows, tuple(prompt), 12, top)
        assert tuple(result.tokens) == expected.tokens
        assert result.draft.widths == Counter({1: expected.draft_runs})
        assert result.target.widths == Counter(expected.target_reads)
        assert sum(result.drafted) == 12
        assert sum(result.accepted) == (0 if expected.target_reads else 12)
        kept += not expected.target_reads
    assert 0 < kept < 12


def test_sampled_sequences_follow_the_execution() -> None:
    large, small = rows = lawless(4, seed=5), lawless(4, seed=25)

    def execution(choose: Choose) -> tuple[Tokens, int]:
        out = execute(sum_log_probability, math.log(0.1), large, small, (1,), 2, choose)
        return out.tokens, out.target_runs

    models = [CachedModel(TextModel(row, 4)) for row in rows]
    random, seen = generator(CPU, 1), []
    for _ in range(1000):
        result = sequence_cascade(
            *models, DecodeRequest([1], 2, ORDINARY, random), sum_log_probability, math.log(0.1)
        ).finish()
        seen.append((tuple(result.tokens), result.calls))
    # False-alarm chance 1e-4.  Seeded.
    assert_drawn_from(law(execution), seen, alarm=1e-4)


def test_the_extremes_are_the_models_alone(models: dict[str, CachedModel]) -> None:
    large, small = models["target"], models["draft"]
    for threshold, alone in ((-math.inf, small), (math.inf, large)):
        result = sequence_cascade(
            large, small, greedy([5], 20), sum_log_probability, threshold
        ).finish()
        assert result.tokens == plain(alone, greedy([5], 20)).finish().tokens
        assert result.calls == (20 if alone is large else 0)
        assert result.draft.count == 20


@pytest.mark.parametrize("threshold", [-math.inf, math.inf])
def test_an_end_of_text_ends_the_response_and_is_part_of_its_confidence(
    models: dict[str, CachedModel], threshold: float
) -> None:
    large, small = models["target"], models["draft"]
    alone = small if threshold < 0 else large
    text = plain(alone, greedy([9, 3], 30)).finish().tokens
    written = plain(small, greedy([9, 3], 30, text[8])).finish().tokens
    lengths: list[int] = []

    def confidence(logs: np.ndarray) -> float:
        lengths.append(len(logs))
        return 0.0

    result = sequence_cascade(
        large, small, greedy([9, 3], 30, text[8]), confidence, threshold
    ).finish()
    assert result.tokens == text[: text.index(text[8]) + 1]
    assert lengths == [len(written)]
    assert result.draft.count == len(written)
