"""An analytic replica of the descriptions that the simulator takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from specsim.checks import Floats, UnsupportedError
from specsim.serving.acceptance import LAW, TRACE, RoundAcceptance
from specsim.serving.analytic.model_times import model_times
from specsim.serving.analytic.offered import Offered
from specsim.serving.analytic.replica import MOST, Replica
from specsim.serving.analytic.rounds import RoundCounts
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.kv_groups import group_table, mean_blocks
from specsim.serving.engines.settings import VLLM, EngineSettings, ServingEngine
from specsim.serving.requests import Requests
from specsim.serving.step_model import StepModel


def replica_of(
    requests: Requests | Offered,
    engine: ServingEngine,
    step_model: StepModel,
    drafts: DraftPolicy | None = None,
    acceptance: RoundAcceptance | None = None,
) -> Replica:
    """One replica of a set-up, for requests like these; their times do not matter.

    The cap is the least of the engine's sequences, the requests of the mean context that the KV
    cache holds and those whose tokens fit into a step's budget, with the drafts of so many.

    UnsupportedError where not even one request fits, and of draft lengths that follow acceptance.
    """
    drafts = drafts or DraftPolicy.off()
    if drafts.adaptive is not None:
        raise UnsupportedError(
            "draft lengths that follow acceptance have no law here: simulate them (specsim serve)"
        )
    offered = requests if isinstance(requests, Offered) else Offered.of(requests)
    settings = engine.settings(drafts)
    if not settings.caching:
        offered = replace(offered, shared=0.0)  # whatever prompts begin with, each is read whole
    # Blocks of a request at its mean context: the last one is half full in the mean.
    mean_tokens = offered.mean_context + 1.0 + settings.lookahead
    held = mean_tokens / settings.block_size + 0.5
    if engine.kv_groups:
        held = mean_blocks(group_table(engine.kv_groups, settings.block_size), mean_tokens)
    # The first of them need not leave the watermark free.
    at_first = min(settings.blocks / held, 1.0)
    cache = max((settings.blocks - settings.watermark_blocks) / held, at_first)
    limits = {"sequences": float(settings.max_seqs), "cache": cache}
    if settings.kind == VLLM:  # SGLang's budget is of prompts
        limits["budget"] = _within_budget(settings, drafts)
    binds = min(limits, key=lambda name: limits[name])
    cap = min(int(limits[binds]), MOST)
    if cap < 1:
        raise UnsupportedError(
            f"not even one request fits: of {offered.mean_context:,.0f} tokens in the mean, with "
            f"{settings.blocks * settings.block_size:,} tokens of KV cache and "
            f"{settings.budget:,} tokens a step"
        )
    # Those of SGLang are cut where a step ends.
    threshold = settings.chunk if settings.kind == VLLM else 0
    return Replica(
        times=model_times(step_model, engine, drafts, offered, cap),
        gammas=drafts.gammas(cap),
        laws=round_laws(acceptance),
        offered=offered,
        binds=binds,
        frontend_s=step_model.frontend_s,
        frontend_decode_s=step_model.frontend_decode_s,
        frontend_prompt_s=step_model.frontend_prompt_s,
        late=settings.asynchronous,
        cuts_prompts=0 < threshold < int(offered.prompt_tokens.max()),
    )


def _within_budget(settings: EngineSettings, drafts: DraftPolicy) -> float:
    """How many requests may decode in a step as their number grows one by one: what more of them
    would take with shorter drafts does not matter beyond the first number that does not fit.
    """
    most = min(settings.max_seqs, MOST)
    widths = 1 + drafts.gammas(most) + settings.draft_slots
    beyond = np.flatnonzero(np.arange(most + 1) * widths > settings.budget)
    return float(beyond[0] - 1) if beyond.size else float("inf")


def round_laws(acceptance: RoundAcceptance | None) -> Callable[[int], RoundCounts]:
    """The law of a round by its drafts.  Of traces and recorded lengths it is that of all rounds of
    all texts, as if those of one request were independent.
    """

    @cache
    def law(gamma: int) -> RoundCounts:
        if not gamma or acceptance is None:
            return RoundCounts(np.ones(1))
        if acceptance.kind == LAW:
            return RoundCounts.of_survival(acceptance.values[gamma - 1], gamma)
        return RoundCounts(_replayed(acceptance, gamma))

    return law


def _replayed(acceptance: RoundAcceptance, gamma: int) -> Floats:
    """P(N = n) of the rounds of texts, from the chance that a round begins at each token."""
    total = np.zeros(gamma + 1)
    for first, last in zip(acceptance.starts[:-1], acceptance.starts[1:], strict=True):
        values = acceptance.values[first:last]
        begins = np.zeros(values.size + gamma + 1)
        begins[0] = 1.0
        for token in range(values.size):
            chance = begins[token]
            if acceptance.kind == TRACE:
                stands = np.ones(gamma + 1)
                # Behind its end a text begins again.
                places = np.arange(token, token + gamma)
                stands[1:] = np.cumprod(np.take(values, places, mode="wrap"))
                law = stands - np.append(stands[1:], 0.0)
            else:
                law = np.zeros(gamma + 1)
                law[min(int(values[token]), gamma + 1) - 1] = 1.0
            total += chance * law
            begins[token + 1 : token + gamma + 2] += chance * law
    found: Floats = total / total.sum()
    return found
