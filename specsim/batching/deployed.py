"""What is planned by load in a deployment: one setting for each of its drafters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from specsim.acceptance import (
    Acceptance,
    AlphaLike,
    ConstantAcceptance,
    SurvivalAcceptance,
    acceptance_of,
    notes_on,
)
from specsim.batching.acceptance_error import Ends, ends_of
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.batching.workload import Basis, BatchWorkload
from specsim.checks import InvalidArgumentError, UnsupportedError, integer
from specsim.deployment.cost import DeployedCost
from specsim.deployment.deployment import Deployment
from specsim.deployment.drafters import Drafter, DraftModel, Mtp, Ngram
from specsim.deployment.heads import draft_shapes
from specsim.hardware.shapes import Shape

# Drafts up to which one rate of a head is taken at every position without a word.
_ONE_RATE = 3
# Cards of a node, which one link joins.
_NODE = 8
# Longest draft that is looked at where none is named and nothing measured ends before.
GAMMA_MAX = 16


def of_deployment(
    deployment: Deployment, alpha: AlphaLike | None, gamma_max: int | None
) -> list[BatchWorkload]:
    """One setting for each drafter, with the acceptance that is given."""
    if not deployment.drafters:
        raise InvalidArgumentError(
            "drafter is missing: what drafts for the target, as in --draft llama-3.2-1b or "
            "--drafter eagle3"
        )
    check_alpha(deployment, alpha)
    shared = None if alpha is None else acceptance_of(alpha)  # one for all, as it may be fitted
    basis = Basis(deployment.words, deployment.is_bound, lambda batch, context: deployment.error)
    found = []
    for drafter in deployment.drafters:
        given = alpha if drafter.alpha is None else drafter.alpha
        if given is None:
            raise InvalidArgumentError(
                f"alpha is missing: {drafter.label} does not say how often its drafts are "
                "accepted; give --alpha, such as 0.7, or what specsim read or calibrate measured"
            )
        told = of_what_drafts(given, drafter)
        acceptance = acceptance_of(told) if shared is None or told is not alpha else shared
        found.append(_of_drafter(deployment, drafter, told, acceptance, gamma_max, basis))
    return found


def of_what_drafts(alpha: AlphaLike, drafter: Drafter) -> AlphaLike:
    """Rates that do not say whether heads drafted (``Marginal``) are of what drafts here."""
    if getattr(alpha, "heads", True) is not None:
        return alpha
    said: Any = alpha
    found: AlphaLike = replace(said, heads=not isinstance(drafter, (DraftModel, Ngram)))
    return found


def check_alpha(deployment: Deployment, alpha: AlphaLike | None) -> None:
    """Refuse an acceptance that no drafter would take."""
    drafters = deployment.drafters
    if alpha is not None and drafters and all(each.alpha is not None for each in drafters):
        raise InvalidArgumentError(
            "alpha has no meaning where every drafter has rates of its own; leave out one of them"
        )


def alpha_of_others(drafter: Drafter, alpha: AlphaLike | None) -> AlphaLike | None:
    """What is given for those without rates of their own; None for one that has them."""
    return alpha if drafter.alpha is None else None


def gamma_limit(asked: int | None, acceptance: Acceptance, usual: int = GAMMA_MAX) -> int:
    """The one asked for; else the usual one, or as far as a curve goes."""
    if asked is not None:
        return integer("gamma_max", asked)
    if isinstance(acceptance, SurvivalAcceptance):
        return min(usual, len(acceptance.marginal))
    return usual


def _of_drafter(
    deployment: Deployment,
    drafter: Drafter,
    alpha: AlphaLike,
    acceptance: Acceptance,
    gamma_max: int | None,
    basis: Basis,
) -> BatchWorkload:
    longest = gamma_limit(gamma_max, acceptance)
    if drafter.longest is not None:
        if gamma_max is not None and gamma_max > drafter.longest:
            raise UnsupportedError(
                f"gamma_max must be <= {drafter.longest} with {drafter.label}, got {gamma_max}"
            )
        longest = min(longest, drafter.longest)
    shapes = draft_shapes(drafter, deployment.shape, max(longest, 1))
    cost = DeployedCost(deployment, drafter, longest + 1)
    drafts = cache(partial(TokensPerBlock.of_acceptance, acceptance, longest))

    def ends() -> Ends | None:
        found = ends_of(alpha, acceptance, drafts())
        return None if found is None else (cost.gains(found[0]), cost.gains(found[1]))

    models = [deployment.shape, *([shapes.first] if shapes else [])]
    known = [shape.longest_context for shape in models if shape.longest_context]
    return BatchWorkload(
        survival=acceptance.survival(max(longest, 1))[1:],
        replay=lambda: cost.gains(drafts()),
        cost=cost,
        gamma_max=longest,
        context=min(known, default=None),
        longest=drafter.longest,
        drafter=_name(deployment, drafter),
        doubts=tuple(_doubts(deployment, drafter, shapes.first if shapes else None)),
        notes=partial(_notes, drafter, alpha, acceptance),
        ends=ends,
        basis=basis,
    )


def _notes(
    drafter: Drafter, alpha: AlphaLike, acceptance: Acceptance, gamma: int
) -> tuple[str, ...]:
    """How ``alpha`` was read, and how far one rate was taken."""
    found = notes_on(alpha, acceptance, gamma)
    is_head = not isinstance(drafter, (DraftModel, Ngram))
    if is_head and isinstance(acceptance, ConstantAcceptance) and gamma > _ONE_RATE:
        found += (
            # The same at every draft length, so that a table of several says it once.
            f"alpha {acceptance.alpha:g} is taken at every draft, and acceptance of heads falls "
            "with depth: give measured rates by position (--conditional or --marginal)",
        )
    return found


def _name(deployment: Deployment, drafter: Drafter) -> str | None:
    """What tells it from the others, where there are any."""
    if len(deployment.drafters) == 1:
        return None
    return f"{drafter.label}{rates_apart(deployment, drafter)}"


def rates_apart(deployment: Deployment, drafter: Drafter) -> str:
    """``, alpha 0.7/0.6`` behind the name of a drafter that others of the deployment have, too."""
    alike = [each for each in deployment.drafters if each.label == drafter.label]
    if len(alike) == 1:
        return ""
    rates = drafter.alpha if isinstance(drafter.alpha, Sequence) else [drafter.alpha]
    return f", alpha {'/'.join(map(str, rates))}"


def _doubts(deployment: Deployment, drafter: Drafter, draft: Shape | None) -> list[str]:
    """What the prices take for granted."""
    target, found = deployment.shape, target_doubts(deployment)
    if isinstance(drafter, DraftModel) and draft is not None:
        vocabularies = target.vocabulary, draft.vocabulary
        if all(vocabularies) and vocabularies[0] != vocabularies[1]:
            found.append(
                f"the target's vocabulary has {target.vocabulary:,} tokens and the draft's "
                f"{draft.vocabulary:,}: both must read the same tokens (padding may differ)"
            )
    return [*found, *_of_drafts(deployment, drafter)]


def target_doubts(deployment: Deployment) -> list[str]:
    """What the prices of the target take for granted, whatever drafts."""
    target, found = deployment.shape, list(deployment.doubts)
    if deployment.efficiency.graph_tokens and not deployment.efficiency.eager_layer_s:
        found.append(
            f"runs of more than {deployment.efficiency.graph_tokens:,} tokens cost nothing more: "
            "--eager-layer-us says how long the host needs for a layer of them"
        )
    if deployment.dtype is None and target.precision.multiplies_in == "float32":
        found.append(
            f"{deployment.name} is priced in float32, as its config.json says or leaves open: "
            "engines take 16 bits unless they are told otherwise (--dtype bfloat16)"
        )
    if any(layer.experts for layer in target.layers):
        spread = ""
        if deployment.parallel.expert > 1:
            spread = ", and the busiest card to have as many more than the mean as by chance"
            if deployment.imbalance > 1:
                spread += f", {deployment.imbalance:g} times over (--imbalance)"
        alike = "every token chose its own uniformly, which reads more of them than real routing"
        if (exponent := deployment.routing_exponent) < 1:
            alike = f"n drafts of a request chose as n^{exponent:g} independent tokens, uniformly"
        found.append(f"experts are counted as if {alike}{spread}")
    return [*found, *_of_cards(deployment)]


def _of_cards(deployment: Deployment) -> list[str]:
    """That a link of one node is taken to join all cards."""
    cards, link = deployment.parallel.cards, deployment.link
    if cards <= _NODE or deployment.interconnect is not None or link is None:
        return []
    return [
        f"{cards} cards are priced as if {link.name} joined them all, which mostly joins {_NODE}: "
        "name what joins the nodes with --interconnect"
    ]


def _of_drafts(deployment: Deployment, drafter: Drafter) -> list[str]:
    """What is taken for granted of the drafter and of its acceptance."""
    found = []
    if isinstance(drafter, Mtp) and not deployment.shape.mtp_modules:
        found.append(
            f"the config.json of {deployment.name} names no modules for multi-token prediction "
            "(num_nextn_predict_layers): see whether its checkpoint has them"
        )
    without_rates = sum(each.alpha is None for each in deployment.drafters)
    if drafter.alpha is None and without_rates > 1:
        found.append(
            "drafters without rates of their own are compared at one acceptance: give each its own "
            "(alpha)"
        )
    if isinstance(drafter, Ngram) and drafter.match == 1:
        found.append(
            "every round is taken to have a match: say what share of them does, such as "
            f"{drafter.method}:match=0.3"
        )
    return found
