"""What an engine that was timed is predicted to serve at most, without drafts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from specsim.api.serving_setup import SetUpWords, set_up
from specsim.batching.source import Source
from specsim.checks import Ints
from specsim.serving import Requests, run
from studies.serving import settings

# As many in every pass: the last ones of a run fill no step.
_COUNTED = 200
# Blocks that hold all that can run together.
_ENOUGH = settings.MAX_NUM_SEQS * settings.CONTEXT // settings.BLOCK_TOKENS + 1


def plain_capacity(timed: Path, outputs: Ints) -> float:
    """Requests per second where all are there from the beginning, with prompts of the mean length.

    outputs : tokens of each; the first 200 of them count
    """
    outputs = outputs[:_COUNTED]
    prompts = np.full(outputs.size, round(sum(settings.PROMPTS) / 2))
    requests = Requests(np.zeros(outputs.size), prompts, outputs)
    words = SetUpWords(None, Source(profile=timed), engine=settings.engine(_ENOUGH))
    setup = set_up(words, requests).setup
    return run(requests, setup.engine, setup.step_model).requests_per_s
