"""transformers 5.23: settings of the assistant model's ``generation_config``.

They belong to the assistant: given to the target they are ignored.  A schedule or a confidence
threshold would change the draft length on the way, so both are off.
"""

from __future__ import annotations

import json

from specsim.checks import UnsupportedError
from specsim.engines.schedule import Configuration, Schedule, gamma_at


def write(schedule: Schedule, draft: str, batch: int) -> Configuration:
    """Lines of Python; assisted generation takes one request at a time."""
    if batch != 1:
        raise UnsupportedError(f"transformers drafts at batch 1 only, got --batch {batch}")
    settings = {
        "num_assistant_tokens": gamma_at(schedule, batch),
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }
    lines = [
        f"assistant_model.generation_config.{name} = {json.dumps(value)}"
        for name, value in settings.items()
    ]
    return Configuration("\n".join(lines))
