"""Counts of pairs of tokens in a random text."""

from __future__ import annotations

import numpy as np

from calibrate.decode.drafters.counts import PairCounts
from calibrate.train.family import bigram_counts


def pair_counts(words: int, seed: int = 0) -> PairCounts:
    """Counts of a random text in which some words never come."""
    text = np.random.default_rng(seed).integers(words - words // 4, size=5 * words)
    return PairCounts(bigram_counts(text, words))
