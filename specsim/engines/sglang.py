"""SGLang 0.5.23: flags for one draft length, and a file for lengths by batch.

With ``--speculative-eagle-topk 1`` the target reads ``--speculative-num-draft-tokens`` = steps + 1.
The file of ``--speculative-adaptive-config`` maps the smallest batch of a range to the numbers of
steps that the engine may choose from; one number leaves it no choice.  It is for EAGLE and EAGLE3:
with a draft model (STANDALONE) SGLang warns and keeps the flags.
"""

from __future__ import annotations

import json
import shlex

from specsim.engines.schedule import Configuration, Schedule, gamma_at, in_words


def write(schedule: Schedule, draft: str, batch: int) -> Configuration:
    """Two lines: the flags, and the file."""
    steps = gamma_at(schedule, batch)
    flags = [
        *("--speculative-algorithm", "STANDALONE"),
        *("--speculative-draft-model-path", draft),
        *("--speculative-num-steps", str(steps)),
        *("--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", str(steps + 1)),
    ]
    adaptive = {str(first): {"candidate_steps": [gamma]} for first, _, gamma in schedule}
    notes = (
        f"first line: flags, best at batch {batch}; SGLang keeps to them at every batch with a "
        f"draft model, where the best would be {in_words(schedule)}",
        "second line: the file of --speculative-adaptive-config, which SGLang reads with "
        "--speculative-adaptive and EAGLE or EAGLE3 only",
    )
    return Configuration(f"{shlex.join(flags)}\n{json.dumps(adaptive)}", notes)
