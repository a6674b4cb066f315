"""Exact replay: expected target calls for every gamma from one trace, with no model in the loop.

Conditional on the output text x, speculative decoding is a Markov chain over positions: a block
that starts at s has its token at s accepted with probability a_s = min(1, q(x_s)/p(x_s)),
independently of the rest, since P(draft accepted, token = x) = min(p, q)(x) and
P(output = x) = p(x).  On a rejection at position t the recovered token is x_t and the next block
starts at t + 1; after gamma acceptances the bonus token has no acceptance of its own.  With u_s
the probability that a block starts at s, u_0 = 1 and

    u_{s+n+1}     += u_s a_s ... a_{s+n-1} (1 - a_{s+n})    for n < gamma
    u_{s+gamma+1} += u_s a_s ... a_{s+gamma-1}.

That is a unit lower triangular system with gamma + 2 diagonals, solved in O(T gamma) by one
banded BLAS call for all requests at once, in chunks that stay in cache.  Calls are counted for a
request exactly as long as the trace: a last block that runs past the end counts as one call.

Prompt lookup drafts what the text before the block says, so the text decides everything: a block
that starts at s has min(matched_s, gamma) drafts accepted, at any temperature, and u is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats, Ints, integer
from specsim.traces import Trace

# Rows of the banded system solved at once.
CHUNK_TOKENS = 1 << 12


@dataclass(frozen=True)
class Replay:
    """What one gamma does on a trace.

    gamma : draft tokens per target call
    starts : shape (T,), probability that a block starts at this position
    bonus : shape (T,), probability that a block starts here after a bonus token
    calls : shape (R,), expected target calls of each request
    lengths : shape (R,), tokens of each request
    """

    gamma: int
    starts: Floats
    bonus: Floats
    calls: Floats
    lengths: Ints

    @property
    def total_calls(self) -> float:
        return float(self.calls.sum())

    @property
    def tokens_per_call(self) -> float:
        """Tokens over expected calls, over the whole trace."""
        return float(self.lengths.sum() / self.calls.sum())


def replay(trace: Trace, gammas: Sequence[int]) -> list[Replay]:
    """Expected calls for each gamma; gamma 0 is plain decoding, one call a token."""
    asked = [integer("gamma", gamma) for gamma in gammas]
    if trace.by_lookup:
        return [_walk(trace, gamma) for gamma in asked]
    # No block reaches past its request, so a longer draft than that changes nothing.
    longest = int(trace.lengths.max())
    wanted = sorted({min(gamma, longest) for gamma in asked})
    halo = wanted[-1] + 1
    # Rows past the end, so that the last chunk has a halo too; nothing flows into them.
    acceptance = np.concatenate([trace.acceptance, np.zeros(halo)])
    remaining = np.concatenate([remaining_tokens(trace), np.zeros(halo, dtype=np.int64)])
    starts = {gamma: np.zeros(trace.tokens + halo) for gamma in wanted}
    bonus = {gamma: np.zeros(trace.tokens + halo) for gamma in wanted}
    for gamma in wanted:
        starts[gamma][trace.starts[:-1]] = 1.0
    for first in range(0, trace.tokens, CHUNK_TOKENS):
        size = min(CHUNK_TOKENS, trace.tokens - first)
        window = slice(first, first + size + halo)
        solve(
            acceptance[window],
            remaining[window],
            size,
            {gamma: starts[gamma][window] for gamma in wanted},
            {gamma: bonus[gamma][window] for gamma in wanted},
        )
    calls = {
        gamma: np.add.reduceat(starts[gamma][: trace.tokens], trace.starts[:-1]) for gamma in wanted
    }
    return [
        Replay(
            gamma=gamma,
            starts=starts[min(gamma, longest)][: trace.tokens],
            bonus=bonus[min(gamma, longest)][: trace.tokens],
            calls=calls[min(gamma, longest)],
            lengths=trace.lengths,
        )
        for gamma in asked
    ]


def block_survival(trace: Trace, replayed: Replay) -> Floats:
    """S_0..S_gamma of the blocks that a replay starts, shape (gamma + 1,): how many of them have
    their first i drafts accepted; behind the end of a request none is.

    Blocks start behind rejections, so these are less than the means over all places of the text.
    """
    curve = np.ones(replayed.gamma + 1)
    if trace.by_lookup:
        stood = trace.columns["matched"]
        for length in range(1, replayed.gamma + 1):
            curve[length] = replayed.starts @ (stood >= length) / replayed.total_calls
        return curve
    alive, remaining = replayed.starts.copy(), remaining_tokens(trace)
    for length in range(1, replayed.gamma + 1):
        inside = np.flatnonzero(remaining >= length)
        alive[remaining < length] = 0.0
        alive[inside] *= trace.acceptance[inside + length - 1]
        curve[length] = alive.sum() / replayed.total_calls
    return curve


def drafted_tokens(trace: Trace, gamma: int) -> Ints:
    """Tokens that a block drafts which starts at each position, shape (T,): gamma, or of a lookup
    as many as it finds of them; what the end of a request leaves no room for counts too.
    """
    if not trace.by_lookup:
        return np.full(trace.tokens, gamma)
    return np.asarray(np.minimum(trace.columns["found"], gamma), dtype=np.int64)


def _walk(trace: Trace, gamma: int) -> Replay:
    """Blocks of a lookup from start to start, all requests at once."""
    drafted, matched = drafted_tokens(trace, gamma), trace.columns["matched"].astype(np.int64)
    starts, bonus = np.zeros(trace.tokens), np.zeros(trace.tokens)
    at, ends = trace.starts[:-1], trace.starts[1:]
    whole = np.zeros(trace.requests)
    while at.size:
        starts[at], bonus[at] = 1.0, whole
        accepted = np.minimum(matched[at], gamma)
        whole = (accepted == drafted[at]) & (accepted > 0)
        at = at + accepted + 1
        inside = at < ends
        at, ends, whole = at[inside], ends[inside], whole[inside]
    calls = np.add.reduceat(starts, trace.starts[:-1])
    return Replay(gamma, starts, bonus, calls, trace.lengths)


def remaining_tokens(trace: Trace) -> Ints:
    """Tokens from each position to the end of its request, that position included, shape (T,)."""
    return np.repeat(trace.starts[1:], trace.lengths) - np.arange(trace.tokens)


def solve(
    acceptance: Floats,
    remaining: Ints,
    size: int,
    starts: dict[int, Floats],
    bonus: dict[int, Floats],
) -> None:
    """Solve ``size`` rows in place; ``starts`` holds what flows in, and gets the halo's inflow."""
    from scipy.linalg.blas import dtbsv

    halo = len(acceptance) - size
    # band[k, s] is minus the probability that the block after one starting at s starts at s + k.
    band = np.zeros((halo + 1, len(acceptance)), order="F")
    alive = np.zeros(len(acceptance))  # the first n draft tokens of a block at s are accepted
    alive[:size] = 1.0
    for n in range(halo):
        inside = remaining > n + 1
        if n in starts:
            band[n + 1] = np.where(inside, -alive, 0.0)
            u = dtbsv(n + 1, band[: n + 2], starts[n], lower=1, diag=1)
            bonus[n][n + 1 :] -= (u * band[n + 1])[: -n - 1]
            starts[n][:] = u
        rejected = np.zeros(len(acceptance))
        rejected[: len(acceptance) - n] = 1 - acceptance[n:]
        band[n + 1] = np.where(inside, -alive * rejected, 0.0)
        alive = np.where(inside, alive * (1 - rejected), 0.0)


def replay_calls_law(acceptance: Floats, gamma: int) -> Floats:
    """P(calls = j), j = 0..T, of one request with these acceptances, shape (T + 1,).

    The same recursion, with the number of blocks so far as a second index: per-request latency
    percentiles follow.
    """
    gamma, size = integer("gamma", gamma), len(acceptance)
    law = np.zeros(size + 1)
    mass = np.zeros(size)
    mass[0] = 1.0
    for call in range(1, size + 1):
        following = np.zeros(size + 1)  # where the next block starts; index size is the end
        alive = mass  # indexed by the block's start: its first n draft tokens are accepted
        for n in range(min(gamma, size)):
            alive = alive[: size - n]
            following[n + 1 :] += alive * (1 - acceptance[n:])
            alive = alive * acceptance[n:]
        following[gamma + 1 :] += alive[: max(size - gamma, 0)]
        law[call] = max(mass.sum() - following[:size].sum(), 0.0)
        mass = following[:size]
    return law
