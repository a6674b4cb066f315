"""Renewal prediction: what a law of one block says about a long run and about K tokens.

Two kinds of answer, kept apart by name.  *Stationary*: the ratio of means E[tokens] / E[cost] of
an endless run of independent blocks.  *Finite*: expectations for exactly K tokens; the last block
may run past the end, counts as one call and is charged whole.

A block that only does what a step of plain decoding does (no draft run, one token read) has the
overhead of a plain step, not that of a speculative block.  So at gamma = 0 speedup is exactly 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, UnsupportedError, integer
from specsim.cost import Cost
from specsim.laws import TARGET, BlockLaw
from specsim.schemes.base import plain_decoding

_PLAIN = plain_decoding()


@dataclass(frozen=True)
class Stationary:
    """Long-run figures.

    tokens_per_call : tokens per target run; inf where the target is never run
    cost_per_block : mean cost of a block, in target runs, overhead included
    speedup : against plain decoding by the same target on the same cost
    """

    tokens_per_call: float
    cost_per_block: float
    speedup: float


@dataclass(frozen=True)
class Finite:
    """Expectations for exactly ``tokens`` tokens.

    calls : expected target runs
    cost : expected cost in target runs, the last block charged whole
    speedup : cost of plain decoding over expected cost
    """

    tokens: int
    calls: float
    cost: float
    speedup: float


def tokens_per_call(law: BlockLaw) -> float:
    """E[N] / E[target runs of a block], stationary; inf where the target is never run."""
    calls = law.calls(TARGET)
    return law.tokens_per_call / calls if calls else np.inf


def cost_by_outcome(law: BlockLaw, cost: Cost, plain: BlockLaw = _PLAIN) -> Floats:
    """Mean cost of a block given the outcome, in target runs, overhead included; shape (O,)."""
    speculates = np.zeros(law.probability.shape, dtype=bool)
    for run in {**law.runs, **plain.runs}:
        speculates |= law.runs.get(run, 0.0) != plain.runs.get(run, 0.0)
    overhead = np.where(speculates, cost.overhead, cost.plain_overhead)
    return law.cost_by_outcome(cost.price) + overhead


def cost_per_block(law: BlockLaw, cost: Cost, plain: BlockLaw = _PLAIN) -> float:
    """Mean cost of a block in target runs, overhead included."""
    return float(law.probability @ cost_by_outcome(law, cost, plain))


def speedup(law: BlockLaw, cost: Cost, plain: BlockLaw = _PLAIN) -> float:
    """Stationary speedup: E[N] plain steps over E[cost of a block] (Leviathan23 Thm 3.8).

    ``plain`` is what the scheme is compared with: one step of plain decoding, save for beam
    search, whose plain step reads every beam.
    """
    step, spent = cost_per_block(plain, cost, plain), check_cost(law, cost, plain)
    return law.tokens_per_call * step / spent


def check_cost(law: BlockLaw, cost: Cost, plain: BlockLaw = _PLAIN) -> float:
    """``cost_per_block``, which must be more than nothing for a speedup to be a number."""
    spent = cost_per_block(law, cost, plain)
    if not spent > 0:
        raise InvalidArgumentError(
            "c must be > 0 here: a block that runs no target and costs nothing has no speedup"
        )
    return spent


def stationary(law: BlockLaw, cost: Cost, plain: BlockLaw = _PLAIN) -> Stationary:
    """The three long-run figures of a law under a cost."""
    return Stationary(
        tokens_per_call(law), cost_per_block(law, cost, plain), speedup(law, cost, plain)
    )


def finite(law: BlockLaw, cost: Cost, tokens: int, plain: BlockLaw = _PLAIN) -> Finite:
    """Expectations for exactly ``tokens`` tokens.

    Whether another block starts depends on earlier blocks only, so by Wald's identity the
    expected runs and cost are the expected blocks times their means per block.
    """
    blocks = expected_blocks(law, tokens)
    total = blocks * check_cost(law, cost, plain)
    return Finite(
        tokens=tokens,
        calls=blocks * law.calls(TARGET),
        cost=total,
        speedup=tokens * cost_per_block(plain, cost, plain) / total,
    )


def expected_blocks(law: BlockLaw, tokens: int) -> float:
    """sum_{j<K} u_j with u_0 = 1 and u_j = sum_n P(N = n) u_{j-n}: expected blocks for K tokens.

    u_j is the probability that a block starts after exactly j tokens.
    """
    size = integer("tokens", tokens, low=1)
    backwards = _positive_token_law(law)[1:][::-1]
    starts = np.zeros(size)
    starts[0] = 1.0
    for j in range(1, size):
        reach = min(j, backwards.size)
        starts[j] = starts[j - reach : j] @ backwards[-reach:]
    return float(starts.sum())


def calls_law(law: BlockLaw, tokens: int) -> Floats:
    """P(calls = m), m = 0..K, to produce K = ``tokens`` tokens; shape (K + 1,).

    Raises UnsupportedError for a law whose blocks hold any other number of target runs than one.
    """
    size = integer("tokens", tokens, low=1)
    step = _positive_token_law(law)
    if not (law.cost_by_outcome(lambda run: float(run.model == TARGET)) == 1).all():
        raise UnsupportedError("the law of calls needs one target run in every block")
    result = np.zeros(size + 1)
    unfinished = np.ones(1)  # P(tokens so far = j) after m blocks, j < K
    for calls in range(1, size + 1):
        after = np.convolve(unfinished, step)
        result[calls] = after[size:].sum()
        unfinished = after[:size]
    return result


def _positive_token_law(law: BlockLaw) -> Floats:
    step = law.token_law()
    if step[0] > 0:
        raise InvalidArgumentError("a block that may emit nothing has no renewal in tokens")
    return step
