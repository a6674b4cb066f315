"""Acceptance of the trained pair and of n-grams, from text of the target, on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from calibrate.batch.ragged import RaggedModel
from calibrate.decode.verification import draw_any
from calibrate.measure.trace import statistics
from calibrate.models.sampling import Sampling
from calibrate.suite.plan import SEED, PairPlan

# Natural logarithm that stands for a probability of zero, which JSON cannot say.
_NEVER = -100.0


def held_out_prompts(held_out: torch.Tensor, count: int, tokens: int) -> list[list[int]]:
    """Spread evenly over the held-out text."""
    starts = np.linspace(0, len(held_out) - tokens - 1, count).astype(int)
    row = held_out.cpu()
    return [row[start : start + tokens].tolist() for start in starts]


@torch.inference_mode()
def trace(
    target: Any,
    draft: Any,
    train: torch.Tensor,
    prompts: Sequence[Sequence[int]],
    temperature: float,
    plan: PairPlan,
) -> dict[str, Any]:
    """Columns of the trace of every request one after the other, and the prompts.

    Columns as in ``specsim.traces``: at temperature 0 ``argmax_equal`` alone of each drafter, else
    ``logp_target`` and ``logp_draft`` and ``beta`` of each drafter.
    """
    sampling = Sampling(temperature)
    slots = plan.prompt_tokens + plan.new_tokens
    large = RaggedModel(target, len(prompts), slots)
    random = torch.Generator(large.device).manual_seed(SEED)
    tokens, logits = _continued(large, prompts, plan.new_tokens, sampling, random)
    del large
    small = RaggedModel(draft, len(prompts), slots)
    small.prefill(prompts)
    last = torch.tensor([[prompt[-1]] for prompt in prompts], device=small.device)
    before = torch.cat([last, tokens[:, :-1]], dim=1)
    emitted, seen = tokens.flatten(), logits.flatten(0, 1)
    columns: dict[str, Any] = {"prompts": [list(prompt) for prompt in prompts]}
    columns["token"] = emitted.tolist()
    drafters = {"draft": small.read(before).flatten(0, 1), **_counted(train, before, plan)}
    for name, thought in drafters.items():
        found = statistics(seen, thought, emitted, sampling)
        if sampling.greedy:
            columns[name] = {"argmax_equal": found["argmax_equal"].tolist()}
        else:
            columns["logp_target"] = found["logp_target"].tolist()
            logp = np.maximum(found["logp_draft"], _NEVER)
            columns[name] = {"logp_draft": logp.tolist(), "beta": found["beta"].tolist()}
    return columns


def accepted(columns: Mapping[str, Any], drafter: str) -> np.ndarray[Any, Any]:
    """a_t of every token, shape (requests, new tokens): the chance that a draft of it survives."""
    found = columns[drafter]
    if "argmax_equal" in found:
        chance = np.array(found["argmax_equal"], dtype=float)
    else:
        gap = np.array(found["logp_draft"]) - np.array(columns["logp_target"])
        chance = np.exp(np.minimum(gap, 0.0))
    return chance.reshape(len(columns["prompts"]), -1)


def survival(columns: Mapping[str, Any], gamma_max: int) -> list[float]:
    """S_1..S_gamma_max of the draft, every position with so many tokens left a start alike."""
    windows = np.lib.stride_tricks.sliding_window_view(
        accepted(columns, "draft"), gamma_max, axis=1
    )
    curve: list[float] = windows.cumprod(axis=-1).mean(axis=(0, 1)).tolist()
    return curve


def _continued(
    target: RaggedModel,
    prompts: Sequence[Sequence[int]],
    count: int,
    sampling: Sampling,
    random: torch.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``count`` tokens of the target for each prompt, (R, T), and the logits, (R, T, V)."""
    target.prefill(prompts)
    ids = torch.tensor([[prompt[-1]] for prompt in prompts], device=target.device)
    tokens, seen = [], []
    for _ in range(count):
        logits = target.read(ids)[:, -1]
        ids = (
            logits.argmax(dim=-1, keepdim=True)
            if sampling.greedy
            else draw_any(sampling.probabilities(logits), random)
        )
        tokens.append(ids)
        seen.append(logits)
    return torch.cat(tokens, dim=1), torch.stack(seen, dim=1)


def _counted(train: torch.Tensor, before: torch.Tensor, plan: PairPlan) -> dict[str, torch.Tensor]:
    """Logits of the n-gram drafters behind the tokens ``before``, (N, V) each."""
    size = plan.vocabulary
    rows = before.flatten()
    single = torch.bincount(train, minlength=size).float()
    single /= single.sum()
    pairs = torch.bincount(train[:-1] * size + train[1:], minlength=size * size).view(size, size)
    # One made-up count, spread as single tokens are: a token that nothing follows has a law too.
    return {
        "unigram": single.log().expand(len(rows), size),
        "bigram": (pairs[rows] + single).log(),
    }
