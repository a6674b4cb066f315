"""TensorRT-LLM 1.4: the YAML of ``speculative_config``.

``draft_len_schedule`` maps the largest batch of a range to its draft length, and above the last
nothing is drafted.  Before 2026-03-13 (NVIDIA/TensorRT-LLM pull request 10860) the same keys were
the smallest batches of the ranges.  The first range must have the longest draft,
``max_draft_len``, or the engine does not start.
"""

from __future__ import annotations

import json

from specsim.checks import UnsupportedError
from specsim.engines.schedule import Configuration, Schedule, in_words, largest


def write(schedule: Schedule, draft: str, batch: int) -> Configuration:
    """Lines of a YAML file.

    Raises UnsupportedError where the smallest batches do not draft longest, as with a mixture of
    experts, of which more tokens read more.
    """
    if schedule[0][2] < largest(schedule):
        raise UnsupportedError(
            "TensorRT-LLM drafts longest at the smallest batches, and the best here would be "
            f"{in_words(schedule)}"
        )
    _, last, gamma = schedule[-1]
    kept = schedule if gamma else schedule[:-1]
    lines = [
        "speculative_config:",
        "  decoding_type: DraftTarget",
        f"  max_draft_len: {largest(schedule)}",
        # A JSON string is a YAML string whatever the name holds.
        f"  speculative_model: {json.dumps(draft)}",
        "  draft_len_schedule:",
        *(f"    {end}: {length}" for _, end, length in kept),
    ]
    notes = [
        "keys of draft_len_schedule are the last batches of their ranges, as TensorRT-LLM reads "
        "them since 2026-03-13; older ones read them as the first"
    ]
    if gamma:
        notes.append(f"above batch {last} TensorRT-LLM drafts nothing")
    return Configuration("\n".join(lines), tuple(notes))
