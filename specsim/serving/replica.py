"""A replica that stops at every arrival, so that a router can look at it.

It gets some of the requests of a workload, and nobody knows before which.  So it has a place for
every one of them; those that were given fill the first places, in the order in which they came, and
in the others is a request that never arrives.  What it does is to the last bit what ``run`` makes
of the same requests.
"""

from __future__ import annotations

import numpy as np

from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.loop import advance
from specsim.serving.requests import Requests
from specsim.serving.simulation import prepared
from specsim.serving.step_model import StepModel


class Replica:
    """One engine (a ``Server``); arguments as of ``run``.

    requests : all that may be given to it
    given : how many were
    """

    def __init__(
        self,
        requests: Requests,
        engine: ServingEngine,
        step_model: StepModel,
        drafts: DraftPolicy,
        acceptance: RoundAcceptance | None,
        seed: int,
    ) -> None:
        state, self._rules, self._log, _ = prepared(
            requests, engine, step_model, drafts, acceptance, None, seed, False
        )
        self._requests = requests
        # What belongs to a request is put into its place when it is given.
        self._hashes, self._first_hash = state.hashes, state.first_hash
        self._first_private = state.first_private
        state.requests["arrival"] = np.inf
        self._state = state._replace(
            hashes=state.hashes.copy(),
            first_hash=np.zeros_like(state.first_hash),
            first_private=state.first_private.copy(),
        )
        self.given = 0

    def give(self, request: int) -> None:
        """It arrives at the time of the workload; call by rising index."""
        state, place = self._state, self.given
        own = state.requests
        own["arrival"][place] = self._requests.arrival_s[request]
        own["number"][place] = request
        own["prompt"][place] = self._requests.prompt_tokens[request]
        own["output"][place] = self._requests.output_tokens[request]
        state.first_private[place] = self._first_private[request]
        hashes = self._hashes[self._first_hash[request] : self._first_hash[request + 1]]
        first = state.first_hash[place]
        state.hashes[first : first + hashes.size] = hashes
        state.first_hash[place + 1] = first + hashes.size
        self.given += 1

    def outstanding(self, now: float) -> int:
        """Requests that are not done at ``now``; steps that begin before are taken first."""
        self._advance(now)
        given = self._state.requests[: self.given]
        ends = given["last_s"] + given["frontend_s"]
        return int(np.count_nonzero(~(ends <= now)))

    def _advance(self, until: float) -> None:
        if self._state.replica["done"][0] == self.given:
            return
        log = self._log
        while True:
            advance(self._state, self._rules, log, until)
            is_full = log.written[0] == log.steps.shape[0]
            if not is_full and log.written[1] < log.emitted.size - 2:
                return
