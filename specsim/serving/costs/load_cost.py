"""Seconds of a step from a cost by load: the grid of a profile, shapes on cards, an engine's steps.

A cost by load prices rounds of equal requests.  A step is put together from what it says:

    verify(width, decodes, context) + [run(prefill tokens) - run(1)]
    + [W(tokens) - W(verified tokens)] - [W(prefill tokens) - W(1)]
    + draft(gamma, requests, context) + [draft run(prefill tokens) - draft run(1)]
    + overhead(gamma, requests)

The target reads prompts and decodes in one run, so a chunk of a prompt adds what its tokens take
beyond what a run takes anyway, and the same of the drafter that reads the prompt, too.  W is such a
run without attention: tokens that are free beside nothing, since the weights are read anyway, are
not where decodes keep the arithmetic busy.  That run as a whole is within a CUDA graph or waits for
the host.

An engine's own times (``StepLoadCost``) are of whole steps.  Where they were timed under load, they
are a fit of just this (``specsim.counts.streamed_costs``):

    step(gamma, requests) [ + P(gamma) + Q(gamma) requests, where a prompt is read]
    + a(gamma) prompts + b(gamma) prefill tokens
    + e(gamma) (decode context - verified tokens - (c - 1) decodes)
    + u arrivals

where requests are all of the step, those whose prompts are read among them, c is the mean context
that was timed, behind which a round puts its drafts, and arrivals are requests that came since the
step before.

Where sets of requests and prompts were timed apart, steps are put together from less,

    step(gamma, requests) + [prompt(gamma, prefill tokens) - step(gamma, 1)]

so that a prompt alone takes just what it took when it was timed alone.  Steps then cost what they
did at the contexts that were timed.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.batching.cost import LoadCost
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.step_cost import StepLoadCost
from specsim.checks import Floats, Ints, UnsupportedError
from specsim.counts.streamed_costs import StreamedCosts
from specsim.counts.streamed_law import EMPTY
from specsim.deployment.cost import DeployedCost
from specsim.profiles import Role
from specsim.serving.scatter import MOST_VARIATION
from specsim.serving.step_model import VARIATIONS, StepModel, StepTerm

# Bytes of a card that has room for every request: here the engine's blocks say what fits.
_ENDLESS_MEMORY = 1e18
# Neighbouring knots are about this far apart.
_RATIO = 1.3
_CONTEXTS = (0, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
# Contexts in front of a chunk of a prompt, and the longest chunk.
_BEFORE_CHUNK = (0, 512, 2048, 8192, 32768, 131072)
_LONGEST_CHUNK = 16384


def step_model_of(
    cost: LoadCost,
    gamma_max: int,
    bonus: Floats,
    batch_max: int,
    context_max: int,
    graph_tokens: int | None = None,
) -> StepModel:
    """A step by the cost of rounds.

    gamma_max : longest draft; 0: there is no drafter
    bonus : (K + 1,) chance by draft length that a request comes from a round whose drafts were all
        accepted, K >= gamma_max
    batch_max, context_max : requests in a step, and tokens of one, that are looked at
    graph_tokens : tokens of the largest CUDA graph, behind which the cost may jump

    UnsupportedError where the cost says nothing of prompts.
    """
    if isinstance(cost, StepLoadCost):
        return _of_steps(cost, gamma_max, batch_max)
    cost = _without_memory(cost)
    work, eager_s = _without_host(cost)
    batches = _batches(batch_max, gamma_max + 1, graph_tokens)
    contexts = np.array([each for each in _CONTEXTS if each < context_max] + [context_max])
    widths = np.arange(1, gamma_max + 2)
    chunks = _chunks("target", work, contexts)
    verify = np.array(
        [
            [
                [
                    work.verify_s(width - 1, batch, max(context - width, 0))
                    for context in contexts.tolist()
                ]
                for batch in batches.tolist()
            ]
            for width in widths.tolist()
        ]
    )
    terms = [
        _table(
            "target",
            verify,
            ("decode_width", "decodes", "mean_decode_context"),
            (widths, batches, contexts),
        ),
        chunks,
        *_together(work, int(batches[-1]) * (gamma_max + 1)),
        _overhead(cost, gamma_max, batches),
    ]
    if gamma_max:
        terms.append(_drafts(cost, gamma_max, bonus, batches, contexts))
        if _reads_prompts(work):
            terms.append(_chunks("draft", work, contexts))
    return StepModel(tuple(terms), eager_s=eager_s)


def _of_steps(cost: StepLoadCost, gamma_max: int, batch_max: int) -> StepModel:
    """Of an engine that was timed; beyond its largest batch each request adds as much as from about
    half of it on, and never less than nothing.
    """
    if cost.prompts is None:
        raise UnsupportedError(
            "step times of an engine do not tell what prompts cost: time them with specsim "
            "calibrate --engine, or give a deployment (target, drafter, accelerator), a profile "
            "with a grid, or coefficients of a step"
        )
    gammas = np.arange(gamma_max + 1)
    timed = min(batch_max, cost.batches[-1])
    batches = np.array(sorted({1, timed, *(each for each in cost.batches if each < timed)}))
    context = cost.loaded_context or 0.0
    steps = np.array([[cost.verify_s(int(k), int(b), context) for b in batches] for k in gammas])
    if batch_max > timed:
        half = int(np.flatnonzero(batches == cost.half)[0])
        added = steps[:, -1] - steps[:, half]
        each_s = np.maximum(added, 0.0) / max(timed - cost.half, 1)
        beyond = steps[:, -1] + each_s * (batch_max - timed)
        batches, steps = np.append(batches, batch_max), np.column_stack([steps, beyond])
    # Where caches are empty a step takes some of that nevertheless.
    token_s = np.array([cost.context_token_s(int(k)) for k in gammas])
    caches = context * token_s[:, None] * batches
    steps = np.maximum(steps, caches / (1.0 - EMPTY))
    table = _table("step", steps, ("gamma", "sequences"), (gammas, batches))
    if isinstance(cost.prompts, StreamedCosts):
        alike = np.minimum(batches, timed)
        terms = _streamed_prompts(cost.prompts, gammas, batches, alike, steps - caches)
        return StepModel(
            (
                table,
                *_contexts(token_s, gammas, context),
                *terms,
                StepTerm("step", cost.prompts.arrival_s, per="arrivals"),
            ),
            cost.prompts.frontend_s,
            cost.prompts.frontend_decode_s,
            cost.prompts.frontend_prompt_s,
            **{name: min(getattr(cost.prompts, name), MOST_VARIATION) for name in VARIATIONS},
        )
    lengths = sorted({each.tokens for each in cost.prompts.times})
    tokens = np.array([0, 1, *(each for each in lengths if each > 1)])
    prompts = np.zeros((gammas.size, tokens.size))
    for row, gamma in enumerate(gammas.tolist()):
        for column, count in enumerate(tokens[1:].tolist(), start=1):
            beyond = cost.prompts.seconds(gamma, count) - cost.timed_s(gamma, 1)
            prompts[row, column] = max(beyond, 0.0)
    return StepModel(
        (
            table,
            _table("prompts", prompts, ("gamma", "prefill_tokens"), (gammas, tokens)),
        ),
        cost.frontend_s,
    )


def _contexts(token_s: Floats, gammas: Ints, context: float) -> tuple[StepTerm, ...]:
    """What caches that hold more or less than those that were timed do to a step.

    token_s : of a token more, by draft length
    context : that was timed, of a request before the step, which its last token is not of
    """
    if not token_s.any():
        return ()
    of_each = {
        "decode_context": token_s,
        "verified_tokens": -token_s,
        "decodes": -token_s * (context - 1.0),
    }
    return tuple(
        replace(_table("step", values, ("gamma",), (gammas,)), per=per)
        for per, values in of_each.items()
    )


def _streamed_prompts(
    costs: StreamedCosts, gammas: Ints, batches: Ints, alike: Ints, empty: Floats
) -> tuple[StepTerm, ...]:
    """What prompts make a step longer, linear between the draft lengths >= 1 that were timed.

    alike : beside how many requests a prompt makes a step as much longer as beside each of
        ``batches``: the largest that was timed stands for larger ones
    empty : steps without prompts and with empty caches, (G, B) of so many draft lengths and batches
    """
    timed = [each for each in costs.gammas if each]

    def by_gamma(name: str) -> Floats:
        values = [getattr(costs.laws[each], name) for each in timed]
        found: Floats = np.interp(gammas, timed, values)
        found[gammas == 0] = getattr(costs.laws[0], name)
        return found

    reading = by_gamma("reading_s")[:, None] + by_gamma("per_request_s")[:, None] * alike
    reading = np.maximum(reading, -empty)
    # Once, however many prompts are read.
    beyond = np.stack([np.zeros_like(empty), reading, reading], axis=-1)
    axes, knots = ("gamma", "sequences", "prefill_chunks"), (gammas, batches, np.arange(3))
    each = [
        replace(_table("prompts", by_gamma(name), ("gamma",), (gammas,)), per=per)
        for name, per in (("per_prompt_s", "prefill_chunks"), ("per_token_s", "prefill_tokens"))
    ]
    return _table("prompts", beyond, axes, knots), *each


def _drafts(cost: LoadCost, gamma_max: int, bonus: Floats, batches: Any, contexts: Any) -> StepTerm:
    """Rounds of the drafter, none for no request."""
    requests = np.concatenate([[0], batches])
    draft = np.zeros((gamma_max + 1, requests.size, contexts.size))
    for gamma in range(gamma_max + 1):
        for row, batch in enumerate(batches.tolist(), start=1):
            for column, context in enumerate(contexts.tolist()):
                draft[gamma, row, column] = (
                    cost.draft_s(gamma, batch, context, float(bonus[gamma]))
                    if gamma
                    else cost.loaded_s(batch, context)
                )
    return _table(
        "draft",
        draft,
        ("gamma", "drafting", "mean_decode_context"),
        (np.arange(gamma_max + 1), requests, contexts),
    )


def _overhead(cost: LoadCost, gamma_max: int, batches: Any) -> StepTerm:
    """Host time beside the runs.  It was seen, or is meant, as what a step takes longer, so that
    nothing hides it: the part is not ``host``.
    """
    values = [
        [cost.overhead_s(gamma, batch) for batch in batches] for gamma in range(gamma_max + 1)
    ]
    knots = np.arange(gamma_max + 1), batches
    return _table("overhead", np.array(values), ("gamma", "sequences"), knots)


def _chunks(model: Role, cost: LoadCost, contexts: Any) -> StepTerm:
    """What tokens of prompts add to the run of a model."""
    chunks = np.array([0, 1, *_geometric(2, _LONGEST_CHUNK)])
    before = np.array([each for each in _BEFORE_CHUNK if each <= contexts[-1]])
    shortest = _chunk_s(model, cost, 1, 0)
    values = [
        [max(_chunk_s(model, cost, tokens, context) - shortest, 0.0) for context in before.tolist()]
        for tokens in chunks[1:].tolist()
    ]
    table = np.vstack([np.zeros(before.size), np.array(values)])
    if before.size == 1:
        return _table(model, table[:, 0], ("prefill_tokens",), (chunks,))
    return _table(model, table, ("prefill_tokens", "chunk_context"), (chunks, before))


def _together(cost: LoadCost, verified: int) -> tuple[StepTerm, ...]:
    """W of all tokens of the target, less W of the two kinds alone; none where there is one kind.

    verified : tokens of decodes, at most
    """
    # Knots of the same places whatever the longest draft is, so that it changes nothing else.
    count = ceil(log((verified + _LONGEST_CHUNK) / 2, _RATIO)) + 1
    tokens = np.array([0, 1, *sorted({round(2 * _RATIO**place) for place in range(count)})])
    # A run over no token stands for one over a single one.
    seconds = np.array([_without_attention_s(cost, max(count, 1)) for count in tokens.tolist()])
    return (
        _table("target", seconds, ("tokens",), (tokens,)),
        _table("target", seconds[0] - seconds, ("verified_tokens",), (tokens,)),
        _table("target", -seconds, ("prefill_tokens",), (tokens,)),
    )


def _without_attention_s(cost: LoadCost, tokens: int) -> float:
    """A run of the target over so many tokens that attend to nothing."""
    if isinstance(cost, DeployedCost):
        return cost.run_s("target", 1, tokens, 0, 0)
    return _chunk_s("target", cost, tokens, 0)


def _chunk_s(model: Role, cost: LoadCost, tokens: int, context: int) -> float:
    """A run over so many tokens of a prompt, with so many in the cache before."""
    if isinstance(cost, MeasuredLoadCost):
        # Runs were timed over few tokens of many requests: wide chunks are priced as such runs.
        width = min(tokens, (cost.target if model == "target" else cost.first_draft).widest)
        requests, rest = divmod(tokens, width)
        follows: Role = "target" if model == "draft" else "draft"
        if not rest:
            return cost.run_s(model, width, requests, context / requests, follows)
        share = rest / width
        below, above = (
            cost.run_s(model, width, each, context / each, follows)
            for each in (requests, requests + 1)
        )
        return below + share * (above - below)
    if isinstance(cost, DeployedCost):
        return cost.run_s(model, tokens, 1, context, 1)
    raise UnsupportedError(f"{type(cost).__name__} does not tell what prompts cost")


def _reads_prompts(cost: LoadCost) -> bool:
    """Whether the drafter has a cache that prompts fill."""
    if isinstance(cost, DeployedCost):
        return cost.drafter_reads_prompts
    return isinstance(cost, MeasuredLoadCost)


def _without_memory(cost: LoadCost) -> LoadCost:
    """The same cost where everything fits."""
    if isinstance(cost, MeasuredLoadCost):
        return replace(cost, missing=(), deployed=None)
    if isinstance(cost, DeployedCost):
        card = replace(cost.deployment.card, memory=_ENDLESS_MEMORY)
        return replace(cost, deployment=replace(cost.deployment, accelerator=card))
    return cost


def _without_host(cost: LoadCost) -> tuple[LoadCost, float]:
    """What runs of the target compute, and the least that one takes outside of a CUDA graph."""
    if not isinstance(cost, DeployedCost):
        return cost, 0.0
    deployment = cost.deployment
    efficiency = replace(deployment.efficiency, eager_layer_s=0.0)
    least = len(deployment.shape.layers) * deployment.efficiency.eager_layer_s
    return replace(cost, deployment=replace(deployment, efficiency=efficiency)), least


def _batches(most: int, width: int, graph_tokens: int | None) -> npt.NDArray[np.int64]:
    """Knots up to the largest batch, denser around the end of the graphs."""
    found = {1, most, *_geometric(2, most)}
    if graph_tokens is not None:
        for each in range(1, width + 1):
            found |= {graph_tokens // each, graph_tokens // each + 1}
    return np.array(sorted(each for each in found if 1 <= each <= most))


def _geometric(first: int, last: int) -> list[int]:
    count = max(2, round(np.log(max(last / first, 1.0)) / np.log(_RATIO)) + 1)
    return sorted({round(each) for each in np.geomspace(first, max(first, last), count)})


def _table(part: str, values: Floats, axes: tuple[str, ...], knots: tuple[Any, ...]) -> StepTerm:
    """A term; an axis of one knot is left out."""
    kept = [each.size > 1 for each in knots]
    shape = [size for size, keep in zip(values.shape, kept, strict=True) if keep]
    return StepTerm(
        part,
        values.reshape(shape),
        tuple(axis for axis, keep in zip(axes, kept, strict=True) if keep),
        tuple(each for each, keep in zip(knots, kept, strict=True) if keep),
    )
