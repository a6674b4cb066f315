"""Vertical cascade (Chen23): a drafter that decodes speculatively, with a cheaper drafter.

The drafters are named from the target inwards: d_1 proposes to the target, d_2 to d_1, and so on;
only the last one drafts token by token.  A reviewer's step is a block like the target's: its run
reads the k proposed tokens and one more, so it is counted as Run(d_1, k + 1).

Assumed, as in the paper: whether a reviewer accepts a token does not depend on how the token came
to be, accepted or recovered by the reviewer below.  The tokens have the right distribution either
way, but real ones do depend, and through the proposal's length E[N] then moves by a few percent.

How many steps make a proposal is told in two ways, which differ: a fixed number (the paper's
formula) or until at least so many tokens are there, the overshoot kept (the authors' code).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specsim.acceptance import Acceptance
from specsim.checks import integer
from specsim.laws import BlockLaw, ProposalLaw, draft, propose, propose_at_least, verify
from specsim.schemes import _fields


@dataclass(frozen=True)
class VerticalCascade:
    """A fixed number of inner steps per proposal.

    Two drafters, n steps of k tokens: EWIF = (1 - alpha phi(alpha)^n) /
    ((1 - alpha) (1 + n c1 + n k c2)) with phi(x) = 1 + (x - 1) (1 - (alpha' x)^(k+1)) /
    (1 - alpha' x), alpha' the acceptance of d_2 by d_1 (Chen23).

    drafters : model names d_1..d_m, from the target inwards
    acceptances : of each drafter's tokens by the one before it; the first by the target
    steps : n_1..n_{m-1}, steps of d_i in each of its proposals, >= 0; 0 proposes nothing
    gamma : tokens that d_m drafts for each step of the one before it, >= 0
    one_run : whether d_m drafts them in one run (copying from the context), not one per token
    """

    drafters: tuple[str, ...]
    acceptances: tuple[Acceptance, ...]
    steps: tuple[int, ...]
    gamma: int
    one_run: bool = False

    def __post_init__(self) -> None:
        _check(self, "steps", self.steps)

    def law(self) -> BlockLaw:
        proposal = draft(self.drafters[-1], self.gamma, runs_per_token=not self.one_run)
        for level in reversed(range(len(self.steps))):
            proposal = propose(
                _review(self, proposal, level), self.drafters[level], self.steps[level]
            )
        return verify(proposal, {self.drafters[0]: self.acceptances[0]})


@dataclass(frozen=True)
class VerticalCascadeAtLeast:
    """Inner steps until at least so many tokens are proposed; what overshoots is proposed too.

    drafters : model names d_1..d_m, from the target inwards
    acceptances : of each drafter's tokens by the one before it; the first by the target
    at_least : K_1..K_{m-1}, tokens in each proposal of d_i, >= 0; 0 proposes nothing
    gamma : tokens that d_m drafts for each step of the one before it, >= 0
    one_run : whether d_m drafts them in one run (copying from the context), not one per token
    """

    drafters: tuple[str, ...]
    acceptances: tuple[Acceptance, ...]
    at_least: tuple[int, ...]
    gamma: int
    one_run: bool = False

    def __post_init__(self) -> None:
        _check(self, "at_least", self.at_least)

    def law(self) -> BlockLaw:
        proposal = draft(self.drafters[-1], self.gamma, runs_per_token=not self.one_run)
        for level in reversed(range(len(self.at_least))):
            block = _review(self, proposal, level)
            proposal = propose_at_least(block, self.drafters[level], self.at_least[level])
        return verify(proposal, {self.drafters[0]: self.acceptances[0]})


_Cascade = VerticalCascade | VerticalCascadeAtLeast


def _check(cascade: _Cascade, name: str, counts: Sequence[int]) -> None:
    names = _fields.drafters("drafters", cascade.drafters)
    _fields.same_size("acceptances", cascade.acceptances, len(names), "one per drafter")
    _fields.same_size(name, counts, len(names) - 1, "one per drafter but the last")
    known = tuple(_fields.acceptance("acceptances", a) for a in cascade.acceptances)
    checked = {name: tuple(integer(name, count) for count in counts)}
    gamma = integer("gamma", cascade.gamma)
    _fields.settle(cascade, drafters=names, acceptances=known, gamma=gamma, **checked)


def _review(cascade: _Cascade, proposal: ProposalLaw, level: int) -> BlockLaw:
    """One step of the drafter at ``level``: it reviews a proposal of the one below."""
    below = {cascade.drafters[level + 1]: cascade.acceptances[level + 1]}
    return verify(proposal, below, verifier=cascade.drafters[level])
