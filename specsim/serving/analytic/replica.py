"""One replica under load, analytically: capacity, and what its users see at a rate.

The engine is a state-dependent processor-sharing server (``sharing``): n requests that decode make
a step of tau(n) seconds (``step_times``), and each needs J of them (``rounds``).  So

    c(n) = n / (E[J] tau(n))           requests per second that complete
    mean TPOT = E[n] / (lambda E[J]) E[J(m) / m],   m tokens after the first.

Exact in the limit of many short steps, Poisson arrivals and a cap that is never reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from specsim.checks import Floats, Ints, UnsupportedError, number, significant
from specsim.serving.analytic.estimate import Estimate, estimate_of
from specsim.serving.analytic.offered import Offered
from specsim.serving.analytic.rounds import RoundCounts
from specsim.serving.analytic.sharing import Shared
from specsim.serving.analytic.step_times import StepTimes
from specsim.serving.levels import ServiceLevel

_LEAST = 1e-12
# The most requests in service that states are kept of.
MOST = 4096


@dataclass(frozen=True, eq=False)
class Replica:
    """One replica, ready to be asked at any rate.

    times : of its steps; their ``cap`` is the most requests in service
    gammas : draft length with n = 0..cap requests in a step, shape (cap + 1,)
    laws : the law of the rounds of every draft length in ``gammas``
    offered : the workload
    binds : what sets the cap: "sequences" (max_num_seqs), "cache" or "budget"
    frontend_s, frontend_decode_s, frontend_prompt_s : of every request outside of all steps, as of
        ``StepModel``
    late : whether a step is made before the one before it is over, as asynchronous scheduling does:
        prompts come a step later, and a request that is done may be in one step more
    cuts_prompts : whether some take more steps than they need, at a threshold
        (long_prefill_token_threshold)
    """

    times: StepTimes
    gammas: Ints
    laws: Callable[[int], RoundCounts]
    offered: Offered
    binds: str = "sequences"
    frontend_s: float = 0.0
    frontend_decode_s: float = 0.0
    frontend_prompt_s: float = 0.0
    late: bool = False
    cuts_prompts: bool = False

    @cached_property
    def _rounds(self) -> Floats:
        """E[J] over the requests, in which a request is in service, at n = 1..cap."""
        later = self.offered.output_tokens - 1

        @cache
        def of(gamma: int) -> float:
            law = self.laws(gamma)
            mean = float(law.mean(later).mean())
            if self.late and gamma:
                # In flight already when the last tokens come, unless one token alone was missing,
                # which a step surely emits.
                mean += (1.0 - 1.0 / law.tokens_per_call) * float((later > 1).mean())
            return mean

        return np.array([of(int(gamma)) for gamma in self.gammas[1:]])

    def step_s(self, rate: float) -> Floats:
        """tau(n) at n = 1..cap, seconds, shape (cap,)."""
        if rate not in self._seconds:
            self._seconds[rate] = self.times.mean_s(rate)
        return self._seconds[rate]

    @cached_property
    def _seconds(self) -> dict[float, Floats]:
        return {}

    def completions(self, rate: float) -> Floats:
        """c(n) at n = 1..cap with prompts coming at ``rate``, requests per second, shape (cap,)."""
        seconds, rounds = self.step_s(rate), self._rounds
        if not rounds.any():  # single tokens: all is done when the prompt is read
            return np.full(self.times.cap, np.inf)
        counts = np.arange(1, self.times.cap + 1)
        # Where prompts leave no time none completes, or as good as none.
        found: Floats = np.maximum(counts / (rounds * seconds), _LEAST)
        return found

    @cached_property
    def capacity(self) -> float:
        """The rate beyond which the queue grows for ever, requests per second."""

        # There a step of all has cap / E[J] new requests in the mean.
        rounds, cap = float(self._rounds[-1]), self.times.cap
        if not rounds:
            return 1.0 / self.read_s(1)
        mean = cap / rounds
        return mean / self.times.full_s(mean)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second at the capacity."""
        return self.capacity * self.offered.mean_output

    def shared(self, rate: float) -> Shared:
        """The stationary law; UnsupportedError beyond the capacity."""
        return Shared(rate, self.completions(rate))

    def crowded(self, rate: float, places: int) -> float:
        """The share of the time in which more than so many requests have a place.

        Those that decode have one, and those whose prompts are read in the same step, a Poisson
        number; where a step is made before the one before it is over, so have as many more that are
        done, until the step in which they ended is looked at.
        """
        from scipy.special import pdtrc  # loads scipy

        came = rate * np.concatenate([[self.read_s(1)], self.step_s(rate)])
        left = places - np.arange(came.size)
        more = pdtrc(np.maximum(left, 0), (2.0 if self.late else 1.0) * came)
        more = np.where(left >= 0, more, 1.0)
        return float(self.shared(rate).in_service @ more)

    def mean_tpot_s(self, rate: float) -> float:
        """Mean seconds of a token after the first; nan where no request has one.

        A request that is one of n takes q(n) tau(n) seconds a token, with q(n) the mean of
        E[J(m)] / m over the requests, at every n that it meets while it is served.
        """
        later = self.offered.output_tokens - 1
        later = later[later > 0]
        if not later.size:
            return float("nan")

        @cache
        def rounds_per_token(gamma: int) -> float:
            return float((self.laws(gamma).mean(later) / later).mean())

        rounds = np.array([rounds_per_token(int(gamma)) for gamma in self.gammas[1:]])
        seen = self.shared(rate).seen_in_service[1:]
        return 1.0 / float((seen / (rounds * self.step_s(rate))).sum())

    def at(self, rate: float, levels: Sequence[ServiceLevel] = ()) -> Estimate:
        """What users see at ``rate`` requests per second.

        Raises UnsupportedError beyond the capacity, where latencies only tell how long that lasts.
        """
        if number("rate", rate, low=0.0) >= self.capacity:
            raise UnsupportedError(
                f"rate {significant(rate)} requests per second is beyond the capacity of a "
                f"replica, {significant(self.capacity)}: the queue grows for ever"
            )
        return estimate_of(self, rate, levels)

    def read_s(self, count: int) -> float:
        """Seconds of reading the prompts of ``count`` requests with nothing else in the step."""
        return float(self.times.of_prompts[0, count])
