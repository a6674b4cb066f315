"""Which of several replicas a request goes to.

A router sees what has happened until a request arrives: how many requests of each replica are not
done, and which prompts it was given before.  What happens depends in turn on where requests went.
Both together are found by repetition: guess the split, serve every replica, take all decisions
again from what came out, until none changes.  A decision rests on nothing but earlier ones, so
each repetition makes at least one more right, and what no longer changes is what a router that
decides as requests arrive would have done.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from specsim.checks import Floats, Ints, check_choice, integer, number
from specsim.serving.requests import PrefixBlocks, Requests

Routing = Literal["round-robin", "least-outstanding", "prefix-aware"]
ROUTINGS: tuple[Routing, ...] = ("round-robin", "least-outstanding", "prefix-aware")


@dataclass(frozen=True)
class PrefixAware:
    """Thresholds of cache-aware routing, by default those of lightseekorg/smg
    (docs/concepts/routing/cache-aware.md: ``--cache-threshold``, ``--balance-abs-threshold``,
    ``--balance-rel-threshold``).

    A request goes to the replica that was given the longest prefix of its prompt, if that is at
    least ``match`` of it.  It goes to the one with the fewest requests that are not done where no
    prefix is so long, and where the most of any replica is more than ``most_apart`` above, and more
    than ``most_times``, the fewest of any.  What a replica's cache has forgotten the router does
    not know.
    """

    match: float = 0.3
    most_apart: int = 64
    most_times: float = 1.5

    def __post_init__(self) -> None:
        number("match", self.match, low=0.0, high=1.0)
        integer("most_apart", self.most_apart)
        number("most_times", self.most_times, low=1.0)


def route(
    requests: Requests,
    replicas: int,
    routing: Routing,
    departures: Callable[[Ints], Floats],
    prefix_aware: PrefixAware | None = None,
) -> Ints:
    """(N,) the replica of every request.

    departures : seconds at which each request is done, from such a split; of a request, it must
        depend only on earlier ones
    """
    check_choice("routing", routing, ROUTINGS)
    integer("replicas", replicas, low=1)
    split = np.arange(len(requests)) % replicas
    if routing == "round-robin" or replicas == 1:
        return split
    settings = (prefix_aware or PrefixAware()) if routing == "prefix-aware" else None
    while True:
        decided = decisions(requests, replicas, departures(split), settings)
        if (decided == split).all():
            return split
        split = decided


def decisions(
    requests: Requests, replicas: int, done_s: Floats, prefix_aware: PrefixAware | None = None
) -> Ints:
    """(N,) where each request goes, in order, if requests are done at ``done_s``.

    To the replica with the fewest requests that are not done, the first of them; with
    ``prefix_aware`` by its thresholds.
    """
    split = np.zeros(len(requests), dtype=np.int64)
    ends: list[list[float]] = [[] for _ in range(replicas)]
    known: list[set[int]] = [set() for _ in range(replicas)]
    prefix = requests.prefix if prefix_aware is not None else None
    for at, now in enumerate(requests.arrival_s.tolist()):
        for each in ends:
            while each and each[0] <= now:
                heapq.heappop(each)
        waiting = [len(each) for each in ends]
        chosen = min(range(replicas), key=waiting.__getitem__)
        if prefix is not None and prefix_aware is not None:
            uneven = max(waiting) - min(waiting) > prefix_aware.most_apart and max(
                waiting
            ) > prefix_aware.most_times * min(waiting)
            if not uneven:
                matched = [_matched(prefix, at, each) for each in known]
                best = max(range(replicas), key=lambda r: (matched[r], -waiting[r], -r))
                tokens = matched[best] * prefix.block_tokens
                if matched[best] and tokens >= prefix_aware.match * requests.prompt_tokens[at]:
                    chosen = best
            known[chosen].update(prefix.of(at).tolist())
        split[at] = chosen
        heapq.heappush(ends[chosen], float(done_s[at]))
    return split


def _matched(prefix: PrefixBlocks, request: int, known: set[int]) -> int:
    """Leading blocks of a request that were given to a replica before."""
    found = 0
    for each in prefix.of(request).tolist():
        if each not in known:
            break
        found += 1
    return found


def parts(split: Ints, replicas: int) -> list[Ints]:
    """The requests of each replica, by rising index."""
    return [np.flatnonzero(split == replica) for replica in range(replicas)]
