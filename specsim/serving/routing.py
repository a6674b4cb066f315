"""Which of several replicas a request goes to.

A router sees what has happened until a request arrives: how many requests of each replica are not
done, and which prompts it was given before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from specsim.checks import Ints, integer, number
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


class Server(Protocol):
    """A replica that can be stopped and goes on."""

    def outstanding(self, now: float) -> int:
        """Its requests that are not done at ``now``, which never falls."""
        ...

    def give(self, request: int) -> None:
        """The next request by rising index, which arrives at the time of the workload."""
        ...


def round_robin(requests: int, replicas: int) -> Ints:
    """(N,) the replicas in turn."""
    return np.arange(requests) % replicas


def route(
    requests: Requests, servers: Sequence[Server], prefix_aware: PrefixAware | None = None
) -> Ints:
    """(N,) the replica of every request, each decided when it arrives.

    Requests go to the replica with the fewest that are not done, the first of them; with
    ``prefix_aware`` by its thresholds.
    """
    split = np.zeros(len(requests), dtype=np.int64)
    known: list[set[int]] = [set() for _ in servers]
    prefix = requests.prefix if prefix_aware is not None else None
    for at, now in enumerate(requests.arrival_s.tolist()):
        waiting = [each.outstanding(now) for each in servers]
        chosen = min(range(len(servers)), key=waiting.__getitem__)
        if prefix is not None and prefix_aware is not None:
            uneven = max(waiting) - min(waiting) > prefix_aware.most_apart and max(
                waiting
            ) > prefix_aware.most_times * min(waiting)
            if not uneven:
                matched = [_matched(prefix, at, each) for each in known]
                best = max(range(len(servers)), key=lambda r: (matched[r], -waiting[r], -r))
                tokens = matched[best] * prefix.block_tokens
                if matched[best] and tokens >= prefix_aware.match * requests.prompt_tokens[at]:
                    chosen = best
            known[chosen].update(prefix.of(at).tolist())
        split[at] = chosen
        servers[chosen].give(at)
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
