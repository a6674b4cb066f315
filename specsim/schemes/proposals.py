"""The first reader of a drafter's description: the law of what it proposes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specsim.acceptance import Acceptance
from specsim.checks import UnsupportedError
from specsim.laws import (
    TARGET,
    BlockLaw,
    ProposalLaw,
    concatenate,
    draft,
    propose,
    propose_at_least,
    verify,
)
from specsim.schemes.drafters import (
    CopyDrafter,
    Drafter,
    EagleDrafter,
    HorizontalDrafter,
    MaskDrafter,
    ModelDrafter,
    NgramDrafter,
    SingleDrafter,
    VerticalDrafter,
)
from specsim.schemes.known import Pair


def proposal_law(drafter: Drafter, acceptances: Mapping[Pair, Acceptance]) -> ProposalLaw:
    """What a drafter proposes, and at which runs.

    acceptances : of each drafter's tokens by each model that reviews them; the pairs of a drafter
        with the model that verifies the proposal are not asked for
    """
    match drafter:
        case ModelDrafter() | EagleDrafter() | NgramDrafter():
            return draft(drafter.name, drafter.tokens)
        case CopyDrafter() | MaskDrafter():
            return draft(drafter.name, drafter.tokens, runs_per_token=False)
        case HorizontalDrafter():
            return concatenate([proposal_law(part, acceptances) for part in drafter.parts])
        case VerticalDrafter():
            _check_room(drafter)
            step = block_law(drafter.inner, acceptances, drafter.name)
            if drafter.steps is not None:
                return propose(step, drafter.name, drafter.steps)
            return propose_at_least(step, drafter.name, drafter.at_least or 0)


def block_law(
    drafter: Drafter,
    acceptances: Mapping[Pair, Acceptance],
    verifier: str = TARGET,
    bonus: bool = True,
) -> BlockLaw:
    """The block in which ``verifier`` reads what a drafter proposes."""
    proposal = proposal_law(drafter, acceptances)
    rates = {name: acceptances[name, verifier] for name in proposal.producers}
    return verify(proposal, rates, verifier, bonus)


def acceptance_pairs(drafter: Drafter, verifier: str = TARGET) -> tuple[Pair, ...]:
    """Every (drafter, verifier) of a description, the outermost verifier's first."""
    found: dict[Pair, None] = {}
    level: list[tuple[Drafter, str]] = [(drafter, verifier)]
    while level:
        single = [(part, reader) for whole, reader in level for part in _parts(whole)]
        found.update(dict.fromkeys((part.name, reader) for part, reader in single))
        level = [(part.inner, part.name) for part, _ in single if isinstance(part, VerticalDrafter)]
    return tuple(found)


_Named = SingleDrafter | VerticalDrafter


def _parts(drafter: Drafter) -> Iterator[_Named]:
    if isinstance(drafter, HorizontalDrafter):
        for part in drafter.parts:
            yield from _parts(part)
    else:
        yield drafter


def _check_room(drafter: VerticalDrafter) -> None:
    """The law of a step takes the inner proposal as it is."""
    gamma, inner = drafter.gamma, drafter.inner
    if gamma is None:
        return
    if isinstance(inner, (VerticalDrafter, HorizontalDrafter)) or inner.tokens > gamma:
        raise UnsupportedError(
            f"the law of {drafter.name!r} needs the whole proposal of its inner drafter in each "
            f"step, gamma = {gamma} would cut it: give the inner drafter fewer tokens"
        )
