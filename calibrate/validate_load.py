"""Batches decoded at a forced acceptance, and what was predicted of them.

Wall-clock needs no trained weights once it is given how many tokens a block gains, so this judges
the prices alone: the grid that was measured before, run by run, against stretches of decoding.
All draft lengths of a cell go in turns, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from calibrate.batch.forced import Timed, forced
from calibrate.batch.ragged import RaggedModel
from calibrate.grid import BLOCKS, room
from specsim.load import at_load, best_of_cell
from specsim.load_cost import LoadCost
from specsim.predict.budget import Spent, error_budget

_BOOTSTRAP_DRAWS = 1000


@dataclass(frozen=True)
class Stretches:
    """What was decoded of one cell with one draft length: one ``Timed`` a turn."""

    timed: tuple[Timed, ...]

    @property
    def block_s(self) -> np.ndarray[Any, Any]:
        """Seconds of a block in each turn, shape (T,)."""
        return np.array([each.seconds / each.blocks for each in self.timed])

    def mean(self, what: str) -> float:
        """Seconds of a block in ``what``: seconds, draft_s, target_s or overhead_s."""
        total = sum(getattr(each, what) for each in self.timed)
        return float(total / sum(each.blocks for each in self.timed))


def decode_cell(
    target: Any,
    draft: Any,
    batch: int,
    context: int,
    gammas: Sequence[int],
    survival: Sequence[float],
    temperature: float,
    turns: int,
    compiled: bool,
    seed: int,
) -> dict[int, Stretches]:
    """Stretches of decoding by draft length, plain decoding (0) among them.

    target, draft : models of transformers, on one device
    """
    shared = min(model.config.get_text_config().vocab_size for model in (target, draft))
    slots = context + room(max(gammas))
    models = large, small = [
        RaggedModel(model, batch, slots, compiled=compiled, vocabulary=shared)
        for model in (target, draft)
    ]
    random = np.random.default_rng([seed, batch, context])
    source = torch.Generator(device=large.device).manual_seed(seed)
    for model in models:
        model.fill(context, source)
    lengths = [0, *gammas]
    found: dict[int, list[Timed]] = {gamma: [] for gamma in lengths}
    # The first turn compiles, chooses kernels and takes memory.
    for turn in range(turns + 1):
        for gamma in random.permutation(lengths).tolist():
            for model in models:
                model.rewind(torch.tensor(model.known_lengths) - context)
            timed = forced(large, small, gamma, survival, BLOCKS, temperature, random)
            if turn:
                found[gamma].append(timed)
    return {gamma: Stretches(tuple(timed)) for gamma, timed in found.items()}


def compare_cell(
    decoded: Mapping[int, Stretches],
    cost: LoadCost,
    survival: Sequence[float],
    batch: int,
    context: int,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, one per draft length of one cell.

    Tokens are the expected ones on both sides: which were drawn is chance and costs nothing, so
    ``budget_acceptance`` is zero.  ``measured_best`` and ``predicted_best`` are the draft lengths
    of the cell that are fastest, ``loss`` is the share of speed that following the prediction
    costs.
    """
    gammas = sorted(gamma for gamma in decoded if gamma)
    plain = decoded[0]
    speed = {0: 1.0, **{gamma: _speedup(decoded, gamma, survival) for gamma in gammas}}
    measured_best = max(speed, key=lambda gamma: (speed[gamma], -gamma))
    predicted_best = best_of_cell(survival, cost, batch, context, max(gammas)).gamma
    turns = len(plain.timed)
    draws = np.random.default_rng(seed).integers(turns, size=(_BOOTSTRAP_DRAWS, turns))
    rows = []
    for gamma in gammas:
        expected = at_load(survival, cost, gamma, batch, context)
        stretches = decoded[gamma]
        ratio = plain.block_s[draws].sum(1) / stretches.block_s[draws].sum(1)
        low, high = np.quantile(expected.tokens_per_call * ratio, [0.025, 0.975]).tolist()
        measured = Spent(
            tokens=expected.tokens_per_call,
            draft_s=stretches.mean("draft_s"),
            verify_s=stretches.mean("target_s"),
            overhead_s=stretches.mean("overhead_s"),
            plain_step_s=plain.mean("seconds"),
        )
        blocks = sum(each.blocks for each in stretches.timed)
        rows.append(
            {
                "batch": batch,
                "context": context,
                "gamma": gamma,
                "tokens_per_call": expected.tokens_per_call,
                "drawn_tokens_per_call": sum(t.tokens for t in stretches.timed) / blocks / batch,
                "predicted_speedup": expected.speedup,
                "measured_speedup": speed[gamma],
                "measured_low": low,
                "measured_high": high,
                "relative_error": expected.speedup / speed[gamma] - 1,
                "predicted_block_s": expected.block_s,
                "measured_block_s": stretches.mean("seconds"),
                **error_budget(expected.spent, measured),
                "predicted_best": predicted_best,
                "measured_best": measured_best,
                "loss": 1 - speed.get(predicted_best, 1.0) / speed[measured_best],
            }
        )
    return rows


def _speedup(decoded: Mapping[int, Stretches], gamma: int, survival: Sequence[float]) -> float:
    """Measured seconds at the tokens that are expected: what was drawn is chance, and no cost."""
    tokens = 1.0 + float(np.sum(survival[:gamma]))
    return tokens * decoded[0].mean("seconds") / decoded[gamma].mean("seconds")
