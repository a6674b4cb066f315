"""How much longer a server takes than when its steps were timed: sets of requests that it decodes
alone, before and behind every setting, as sets were decoded for the timing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.engine.asked import Asked
from calibrate.engine.client import EngineClient
from calibrate.engine.rounds import replayed_rounds
from calibrate.engine.sets import request_sets, time_set
from specsim.api.engine_question import asked_of
from specsim.checks import Floats, Ints
from specsim.counts.file import read_acceptance
from specsim.predict.engine_sets import rounds_at_batches
from specsim.profiles import Profile
from studies.serving import settings
from studies.serving.files import LoadFiles
from studies.serving.settings import Drafting

# Sets of each batch.
_SETS = {1: 2, settings.MAX_NUM_SEQS: 1}


@dataclass(frozen=True)
class TimedCosts:
    """Means over the repeats of a timing.

    batches : rising, (J,)
    step_s, first_s : by draft length, seconds of a step and until the first tokens, (J,)
    """

    batches: tuple[int, ...]
    step_s: Mapping[int, Floats]
    first_s: Mapping[int, Floats]

    @staticmethod
    def read(timed: Path) -> TimedCosts:
        rows = [each.step() for each in read_acceptance(timed).steps]
        batches = tuple(sorted({round(row.batch) for row in rows}))
        gammas = sorted({row.gamma or 0 for row in rows})

        def means(name: str, gamma: int) -> Floats:
            of_gamma = [row for row in rows if (row.gamma or 0) == gamma]
            return np.array(
                [
                    np.mean([getattr(row, name) for row in of_gamma if round(row.batch) == batch])
                    for batch in batches
                ]
            )

        return TimedCosts(
            batches,
            {gamma: means("seconds", gamma) for gamma in gammas},
            {gamma: means("first_s", gamma) for gamma in gammas},
        )

    def seconds(self, gamma: int, rounds: Ints) -> float:
        """Of a set, from sending it to its last answer, by the rounds of its requests, (B,)."""
        first = np.interp(len(rounds), self.batches, self.first_s[gamma])
        at = rounds_at_batches(rounds, self.batches)
        return float(first + at @ self.step_s[gamma])


@dataclass(frozen=True)
class Beside:
    """The sets of a profile's requests, and what they took when steps were timed."""

    asked: Asked
    costs: TimedCosts

    @staticmethod
    def of(profile: Profile, files: LoadFiles) -> Beside:
        asked, _ = asked_of(profile, files.profile, files.timing)
        return Beside(asked, TimedCosts.read(files.timed))

    def sets(self, client: EngineClient, drafting: Drafting) -> Iterator[dict[str, Any]]:
        """Each set on this server now: its seconds, and those by the timed steps.

        Where draft lengths change with the batch, or the cache is too small for a full batch, one
        request alone has steps that were timed, and a full batch has not.
        """
        alone = len(drafting.schedule) > 1 or drafting.blocks is not None
        gamma = drafting.schedule[0][2] if drafting.schedule else 0
        rounds = np.array(replayed_rounds(self.asked, gamma))
        for batch in (1,) if alone else tuple(_SETS):
            for requests in request_sets(batch, len(self.asked.requests), 0)[: _SETS[batch]]:
                found = time_set(client, self.asked, gamma, batch, requests)
                expected_s = self.costs.seconds(gamma, rounds[list(requests)])
                yield {
                    "gamma": gamma,
                    "batch": batch,
                    "seconds": round(found.seconds, 5),
                    "expected_s": round(expected_s, 5),
                }
