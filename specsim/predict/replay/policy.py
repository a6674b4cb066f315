"""Exact replay of a policy that adapts gamma to past acceptances.

The same chain over positions as in ``specsim.predict.replay.fixed_gamma``, with the policy's state
and gamma carried along: probability mass sits on (position, state, gamma), and equal states merge.
A policy of few states costs O(T gamma states); one that counts all it has seen has many, so its
traces should be short requests.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.checks import Floats
from specsim.traces import Trace

if TYPE_CHECKING:
    from specsim.schemes.policies import GammaPolicy

_Place = tuple[Any, int]


@dataclass(frozen=True)
class PolicyReplay:
    """What a policy does on a trace.

    calls : shape (R,), expected target calls of each request
    blocks : shape (gamma_max + 1,), expected blocks of each gamma, over the whole trace
    tokens : of the whole trace
    """

    calls: Floats
    blocks: Floats
    tokens: int

    @property
    def tokens_per_call(self) -> float:
        """Tokens over expected calls, over the whole trace."""
        return self.tokens / float(self.calls.sum())


def replay_policy(trace: Trace, policy: GammaPolicy) -> PolicyReplay:
    """Expected calls of every request, each of which starts the policy anew."""
    trace.require_model("an adaptive draft length")

    @cache
    def following(state: Any, accepted: int, gamma: int) -> _Place:
        after, length = policy.next_gamma(state, accepted, gamma)
        return tuple(after), int(length)

    calls = np.zeros(trace.requests)
    blocks = np.zeros(policy.gamma_max + 1)
    for request, row in enumerate(trace.rows()):
        acceptance = row.tolist()
        size = len(acceptance)
        # mass[s]: where blocks start that start at s, by the policy's place.
        mass: list[dict[_Place, float]] = [defaultdict(float) for _ in range(size)]
        mass[0][policy.start()] = 1.0
        for position, places in enumerate(mass):
            for (state, gamma), probability in places.items():
                calls[request] += probability
                blocks[gamma] += probability
                alive = probability
                for accepted in range(gamma + 1):
                    end = position + accepted + 1
                    if end >= size or alive == 0.0:
                        break
                    stop = 1.0 if accepted == gamma else 1.0 - acceptance[end - 1]
                    if stop:
                        mass[end][following(state, accepted, gamma)] += alive * stop
                    alive *= 1.0 - stop
            places.clear()
    return PolicyReplay(calls, blocks, trace.tokens)
