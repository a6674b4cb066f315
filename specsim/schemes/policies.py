"""Policies of an adaptive gamma: the next block's gamma follows from what was accepted so far.

A policy says the rule and nothing else; replay and Monte Carlo take any policy, and a rule whose
only state is gamma has an exact stationary law under independent blocks, by the Markov chain over
gamma.

The whole protocol (``GammaPolicy``): ``start()`` gives the state and gamma of a request's first
block; ``next_gamma(state, accepted, gamma)`` the state and gamma of the block after one that
drafted ``gamma`` tokens of which ``accepted`` stood.  gamma stays in 0..``gamma_max``.  A state is
a tuple of numbers (maybe empty), equal states are equal futures, and ``next_gamma`` is elementwise:
it takes numbers or arrays alike, so one call serves many requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from specsim.acceptance import Acceptance
from specsim.checks import Floats, integer, number, probability
from specsim.cost import block_cost
from specsim.schemes.fields import settle

State = tuple[Any, ...]

# Draft lengths far beyond use; where every one is tried in every block, fewer.
_LONGEST = 10**6
_LONGEST_TRIED = 10**4
_TRIED_AT_ONCE = 2**20


class GammaPolicy(Protocol):
    """How gamma follows from past acceptances; see the module's docstring."""

    @property
    def gamma_max(self) -> int: ...

    def start(self) -> tuple[State, int]: ...

    def next_gamma(self, state: State, accepted: Any, gamma: Any) -> tuple[State, Any]: ...


@dataclass(frozen=True)
class FixedGamma:
    """The null policy: always the same gamma."""

    gamma: int

    @property
    def gamma_max(self) -> int:
        return self.gamma

    def start(self) -> tuple[State, int]:
        return (), self.gamma

    def next_gamma(self, state: State, accepted: Any, gamma: Any) -> tuple[State, Any]:
        return state, gamma


@dataclass(frozen=True)
class GrowShrink:
    """The heuristic of transformers: gamma + 2 after a block accepted whole, else gamma - 1.

    gamma_start : gamma of a request's first block, in 1..gamma_max
    gamma_max : cap; transformers has none, a stationary law needs one
    """

    gamma_start: int = 20
    gamma_max: int = 64

    def __post_init__(self) -> None:
        gamma_max = integer("gamma_max", self.gamma_max, low=1, high=_LONGEST)
        gamma_start = integer("gamma_start", self.gamma_start, low=1, high=gamma_max)
        settle(self, gamma_start=gamma_start, gamma_max=gamma_max)

    def start(self) -> tuple[State, int]:
        return (), self.gamma_start

    def next_gamma(self, state: State, accepted: Any, gamma: Any) -> tuple[State, Any]:
        grown, shrunk = np.minimum(gamma + 2, self.gamma_max), np.maximum(gamma - 1, 1)
        return state, np.where(np.equal(accepted, gamma), grown, shrunk)[()]


@dataclass(frozen=True)
class EstimateAlpha:
    """The best gamma for alpha as estimated from all blocks so far; at least 1, to keep learning.

    alpha = (weight prior + accepted) / (weight + tested), where a block tests the tokens that it
    accepts and the one that it rejects; gamma maximises
    (1 + alpha + ... + alpha^gamma) / (1 + gamma c) (Leviathan23 Thm 3.8), ties to the smaller.

    c : cost of one draft run in target runs, >= 0
    prior : alpha before anything was seen
    weight : how many tested tokens the prior is worth, > 0
    gamma_max : cap, >= 1
    """

    c: float
    prior: float = 0.7
    weight: float = 4.0
    gamma_max: int = 64

    def __post_init__(self) -> None:
        settle(
            self,
            c=number("c", self.c, low=0.0),
            prior=probability("prior", self.prior),
            weight=number("weight", self.weight, low=np.finfo(float).tiny),
            gamma_max=integer("gamma_max", self.gamma_max, low=1, high=_LONGEST_TRIED),
        )

    def start(self) -> tuple[State, int]:
        return (0, 0), int(self._best(np.float64(self.prior)))

    def next_gamma(self, state: State, accepted: Any, gamma: Any) -> tuple[State, Any]:
        seen, tested = state
        seen, tested = seen + accepted, tested + np.minimum(accepted + 1, gamma)
        alpha = (self.weight * self.prior + seen) / (self.weight + tested)
        return (seen, tested), self._best(alpha)

    def _best(self, alpha: Any) -> Any:
        gammas = np.arange(1, self.gamma_max + 1)
        cost, rates = block_cost(gammas, self.c), np.ravel(alpha)
        found = np.empty(rates.size, dtype=np.int64)
        # Every length is tried for every rate: not all at once.
        rows = max(_TRIED_AT_ONCE // self.gamma_max, 1)
        for first in range(0, rates.size, rows):
            tokens = 1 + np.cumsum(np.power(rates[first : first + rows, None], gammas), axis=-1)
            found[first : first + rows] = np.argmax(tokens / cost, axis=-1) + 1
        return found.reshape(np.shape(alpha))[()]


@dataclass(frozen=True)
class AdaptiveDraft:
    """A policy, and what it acts on: the blocks of a scheme that carries state.

    acceptance : of the draft model's tokens by the target
    draft : name of the draft model
    """

    policy: GammaPolicy
    acceptance: Acceptance
    draft: str


def stationary_gamma(policy: GrowShrink, survival: Floats) -> Floats:
    """Long-run share of blocks at each gamma, shape (gamma_max + 1,).

    A block at gamma is accepted whole with probability S_gamma; the chain has one recurrent
    class, because every state can reach the lowest gamma that may fail.
    """
    size = policy.gamma_max
    gammas = np.arange(1, size + 1)
    whole_blocks = survival[1:]
    step = np.zeros((size, size))
    for accepted, chance in ((gammas, whole_blocks), (np.zeros_like(gammas), 1 - whole_blocks)):
        _, following = policy.next_gamma((), accepted, gammas)
        np.add.at(step, (gammas - 1, following - 1), chance)
    # pi (step - 1) = 0 with one redundant equation replaced by the total.
    system = step.T - np.eye(size)
    system[-1] = 1.0
    share = np.linalg.solve(system, np.append(np.zeros(size - 1), 1.0))
    share = np.maximum(share, 0.0)  # rounding leaves -1e-17 where the chain never is
    return np.append(0.0, share / share.sum())
