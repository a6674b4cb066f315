"""Batches decoded at a forced acceptance, and what was predicted of them.

Wall-clock needs no trained weights once it is given how many tokens a block gains, so this judges
the prices alone: the grid that was measured before, run by run, against stretches of decoding.
Before and after every stretch there are plain steps, and it is their ratio that is judged: a
machine that slows down slows both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from calibrate.batch.cache import BUCKET
from calibrate.batch.ragged import RaggedModel
from calibrate.batch.synthetic import Timed, forced
from calibrate.measure.grid import BLOCKS, room
from specsim.batching.cost import LoadCost
from specsim.batching.point import batch_point
from specsim.predict.error_decomposition import BlockTiming, decompose_error

_BOOTSTRAP_DRAWS = 1000
# Every so many turns, draft lengths that are slower beyond doubt are found; until then they sit out
# all turns but the last.  So most turns go to those that the best is among.
_ROUND = 8
_BEYOND_DOUBT = 0.99

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Stretches:
    """What was decoded of one cell with one draft length.

    timed : one stretch a turn; of plain decoding as many as stand between the others
    plain_s : seconds of a plain step beside each stretch, before and after it
    """

    timed: tuple[Timed, ...]
    plain_s: tuple[float, ...]

    @property
    def plain_steps(self) -> Floats:
        """Blocks in plain steps, one for each stretch, shape (T,)."""
        return np.array([each.seconds / each.blocks for each in self.timed]) / self.plain_s

    def part(self, name: str) -> float:
        """What of a block, in plain steps, is seconds, draft_s, target_s or overhead_s.

        The mean of the middle half of the stretches, by the length of their blocks, so that the
        parts make up the whole and what was disturbed does not count.
        """
        middle = np.argsort(self.plain_steps, kind="stable")[_middle(len(self.timed))]
        parts = [getattr(each, name) / each.blocks for each in self.timed]
        return float(np.mean((np.array(parts) / self.plain_s)[middle]))


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
    turns : stretches of each draft length that may be the best under ``survival``; slower ones
        have fewer, spread over the same time
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

    tokens = 1.0 + np.cumsum([0.0, *survival])

    def stretch(gamma: int) -> Timed:
        # Texts grow; in the middle of the stretch they have the context that is asked for, unless
        # they would begin in another bucket of the caches.
        middle = context - round((BLOCKS - 1) / 2 * tokens[gamma])
        start = max(1, context // BUCKET * BUCKET, middle)
        for model in models:
            model.cut(start)
        return forced(large, small, gamma, survival, BLOCKS, temperature, random)

    found: dict[int, list[tuple[Timed, float]]] = {gamma: [] for gamma in [0, *gammas]}
    racing = gammas
    # The first turn compiles, chooses kernels and takes memory.
    for turn in range(turns + 1):
        before = stretch(0)
        for gamma in random.permutation(racing if turn % _ROUND else gammas).tolist():
            timed, after = stretch(gamma), stretch(0)
            if turn:
                plain_s = (before.seconds + after.seconds) / (before.blocks + after.blocks)
                found[gamma].append((timed, plain_s))
                found[0].append((after, plain_s))
            before = after
        if turn and turn % _ROUND == 0:
            racing = _racing(_stretches(found), survival)
    return _stretches(found)


def _stretches(found: Mapping[int, Sequence[tuple[Timed, float]]]) -> dict[int, Stretches]:
    return {gamma: Stretches(*zip(*beside, strict=True)) for gamma, beside in found.items()}


def _racing(decoded: Mapping[int, Stretches], survival: Sequence[float]) -> list[int]:
    """Draft lengths that are not slower than another one, or than plain decoding, beyond doubt."""
    sides = (1 - _BEYOND_DOUBT) / 2, (1 + _BEYOND_DOUBT) / 2
    ranges = {
        gamma: np.quantile(_drawn_speeds(decoded, survival, gamma, seed=0), sides)
        for gamma in decoded
        if gamma
    }
    to_beat = max(1.0, *(low for low, _ in ranges.values()))
    # One at least goes on, so that its own speedup is known well.
    best = max(ranges, key=lambda gamma: ranges[gamma].sum())
    return [gamma for gamma in ranges if gamma == best or ranges[gamma][1] >= to_beat]


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
    of the cell that are fastest under ``survival``, as acceptance is forced to be (``specsim
    optimize`` replays the trace); ``loss`` is the share of speed that following the prediction
    costs, and ``turns`` the number of stretches.  Intervals (``low``, ``high``) are a bootstrap
    over turns, too narrow with fewer than five; a ``loss_low`` of zero or less says that the two
    lengths cannot be told apart.
    """
    gammas = sorted(gamma for gamma in decoded if gamma)
    plain_step_s = float(np.median(decoded[0].plain_s))
    tokens = 1.0 + np.cumsum([0.0, *survival])
    speed = {gamma: float(tokens[gamma] / decoded[gamma].part("seconds")) for gamma in gammas}
    speed[0] = 1.0
    measured_best = max(speed, key=lambda gamma: (speed[gamma], -gamma))
    expected = {gamma: batch_point(survival, cost, gamma, batch, context) for gamma in [0, *gammas]}
    predicted_best = max(expected, key=lambda gamma: (expected[gamma].speedup, -gamma))
    drawn = {gamma: _drawn_speeds(decoded, survival, gamma, seed) for gamma in [0, *gammas]}
    loss = 1 - drawn[predicted_best] / drawn[measured_best]
    loss_low, loss_high = np.quantile(loss, [0.025, 0.975]).tolist()
    rows = []
    for gamma in gammas:
        each, stretches = expected[gamma], decoded[gamma]
        low, high = np.quantile(drawn[gamma], [0.025, 0.975]).tolist()
        measured = BlockTiming(
            tokens=each.tokens_per_call,
            draft_s=plain_step_s * stretches.part("draft_s"),
            verify_s=plain_step_s * stretches.part("target_s"),
            overhead_s=plain_step_s * stretches.part("overhead_s"),
            plain_step_s=plain_step_s,
        )
        blocks = sum(one.blocks for one in stretches.timed)
        rows.append(
            {
                "batch": batch,
                "context": context,
                "gamma": gamma,
                "turns": len(stretches.timed),
                "tokens_per_call": each.tokens_per_call,
                "drawn_tokens_per_call": sum(t.tokens for t in stretches.timed) / blocks / batch,
                "predicted_speedup": each.speedup,
                "measured_speedup": speed[gamma],
                "measured_low": low,
                "measured_high": high,
                "relative_error": each.speedup / speed[gamma] - 1,
                "predicted_block_s": each.block_s,
                "measured_block_s": plain_step_s * stretches.part("seconds"),
                **decompose_error(each.spent, measured),
                "predicted_best": predicted_best,
                "measured_best": measured_best,
                "loss": 1 - speed[predicted_best] / speed[measured_best],
                "loss_low": loss_low,
                "loss_high": loss_high,
            }
        )
    return rows


def _drawn_speeds(
    decoded: Mapping[int, Stretches], survival: Sequence[float], gamma: int, seed: int
) -> Floats:
    """Speedups of a bootstrap over turns, (D,), 1 for plain decoding.

    Draft lengths with the same number of turns have the same turns drawn, so that they compare.
    """
    if not gamma:
        return np.ones(_BOOTSTRAP_DRAWS)
    turns = len(decoded[gamma].timed)
    draws = np.random.default_rng(seed).integers(turns, size=(_BOOTSTRAP_DRAWS, turns))
    blocks = np.sort(decoded[gamma].plain_steps[draws], axis=1)[:, _middle(turns)].mean(axis=1)
    speeds: Floats = (1.0 + sum(survival[:gamma])) / blocks
    return speeds


def _middle(count: int) -> slice:
    """Of so many in order, the middle half, and all of fewer than four."""
    return slice(count // 4, count - count // 4)
