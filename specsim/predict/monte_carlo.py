"""Monte Carlo prediction: draws from the law of a block, with intervals.

A long run of independent blocks needs only how often each outcome occurred, so each replicate is
one multinomial draw.  A request of K tokens, and a run of a policy that adapts gamma, draw block
after block, all requests (or chains) at once.

Interval: the estimate is a ratio of totals over independent units (replicates, chains or
requests); its variance is that of the linearised ratio between units, its quantile Student's t
with units - 1 degrees of freedom.  Of few units it would reach below what any total over total can
be, and ends there: at 0, and of tokens per call at 1 where no unit had fewer.  A cost is the mean
given the outcome, as laws hold it.

The same generator state gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from specsim.checks import Floats, InvalidArgumentError, integer
from specsim.cost import Cost
from specsim.intervals import Interval, t_quantile
from specsim.laws import TARGET, BlockLaw
from specsim.predict import renewal
from specsim.schemes.base import plain_decoding
from specsim.schemes.policies import AdaptiveDraft

METHOD = "ratio of totals; linearised variance between independent units; Student's t"
REPLICATES = 32
CHAINS = 256
# Blocks of a long run, which are drawn at once, and of a policy, one after another.
_MOST_BLOCKS = 10**15
_MOST_DRAWN = 10**8
# Requests, each with some numbers in memory; their tokens, and all of them.
_MOST_REQUESTS = 10**7
_LONGEST_REQUEST = 10**6
_MOST_TOKENS = 10**9
_PLAIN = plain_decoding()


@dataclass(frozen=True)
class Simulation:
    """A long run (stationary).

    speedup, tokens_per_call : as in specsim.predict.renewal, each with low and high
    blocks : drawn and counted
    level : of the intervals; ``METHOD`` says how they are made
    """

    speedup: Interval[float]
    tokens_per_call: Interval[float]
    blocks: int
    level: float


@dataclass(frozen=True)
class SimulatedRequests:
    """Requests of exactly so many tokens each; a last block that runs past the end counts whole.

    speedup, tokens_per_call : ratios of totals over all requests, each with low and high
    calls : target runs of each request, shape (requests,)
    cost : of each request in target runs, shape (requests,)
    level : of the intervals; ``METHOD`` says how they are made
    """

    speedup: Interval[float]
    tokens_per_call: Interval[float]
    calls: Floats
    cost: Floats
    level: float


def simulate(
    source: BlockLaw | AdaptiveDraft,
    cost: Cost,
    rng: Generator,
    blocks: int = 1_000_000,
    level: float = 0.95,
    plain: BlockLaw = _PLAIN,
) -> Simulation:
    """A long run of ``blocks`` blocks (rounded up to whole replicates) of a law or a policy.

    A policy runs in ``CHAINS`` chains, whose first quarter is dropped so that the start
    is forgotten; its blocks are those that remain.
    """
    adaptive = isinstance(source, AdaptiveDraft)
    blocks = integer("blocks", blocks, low=1, high=_MOST_DRAWN if adaptive else _MOST_BLOCKS)
    if isinstance(source, BlockLaw):
        renewal.check_cost(source, cost, plain)
        each = -(-blocks // REPLICATES)
        table = _by_outcome(source, cost, plain)
        chances = source.probability / source.probability.sum()
        totals = rng.multinomial(each, chances, size=REPLICATES) @ table
    else:
        each = -(-blocks // CHAINS)
        totals = _sum_chains(_policy_blocks(source, cost, rng, CHAINS), each)
    tokens, calls, spent = totals.T
    return Simulation(
        speedup=_ratio(tokens * _step(cost, plain), spent, level),
        tokens_per_call=_ratio(tokens, calls, level, least=float((tokens >= calls).all())),
        blocks=each * len(totals),
        level=level,
    )


def simulate_requests(
    source: BlockLaw | AdaptiveDraft,
    cost: Cost,
    rng: Generator,
    tokens: int,
    requests: int = 10_000,
    level: float = 0.95,
    plain: BlockLaw = _PLAIN,
) -> SimulatedRequests:
    """``requests`` requests of exactly ``tokens`` tokens each, block after block."""
    tokens = integer("tokens", tokens, low=1, high=_LONGEST_REQUEST)
    requests = integer("requests", requests, low=2, high=_MOST_REQUESTS)
    if tokens * requests > _MOST_TOKENS:
        raise InvalidArgumentError(
            f"tokens * requests must be <= {_MOST_TOKENS:,}, as blocks are drawn one after "
            f"another, got {tokens:,} * {requests:,}"
        )
    if isinstance(source, BlockLaw):
        renewal.check_cost(source, cost, plain)
        draws = _law_blocks(source, cost, rng, requests, plain)
    else:
        draws = _policy_blocks(source, cost, rng, requests)
    totals = np.zeros((requests, 3))
    for block in draws:
        running = totals[:, 0] < tokens
        if not running.any():
            break
        totals += block * running[:, None]
    _, calls, spent = totals.T
    asked = np.full(requests, float(tokens))
    return SimulatedRequests(
        speedup=_ratio(asked * _step(cost, plain), spent, level),
        tokens_per_call=_ratio(asked, calls, level, least=float((asked >= calls).all())),
        calls=calls,
        cost=spent,
        level=level,
    )


def _by_outcome(law: BlockLaw, cost: Cost, plain: BlockLaw) -> Floats:
    """Tokens, target runs and cost of each outcome, shape (O, 3)."""
    calls = law.cost_by_outcome(lambda run: float(run.model == TARGET))
    spent = renewal.cost_by_outcome(law, cost, plain)
    return np.stack([law.tokens.astype(np.float64), calls, spent], axis=1)


def _law_blocks(
    law: BlockLaw, cost: Cost, rng: Generator, units: int, plain: BlockLaw
) -> Iterator[Floats]:
    """One block of every unit after another: tokens, target runs and cost, shape (units, 3)."""
    table = _by_outcome(law, cost, plain)
    upto = np.cumsum(law.probability)[:-1]
    while True:
        yield table[np.searchsorted(upto, rng.random(units), side="right")]


def _policy_blocks(
    source: AdaptiveDraft, cost: Cost, rng: Generator, units: int
) -> Iterator[Floats]:
    """The same for a policy that adapts gamma."""
    policy = source.policy
    falling = -source.acceptance.survival(policy.gamma_max)[1:]
    prices = cost.blocks(policy.gamma_max, source.draft)
    state, first = policy.start()
    state = tuple(np.full(units, part) for part in state)
    gamma = np.full(units, first)
    while True:
        # The first i drafts all stand where u < S_i.
        accepted = np.minimum(np.searchsorted(falling, -rng.random(units)), gamma)
        yield np.stack([accepted + 1.0, np.ones(units), prices[gamma]], axis=1)
        state, gamma = policy.next_gamma(state, accepted, gamma)


def _sum_chains(draws: Iterator[Floats], each: int) -> Floats:
    for _ in range(each // 3):  # a quarter of all that is drawn
        next(draws)
    totals = np.zeros((CHAINS, 3))
    for _ in range(each):
        totals += next(draws)
    return totals


def _step(cost: Cost, plain: BlockLaw) -> float:
    return renewal.cost_per_block(plain, cost, plain)


def _ratio(above: Floats, below: Floats, level: float, least: float = 0.0) -> Interval[float]:
    """Total over total, at ``least`` so much, with the interval of the module's docstring; inf over
    nothing.
    """
    units, total = len(below), float(below.sum())
    quantile = t_quantile(level, units - 1)  # refuses levels that have none
    if not total:
        return Interval(np.inf, np.inf, np.inf)
    value = float(above.sum()) / total
    spread = np.sqrt(units / (units - 1) * np.square(above - value * below).sum())
    reach = float(quantile * spread) / total
    return Interval(max(value - reach, least), value, value + reach)
