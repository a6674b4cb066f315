"""vLLM 0.33: the JSON of ``--speculative-config``, with a draft length by batch.

``num_speculative_tokens_per_batch_size`` is a list of [first, last, tokens], both ends included,
the first from 1 on; every number of tokens is at most ``num_speculative_tokens``, and beyond the
last range its number holds on.  An unknown key is an error.
"""

from __future__ import annotations

import json

from specsim.engines.schedule import Configuration, Schedule, largest


def write(schedule: Schedule, draft: str, batch: int) -> Configuration:
    """``vllm serve TARGET --speculative-config "$(specsim export vllm ...)"``."""
    content = {
        "method": "draft_model",
        "model": draft,
        "num_speculative_tokens": largest(schedule),
        "num_speculative_tokens_per_batch_size": schedule,
    }
    _, last, gamma = schedule[-1]
    notes = [
        'vLLM drafts greedily, also above temperature 0, unless "draft_sample_method" is '
        '"probabilistic": acceptance must have been measured in the same way'
    ]
    if gamma:
        notes.append(f"above batch {last} vLLM goes on with draft length {gamma}")
    return Configuration(json.dumps(content), tuple(notes))
