"""What proposes tokens; ``decode.drafter`` says what a drafter is and what a new one needs."""

from __future__ import annotations

from calibrate.decode.drafters.base import Drafter, Drawing, Rows
from calibrate.decode.drafters.copying import MaxGram, PromptLookup
from calibrate.decode.drafters.counts import Bigram, PairCounts, Unigram, read_pair_counts
from calibrate.decode.drafters.full_cascade import full_cascade, standardized_improvement
from calibrate.decode.drafters.horizontal import Horizontal
from calibrate.decode.drafters.neural import Neural, first_layers
from calibrate.decode.drafters.uniform import Uniform
from calibrate.decode.drafters.vertical import Vertical, VerticalAtLeast

__all__ = [
    "Bigram",
    "Drafter",
    "Drawing",
    "Horizontal",
    "MaxGram",
    "Neural",
    "PairCounts",
    "PromptLookup",
    "Rows",
    "Uniform",
    "Unigram",
    "Vertical",
    "VerticalAtLeast",
    "first_layers",
    "full_cascade",
    "read_pair_counts",
    "standardized_improvement",
]
