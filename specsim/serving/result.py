"""What a simulated replica did: its requests, its steps, its rounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specsim.checks import Floats, Ints
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.requests import Requests

# A queue that grows: in the last quarter of the time in which requests arrive it is longer than in
# the second by half and by this share of all requests.
_GROWTH, _SHARE = 1.5, 0.02
# Of requests that are served: as many standard deviations of a Poisson number as chance does not
# explain, and so much of the growth on either side of the third quarter, of which a steady one has
# half on each.
_CHANCE, _STEADY = 3.0, 0.25


@dataclass(frozen=True, eq=False)
class Steps:
    """S steps in order.

    start_s : when the step began to keep the replica busy
    seconds : how long it did; the host's work is in it as far as the device waited
    parts : seconds of each part, those of the host whole
    sequences, decodes : requests in the step, and those of them that decoded
    prefill_tokens, verified_tokens : what the target read
    emitted_tokens : what came out at its end
    gamma : drafts that were made for each request, in vLLM at its end for the next one; 1 at most
        in a step of SGLang that reads prompts, which has one run of the drafter
    used_blocks : of the cache, after it was scheduled
    running, waiting, preempted : requests, after it was scheduled; those preempted by it
    eager : whether no graph held it
    """

    start_s: Floats
    seconds: Floats
    parts: dict[str, Floats]
    sequences: Ints
    decodes: Ints
    prefill_tokens: Ints
    verified_tokens: Ints
    emitted_tokens: Ints
    gamma: Ints
    used_blocks: Ints
    running: Ints
    waiting: Ints
    preempted: Ints
    eager: Ints

    def __len__(self) -> int:
        return self.start_s.size

    @property
    def end_s(self) -> Floats:
        """When the step was over; (S,)."""
        return self.start_s + self.seconds


@dataclass(frozen=True, eq=False)
class RoundLog:
    """R rounds in order of time: every step of a request that emitted tokens, the first one of its
    prompt included.

    request, step, tokens : (R,)
    end_s : when the tokens came, (R,)
    """

    request: Ints
    step: Ints
    tokens: Ints
    end_s: Floats


@dataclass(frozen=True, eq=False)
class ServingRun:
    """N requests through one replica.

    arrival_s : when each came; in a closed loop when the one before it was done
    scheduled_s, first_token_s, last_token_s : when each first ran, and when tokens came
    rounds : steps that emitted tokens of each
    preemptions : how often each was thrown out
    cached_tokens : tokens of the prompt that were in the cache when it first ran
    steps, round_log : where they were kept
    free_blocks : of the cache, when all requests were done
    makespan_s, busy_s : until the last token; and how much of that the replica had work
    queue_grew : whether more arrived than could be served, so that latencies only tell how long
        this went on (``queue_grew``)
    """

    requests: Requests
    engine: ServingEngine
    drafts: DraftPolicy
    acceptance: str
    seed: int
    concurrency: int | None
    arrival_s: Floats
    scheduled_s: Floats
    first_token_s: Floats
    last_token_s: Floats
    rounds: Ints
    preemptions: Ints
    cached_tokens: Ints
    step_count: int
    free_blocks: int
    busy_s: float
    queue_grew: bool
    steps: Steps | None
    round_log: RoundLog | None

    @property
    def ttft_s(self) -> Floats:
        """Arrival to first token; (N,)."""
        return self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> Floats:
        """Arrival to last token; (N,)."""
        return self.last_token_s - self.arrival_s

    @cached_property
    def tpot_s(self) -> Floats:
        """Seconds for each token after the first; nan where there is none; (N,)."""
        more = self.requests.output_tokens - 1
        decoding = self.last_token_s - self.first_token_s
        found: Floats = np.full(more.size, np.nan)
        np.divide(decoding, more, out=found, where=more > 0)
        return found

    @property
    def makespan_s(self) -> float:
        """First arrival to last token."""
        return float(self.last_token_s.max() - self.arrival_s.min())

    @property
    def requests_per_s(self) -> float:
        """Over the makespan."""
        return len(self.requests) / self.makespan_s

    @property
    def output_tokens_per_s(self) -> float:
        """Over the makespan."""
        return float(self.requests.output_tokens.sum()) / self.makespan_s


def queue_grew(arrival_s: Floats, scheduled_s: Floats, done_s: Floats) -> bool:
    """Whether fewer were served than came, from the second to the last quarter of arrivals.

    Requests that wait tell it and, where all are scheduled at once, those that are not done.  Of
    these there are more and more in any run, too, that is not much longer than a request stays,
    wherever the rate rises, and by chance.  So their number must have grown beyond that, before the
    third quarter and after it, and each of them must be done in a second with a smaller chance than
    before, by the same factor.
    """
    begin, end = float(arrival_s[0]), float(arrival_s[-1])
    if end <= begin:
        return False
    times = np.linspace(begin, end, 401)[1:]
    came, scheduled, done = (
        np.searchsorted(np.sort(each), times, side="right")
        for each in (arrival_s, scheduled_s, done_s)
    )
    least = _SHARE * arrival_s.size
    _, second, _, last = _quarters(came - scheduled)
    if last > _GROWTH * second and last - second > least:
        return True
    _, second, third, last = _quarters(came - done)
    growth = last - second
    if last <= _GROWTH * second or growth <= max(least, _CHANCE * last**0.5):
        return False
    if min(third - second, last - third) < _STEADY * growth:
        return False
    early, late = int(done[199] - done[99]), int(done[399] - done[299])
    return bool(_GROWTH * late * second < early * last)


def _quarters(counts: Ints) -> list[float]:
    """Means of the four quarters of 400 counts."""
    return [float(each) for each in counts.reshape(4, 100).mean(axis=1)]
