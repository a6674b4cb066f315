"""What a log says of every request: when it came, how long it was, when its tokens came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from specsim.checks import Floats, Ints
from specsim.serving.comparison import LatencySample, samples_of
from specsim.serving.metrics import RequestTimes
from specsim.serving.requests import Requests, WorkloadError


@dataclass(frozen=True, eq=False)
class RequestLog:
    """N requests in the order of their arrival, the first at 0 seconds.

    format : the reader's name for it
    requests : when each came, and its lengths
    first_token_s, last_token_s, scheduled_s : (N,) on the clock of the arrivals; None where the
        log does not tell
    itl_s, itl_request : (G,) gaps between chunks, and whose they are; None likewise
    names : (N,) what the log calls each
    places : (N,) of each in the order in which they are in the file; None: that is no order
    sent : how many it has, with those that are left out, where it has an order
    missing : latencies that the log does not tell, and why
    notes : what a reader should know, one sentence each
    """

    format: str
    requests: Requests
    first_token_s: Floats | None
    last_token_s: Floats | None
    names: tuple[str, ...]
    scheduled_s: Floats | None = None
    itl_s: Floats | None = None
    itl_request: Ints | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    places: Ints | None = None
    sent: int = 0

    @property
    def samples(self) -> dict[str, LatencySample]:
        """Of every latency that the log tells."""
        arrival = self.requests.arrival_s
        unknown = np.full(arrival.size, np.nan)
        times = RequestTimes(
            arrival,
            unknown if self.first_token_s is None else self.first_token_s,
            unknown if self.last_token_s is None else self.last_token_s,
            self.requests.output_tokens,
            np.zeros(0) if self.itl_s is None else self.itl_s,
            np.zeros(0, np.int64) if self.itl_request is None else self.itl_request,
        )
        return samples_of(times, self.scheduled_s)


def check_order(
    places: Sequence[str],
    arrival: Floats,
    scheduled: Floats | None,
    first: Floats | None,
    last: Floats | None,
) -> None:
    """Refuse a request whose tokens come before it does; None is not known."""
    before, name = arrival, "arrival"
    for moment, words in ((scheduled, "start"), (first, "first token"), (last, "last token")):
        if moment is None:
            continue
        wrong = np.flatnonzero(moment < before)
        if wrong.size:
            at = int(wrong[0])
            raise WorkloadError(
                f"{places[at]}: its {words} is {before[at] - moment[at]:g} s before its {name}"
            )
        before, name = moment, words
