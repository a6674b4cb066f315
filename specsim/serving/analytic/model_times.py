"""Step times of a replica, from what its steps cost and how its engine makes them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import numpy.typing as npt

from specsim.checks import Floats, Ints
from specsim.serving.analytic.offered import Offered
from specsim.serving.analytic.step_times import StepTimes
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.settings import SGLANG, EngineSettings, ServingEngine
from specsim.serving.step_model import HOST, TARGET, StepModel, StepTerm

# Decodes and prompt tokens at which the reading of prompts is looked at.
_COUNTS, _TOKENS = 14, 24

Quantities = Mapping[str, Floats]


def model_times(
    model: StepModel,
    engine: ServingEngine,
    drafts: DraftPolicy,
    offered: Offered,
    cap: int,
) -> StepTimes:
    """Of steps with 1..cap decodes at the mean context, and prompts of the workload."""
    settings = engine.settings(drafts)
    sizes = engine.capture_sizes(drafts)
    gammas = drafts.gammas(cap)
    alone = settings.kind == SGLANG

    def apart(decodes: Ints, prompt: Floats) -> tuple[Floats, Floats]:
        return _seconds(model, settings, sizes, drafts, gammas, offered, decodes, prompt)

    def seconds(decodes: Ints, prompt: Floats) -> Floats:
        host, device = apart(decodes, prompt)
        return np.maximum(host, device) if settings.asynchronous else host + device

    all_counts = np.arange(1, cap + 1)
    counts = np.unique(np.concatenate([[0], np.geomspace(1, cap, _COUNTS).round()]))
    counts = counts.astype(np.int64) if cap > 1 else np.array([0, 1])
    room = _room(settings)
    left = np.full(counts.size, room, dtype=np.float64)
    if not alone:
        slots = settings.draft_slots
        left -= slots + counts * (1.0 + gammas[counts] + slots)
    budget = np.maximum(left, 1.0)
    tokens = np.unique(np.concatenate([[0.0], np.geomspace(1, max(room, 2), _TOKENS).round()]))
    grid, prompt = (each.ravel() for each in np.meshgrid(counts, tokens, indexing="ij"))
    used = np.zeros_like(grid) if alone else grid
    shape = counts.size, tokens.size
    whole = seconds(used, prompt).reshape(shape)
    read = whole if alone else whole - seconds(counts, np.zeros(counts.size))[:, None]
    read[:, 0] = 0.0
    if not alone:
        read[0] = whole[0]  # with nothing else in it, all of the step is for prompts
        read[0, 0] = 0.0
    host, device = apart(np.zeros(1, np.int64), np.array([offered.mean_prompt]))
    return StepTimes(
        decode_s=seconds(all_counts, np.zeros(cap)),
        counts=counts,
        tokens=tokens,
        read_s=np.maximum.accumulate(read, axis=1),
        budget=budget,
        prompts=offered.prompt_tokens.astype(np.float64),
        stops_decodes=alone,
        idle_s=float(np.minimum(host, device)[0]) if settings.asynchronous else 0.0,
    )


def _room(settings: EngineSettings) -> int:
    """Tokens of prompts that a step holds where nobody decodes in it."""
    if settings.kind == SGLANG and settings.chunk:
        return min(settings.budget, settings.chunk)
    return settings.budget


def _seconds(
    model: StepModel,
    settings: EngineSettings,
    sizes: Ints,
    drafts: DraftPolicy,
    gammas: Ints,
    offered: Offered,
    decodes: Ints,
    prompt: Floats,
) -> tuple[Floats, Floats]:
    """Of host and device, at pairs of ``decodes`` and ``prompt``, all of one shape (X,)."""
    reads = prompt > 0
    chunks = np.where(reads, np.maximum(prompt / offered.mean_prompt, 1.0), 0.0)
    sequences = decodes + chunks
    gamma = gammas[np.minimum(np.rint(sequences).astype(np.int64), gammas.size - 1)].astype(float)
    if settings.kind == SGLANG:  # prompts take one run of the drafter
        gamma = np.where(reads, np.minimum(gamma, 1.0), gamma)
    width = np.where(decodes > 0, 1.0 + gammas[decodes], 0.0)
    tokens = decodes * width + prompt
    eager = np.ones(tokens.shape, dtype=bool)
    padded = tokens
    if sizes.size:
        # SGLang's graphs are of decodes.
        eager = (tokens > sizes[-1]) | (reads & (settings.kind == SGLANG))
        at = np.searchsorted(sizes, np.minimum(tokens, sizes[-1]))
        padded = np.where(eager, tokens, sizes[at])
    context = np.where(decodes > 0, offered.mean_context + width, 0.0)
    pairs = prompt * (offered.read_prompt + 1.0) / 2
    read = np.maximum(prompt, 1.0)
    quantities = {
        "tokens": tokens,
        "padded_tokens": padded,
        "verified_tokens": decodes * width,
        "prefill_tokens": prompt,
        "prefill_chunks": chunks,
        "prefill_context": chunks * offered.read_before(_room(settings)),
        "prefill_pairs": pairs,
        "decodes": decodes.astype(float),
        "decode_width": width,
        "decode_context": decodes * context,
        "mean_decode_context": context,
        "sequences": sequences,
        "sampled": decodes * width + chunks,
        "drafting": sequences if drafts.schedule else np.zeros_like(sequences),
        "gamma": gamma,
        "next_draft_runs": np.maximum(gamma - 1.0, 0.0),
        "chunk_context": np.maximum(pairs / read - (read + 1.0) / 2, 0.0),
        "arrivals": prompt / offered.mean_prompt,  # as many come as are read, in the mean
    }
    parts = {part: np.zeros(tokens.shape) for part in (*model.parts, HOST)}
    for term in model.terms:
        parts[term.part] += term_s(term, quantities, eager)
    if model.eager_s and TARGET in parts:
        parts[TARGET] = np.where(eager, np.maximum(parts[TARGET], model.eager_s), parts[TARGET])
    host = parts.pop(HOST)
    return host, sum(parts.values(), np.zeros(tokens.shape))


def term_s(term: StepTerm, quantities: Quantities, eager: npt.NDArray[np.bool_]) -> Floats:
    """One term of all steps, shape (X,)."""
    values = np.asarray(term.values, dtype=np.float64)
    places, shares = [], []
    for axis, knots in zip(term.axes, term.knots, strict=True):
        x, where = quantities[axis], np.asarray(knots, dtype=np.float64)
        if where.size == 1:
            places.append(np.zeros(x.shape, dtype=np.int64))
            shares.append(np.zeros(x.shape))
            continue
        place = np.clip(np.searchsorted(where, x, side="right") - 1, 0, where.size - 2)
        share = (x - where[place]) / (where[place + 1] - where[place])
        places.append(place)
        shares.append(np.maximum(share, 0.0))  # below the first knot the first value counts
    found = np.zeros(eager.shape)
    for corner in product((0, 1), repeat=len(places)):
        weight = np.ones(eager.shape)
        for upper, share in zip(corner, shares, strict=True):
            weight = weight * (share if upper else 1.0 - share)
        at = tuple(
            np.minimum(place + upper, size - 1)
            for place, upper, size in zip(places, corner, values.shape, strict=True)
        )
        found += weight * values[at]
    if term.per is not None:
        found = found * quantities[term.per]
    if term.when == "graph":
        found = np.where(eager, 0.0, found)
    elif term.when == "eager":
        found = np.where(eager, found, 0.0)
    return found
