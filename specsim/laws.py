"""The law of one block, and the law of a proposal: what every scheme says and every reader reads.

A *block* is what happens up to and including the target's verdict: some draft runs, one target
run (rarely a second one), N emitted tokens.  Decoding is a sequence of blocks.  A law lists the
block's outcomes with their probabilities; it knows nothing of time, so the same law is read by
the renewal predictor, by Monte Carlo, by the optimisers and by the operation counters.

``Run(model, positions)`` names one forward pass: which model, over how many new tokens.  A law
counts runs instead of pricing them; ``specsim.cost`` prices them.  Counts are conditional means
given the outcome, because every price is a sum over runs: nothing read here needs more, and a
nested cascade then has as many outcomes as lengths, not as histories.

A *proposal* is the drafter's half of a block: how many tokens it proposes, from which producers,
in order, and at which runs.  ``verify`` turns a proposal into a block.  A block of one model is a
proposal to the next (``propose``, ``propose_at_least``): vertical cascades nest.  Proposals one
after the other are a proposal (``concatenate``): horizontal cascades.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from specsim.acceptance import (
    Acceptance,
    AcceptanceByLength,
    of_every_length,
    running_survival,
)
from specsim.checks import Floats, Ints, InvalidArgumentError, UnsupportedError, integer

TARGET = "target"

# Probabilities are sums of at most a few million rounded terms.
_TOTAL_TOLERANCE = 1e-9
# Cells of the largest table that a law may need: 128 MiB of float64, of which there are several.
_LARGEST = 2**24
# Tokens that blocks are repeated to, one place after another.
_MOST_STARTS = 2**17


class Run(NamedTuple):
    """One forward pass of ``model`` over ``positions`` new tokens."""

    model: str
    positions: int


Price = Callable[[Run], float]


@dataclass(frozen=True)
class BlockLaw:
    """Outcomes of one block.

    probability : shape (O,), sums to one
    tokens : shape (O,), tokens emitted, the recovered or bonus token counted
    runs : for each kind of run, shape (O,): mean number of such runs given the outcome
    """

    probability: Floats
    tokens: Ints
    runs: Mapping[Run, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_outcomes(self.probability, self.runs)
        if self.tokens.shape != self.probability.shape:
            raise InvalidArgumentError("tokens must have one entry per outcome")

    @property
    def tokens_per_call(self) -> float:
        """E[N], the mean acceptance length (plain decoding is 1)."""
        return float(self.probability @ self.tokens)

    def expected_runs(self) -> dict[Run, float]:
        """Mean number of runs per block, by kind."""
        return {run: float(self.probability @ count) for run, count in self.runs.items()}

    def calls(self, model: str) -> float:
        """Mean number of runs of ``model`` per block, whatever their width."""
        return sum(count for run, count in self.expected_runs().items() if run.model == model)

    def positions(self, model: str) -> float:
        """Mean number of positions that ``model`` reads per block."""
        expected = self.expected_runs()
        return sum(run.positions * count for run, count in expected.items() if run.model == model)

    def cost(self, price: Price) -> float:
        """Mean cost of a block."""
        return sum(price(run) * count for run, count in self.expected_runs().items())

    def cost_by_outcome(self, price: Price) -> Floats:
        """Mean cost given the outcome, shape (O,)."""
        total = np.zeros_like(self.probability)
        for run, count in self.runs.items():
            total += price(run) * count
        return total

    def token_law(self) -> Floats:
        """P(N = n) for n = 0..max, shape (max + 1,)."""
        return _by_tokens(self.tokens, self.probability)


@dataclass(frozen=True)
class ProposalLaw:
    """Outcomes of one proposal.

    probability : shape (O,), sums to one
    lengths : shape (O, S): tokens from each of the S producers, in the order proposed
    producers : S names; a producer is the model whose distribution the verifier compares with
    runs : for each kind of run, shape (O,): mean number of such runs given the outcome
    """

    probability: Floats
    lengths: Ints
    producers: tuple[str, ...]
    runs: Mapping[Run, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_outcomes(self.probability, self.runs)
        if self.lengths.shape != (len(self.probability), len(self.producers)):
            raise InvalidArgumentError(
                "lengths must have one row per outcome, one column per producer"
            )


def _check_outcomes(probability: Floats, runs: Mapping[Run, Floats]) -> None:
    if probability.ndim != 1 or not probability.size:
        raise InvalidArgumentError("probability must be one row with at least one outcome")
    total = float(probability.sum())
    if probability.min() < 0 or abs(total - 1) > _TOTAL_TOLERANCE:
        raise InvalidArgumentError(f"probability must be >= 0 and sum to one, sums to {total:.12g}")
    for run, count in runs.items():
        if count.shape != probability.shape:
            raise InvalidArgumentError(f"runs of {run} must have one entry per outcome")


def draft(model: str, length: int, runs_per_token: bool = True) -> ProposalLaw:
    """``length`` tokens drafted by ``model``: one run each, or one run for all of them.

    The second is a non-autoregressive drafter (Xia22) or a copy from the context.
    """
    length = integer("length", length)
    run, count = (Run(model, 1), length) if runs_per_token else (Run(model, max(length, 1)), 1)
    return ProposalLaw(
        probability=np.ones(1),
        lengths=np.array([[length]]),
        producers=(model,),
        runs={run: np.array([float(count)])} if length else {},
    )


def concatenate(proposals: Sequence[ProposalLaw]) -> ProposalLaw:
    """Proposals one after the other, independent of one another: a horizontal cascade."""
    result = proposals[0]
    for second in proposals[1:]:
        first, shape = result, (len(result.probability), len(second.probability))
        runs = {
            run: (
                first.runs.get(run, np.zeros(shape[0]))[:, None]
                + second.runs.get(run, np.zeros(shape[1]))[None, :]
            ).ravel()
            for run in {**first.runs, **second.runs}
        }
        result = ProposalLaw(
            probability=np.outer(first.probability, second.probability).ravel(),
            lengths=np.hstack(
                [
                    np.repeat(first.lengths, shape[1], axis=0),
                    np.tile(second.lengths, (shape[0], 1)),
                ]
            ),
            producers=first.producers + second.producers,
            runs=runs,
        )
    return result


def verify(
    proposal: ProposalLaw,
    acceptance: Mapping[str, Acceptance],
    verifier: str = TARGET,
    bonus: bool = True,
) -> BlockLaw:
    """The block in which ``verifier`` reads a proposal in one run.

    The token at block position t is accepted, given that all before it were, at its producer's
    conditional rate at t.  The first rejected position gets a recovered token; a proposal
    accepted whole earns a bonus token, or nothing where ``bonus`` is false (Xia22), in which
    case the verifier reads one position less.

    Raises UnsupportedError for proposals of several lengths where acceptance depends on the length.
    """
    ends = np.cumsum(proposal.lengths, axis=1)
    totals = ends[:, -1]
    longest = int(totals.max())
    check_size(totals.size * (longest + 1))
    rates = np.zeros((len(proposal.producers) + 1, longest + 1))
    several = np.unique(totals).size > 1
    for row, name in enumerate(proposal.producers):
        known = of_every_length(acceptance[name]) if several else acceptance[name]
        judged = longest
        if isinstance(known, AcceptanceByLength) and not bonus:
            # Without a bonus a block is as long whether its last draft stands or not, so that the
            # next ones start where those of one draft less do.
            judged = max(longest - 1, 0)
        rates[row, :judged] = known.conditional(judged)
    # The producer of each position is the number of producers that have ended by then; the row
    # of zeros past the last one makes the end of the proposal a sure "rejection".
    positions = np.arange(longest + 1)
    rate = rates[(ends[:, :, None] <= positions).sum(axis=1), positions]
    alive = running_survival(rate[:, :-1])
    # alive[i] * (1 - rate[i]) rather than a difference of neighbours: exact near one.
    law = proposal.probability[:, None] * alive * (1 - rate)

    order = np.argsort(totals, kind="stable")
    lengths, starts = np.unique(totals[order], return_index=True)
    mass = np.add.reduceat(law[order], starts, axis=0)
    kept = mass > 0
    probability, (group, accepted) = mass[kept], np.nonzero(kept)
    proposed = lengths[group]
    check_size(probability.size * lengths.size)
    runs: dict[Run, Floats] = {}
    for run, count in proposal.runs.items():
        total = np.add.reduceat((law * count[:, None])[order], starts, axis=0)
        runs[run] = total[kept] / probability
    for length in lengths.tolist():
        read = Run(verifier, length + 1 if bonus else max(length, 1))
        runs[read] = runs.get(read, 0.0) + (proposed == length).astype(float)
    tokens = accepted + 1
    if not bonus:
        tokens = np.minimum(tokens, np.maximum(proposed, 1))
    return BlockLaw(probability, tokens, runs)


def check_size(cells: int) -> None:
    """Refuse a law with a table of so many cells before it is made."""
    if cells > _LARGEST:
        raise UnsupportedError(
            f"a law with {cells:.1e} cells (outcomes times proposed lengths) is too large, "
            f"the most is {_LARGEST:.1e}: take a shorter window or fewer steps"
        )


def propose(block: BlockLaw, producer: str, steps: int) -> ProposalLaw:
    """The tokens of exactly ``steps`` blocks as one proposal (vertical cascade, Chen23)."""
    steps = integer("steps", steps)
    law, runs = block.token_law(), _runs_by_tokens(block)
    check_size(law.size * (1 + law.size * (steps * (steps - 1) // 2)))
    total, total_runs = np.ones(1), {run: np.zeros(1) for run in runs}
    for _ in range(steps):
        total_runs = {
            run: np.convolve(total_runs[run], law) + np.convolve(total, runs[run]) for run in runs
        }
        total = np.convolve(total, law)
    return _proposal(total, total_runs, producer)


def propose_at_least(block: BlockLaw, producer: str, tokens: int) -> ProposalLaw:
    """Blocks until at least ``tokens`` are there, the overshoot kept (Chen23, authors' code)."""
    tokens = integer("tokens", tokens)
    if tokens > _MOST_STARTS:
        raise UnsupportedError(
            f"a proposal of at least {tokens:,} tokens is too large, the most is {_MOST_STARTS:,}"
        )
    law, runs = block.token_law(), _runs_by_tokens(block)
    if law[0] > 0:
        raise InvalidArgumentError("a block that may emit nothing cannot be repeated to a length")
    size = tokens + law.size - 1 if tokens else 1
    check_size(size + tokens * law.size)
    mass = np.zeros(size)
    mass[0] = 1.0
    mass_runs = {run: np.zeros(size) for run in runs}
    for start in range(tokens):
        span = slice(start, start + law.size)
        for run in runs:
            mass_runs[run][span] += mass_runs[run][start] * law + mass[start] * runs[run]
            mass_runs[run][start] = 0.0
        mass[span] += mass[start] * law
        mass[start] = 0.0
    return _proposal(mass, mass_runs, producer)


def _runs_by_tokens(block: BlockLaw) -> dict[Run, Floats]:
    """E[runs; N = n] for n = 0..max, by kind of run."""
    return {
        run: _by_tokens(block.tokens, block.probability * count)
        for run, count in block.runs.items()
    }


def _by_tokens(tokens: Ints, weights: Floats) -> Floats:
    """Sum of the weights of the outcomes with n tokens, n = 0..max."""
    return np.bincount(tokens, weights=weights).astype(np.float64)


def _proposal(mass: Floats, mass_runs: Mapping[Run, Floats], producer: str) -> ProposalLaw:
    kept = np.flatnonzero(mass > 0)
    return ProposalLaw(
        probability=mass[kept],
        lengths=kept[:, None].astype(np.int64),
        producers=(producer,),
        runs={run: total[kept] / mass[kept] for run, total in mass_runs.items()},
    )
