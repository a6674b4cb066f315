"""llama.cpp of October 2026: flags of ``llama-server``.

``--spec-draft-n-max`` is the one draft length; ``--draft-max`` is an error there.
"""

from __future__ import annotations

import shlex

from specsim.engines.schedule import Configuration, Schedule, gamma_at, in_words


def write(schedule: Schedule, draft: str, batch: int) -> Configuration:
    """One line of flags."""
    flags = ["-md", draft, "--spec-draft-n-max", str(gamma_at(schedule, batch))]
    note = (
        f"llama.cpp takes one draft length, here the best at batch {batch}; by batch the best "
        f"would be {in_words(schedule)}"
    )
    return Configuration(shlex.join(flags), (note,))
