"""What proposes tokens; ``base`` says what a drafter is and what a new one needs."""

from __future__ import annotations

from calibrate.decode.drafters.base import Drafter
from calibrate.decode.drafters.copying import MaxGram, PromptLookup
from calibrate.decode.drafters.counts import Bigram, PairCounts, Unigram, read_pair_counts
from calibrate.decode.drafters.eagle import CachedHead, EagleHead
from calibrate.decode.drafters.horizontal import Horizontal
from calibrate.decode.drafters.masks import MaskFiller
from calibrate.decode.drafters.neural import Neural, first_layers
from calibrate.decode.drafters.vertical import Vertical

__all__ = [
    "Bigram",
    "CachedHead",
    "Drafter",
    "EagleHead",
    "Horizontal",
    "MaskFiller",
    "MaxGram",
    "Neural",
    "PairCounts",
    "PromptLookup",
    "Unigram",
    "Vertical",
    "first_layers",
    "read_pair_counts",
]
