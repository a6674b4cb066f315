"""Exact replay of a policy that adapts gamma to past acceptances.

The same chain over positions as in ``specsim.predict.replay.fixed_gamma``, with the policy's state
and gamma carried along: probability mass sits on (position, state, gamma), and equal states merge.
A policy of few states costs O(T gamma states); one that counts all it has seen has as many as the
square of the position, so that the work grows with the cube of a request.  Where that is too much,
chains are drawn instead (``draw_policy``), in time linear in the text: whether a draft stands is
drawn once for every position of a chain, since no two blocks of it test the same one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.checks import Floats, Ints
from specsim.traces import Trace

if TYPE_CHECKING:
    from specsim.schemes.policies import GammaPolicy

_Place = tuple[Any, int]

# Chains that are drawn at once, of each request at least and at most so many, and the positions
# that they hold.
_CHAINS = 4096
_FEWEST, _MOST = 2, 256
_POSITIONS = 2**24


@dataclass(frozen=True)
class PolicyReplay:
    """What a policy does on a trace.

    calls : shape (R,), expected target calls of each request
    blocks : shape (gamma_max + 1,), expected blocks of each gamma, over the whole trace
    tokens : of the whole trace
    error : standard error of all calls as a share of them, where chains were drawn; 0: exact
    """

    calls: Floats
    blocks: Floats
    tokens: int
    error: float = 0.0

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


def exact_work(trace: Trace) -> float:
    """How much ``replay_policy`` has to do for a policy that counts all it has seen, in places of a
    chain: the cube of each request, as far as its drafts may stand or not.
    """
    is_open = (trace.acceptance > 0) & (trace.acceptance < 1)
    count = np.add.reduceat(is_open.astype(np.float64), trace.starts[:-1])
    return float(trace.lengths @ (1.0 + count**2))


def draw_policy(trace: Trace, policy: GammaPolicy, seed: int = 0) -> PolicyReplay:
    """The same from drawn chains: expected calls with a standard error, in linear time."""
    trace.require_model("an adaptive draft length")
    room = min(_CHAINS // trace.requests, _POSITIONS // int(trace.lengths.max()))
    chains = int(np.clip(room, _FEWEST, _MOST))
    random = np.random.default_rng(seed)
    calls, variance = np.zeros(trace.requests), np.zeros(trace.requests)
    blocks = np.zeros(policy.gamma_max + 1)
    for some in _groups(trace, chains):
        counted, drafted = _walk(trace, some, policy, chains, random)
        calls[some] = counted.mean(axis=1)
        variance[some] = counted.var(axis=1, ddof=1) / chains
        blocks += np.bincount(drafted, minlength=blocks.size) / chains
    error = float(np.sqrt(variance.sum()) / calls.sum())
    return PolicyReplay(calls, blocks, trace.tokens, error)


def _groups(trace: Trace, chains: int) -> Iterator[slice]:
    """Neighbouring requests whose chains go together, at least one."""
    first = 0
    while first < trace.requests:
        last, longest = first + 1, int(trace.lengths[first])
        while last < trace.requests:
            longest = max(longest, int(trace.lengths[last]))
            units = (last + 1 - first) * chains
            if units > _CHAINS or units * longest > _POSITIONS:
                break
            last += 1
        yield slice(first, last)
        first = last


def _walk(
    trace: Trace, some: slice, policy: GammaPolicy, chains: int, random: np.random.Generator
) -> tuple[Floats, Ints]:
    """Calls of every chain of some requests, shape (requests, chains), and the gammas of blocks."""
    lengths = trace.lengths[some]
    ends = np.repeat(lengths, chains)
    # Where the first draft from a position on is that does not stand; behind the end none does.
    falls = np.empty((ends.size, int(lengths.max()) + 1), dtype=np.int32)
    falls[:] = np.arange(falls.shape[1])
    for at, number in enumerate(range(some.start, some.stop)):
        row = trace.acceptance[trace.starts[number] : trace.starts[number + 1]]
        for chain in range(at * chains, (at + 1) * chains):
            falls[chain, : row.size][random.random(row.size) < row] = falls.shape[1]
    falls = np.minimum.accumulate(falls[:, ::-1], axis=1)[:, ::-1]
    units = np.arange(ends.size)
    where, calls = np.zeros(ends.size, dtype=np.int64), np.zeros(ends.size)
    state, first = policy.start()
    state = tuple(np.full(ends.size, part) for part in state)
    gamma = np.full(ends.size, first)
    drafted = []
    while units.size:
        calls[units] += 1
        drafted.append(gamma)
        accepted = np.minimum(falls[units, where] - where, gamma)
        where = where + accepted + 1
        state, gamma = policy.next_gamma(state, accepted, gamma)
        inside = where < ends[units]
        units, where, gamma = units[inside], where[inside], np.asarray(gamma)[inside]
        state = tuple(np.asarray(part)[inside] for part in state)
    return calls.reshape(-1, chains), np.concatenate(drafted).astype(np.int64)
