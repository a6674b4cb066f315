"""What one round emits (compiled), and random numbers that belong to a request or a step."""

from __future__ import annotations

import numpy as np

from specsim.serving.acceptance import LAW, TRACE, CompiledAcceptance
from specsim.serving.compiled import compiled

# Added to the number of a request: whose the random numbers of steps are.
STEPS = 2**62
# In the place of a round of a request: its random number outside of steps.
FRONTEND = 2**62


@compiled
def uniform(seed: int, request: int, index: int) -> float:
    """A number in [0, 1) that belongs to three numbers: SplitMix64's mixing, once for each."""
    state = np.uint64(seed)
    for word in (np.uint64(request), np.uint64(index)):
        state = state + np.uint64(0x9E3779B97F4A7C15) + word
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return float(state >> np.uint64(11)) * 2.0**-53


@compiled
def emitted_tokens(
    acceptance: CompiledAcceptance, seed: int, request: int, index: int, position: int, drafts: int
) -> int:
    """Tokens of a round, 1..drafts + 1.

    index : rounds that the request had before
    position : tokens that it had emitted before
    """
    if drafts == 0:
        return 1
    if acceptance.kind == LAW:
        draw = uniform(seed, request, index)
        row = (drafts - 1) * acceptance.positions
        count = 1
        while count <= drafts and draw < acceptance.values[row + count - 1]:
            count += 1
        return count
    source = acceptance.sources[request]
    first = acceptance.starts[source]
    length = acceptance.starts[source + 1] - first
    if acceptance.kind == TRACE:
        count = 1
        while count <= drafts:
            token = position + count - 1
            if uniform(seed, request, token) >= acceptance.values[first + token % length]:
                break
            count += 1
        return count
    return min(int(acceptance.values[first + position % length]), drafts + 1)
