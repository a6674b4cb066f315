"""Batches decoded at a synthetic acceptance, and what was predicted of them.

Wall-clock needs no trained weights once it is given how many tokens a block gains, so this tests
the prices alone: the grid that was measured before, run by run, against segments of decoding.
Before and after every segment there are plain steps, and it is their ratio that is compared: a
machine that slows down slows both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from calibrate.batch.cache import BUCKET
from calibrate.batch.ragged import RaggedModel, release_unused
from calibrate.batch.synthetic import Timed, decode_synthetic
from calibrate.measure.grid import BLOCKS, room
from specsim.batching.cost import LoadCost
from specsim.batching.drawn_cost import DrawnLoadCost
from specsim.batching.point import batch_point
from specsim.checkpoint import Checkpoint
from specsim.intervals import DRAWS, Bootstrap, Interval, around
from specsim.optimizers.search import fastest
from specsim.predict.elasticity import NOTHING_SAID, Elasticities
from specsim.predict.error_decomposition import BlockTiming, decompose_error

# Every so many rounds, draft lengths that are slower beyond doubt are found; until then they sit
# out all rounds but the last.  So most rounds go to those that the best is among.
_ROUNDS = 8
_BEYOND_DOUBT = 0.99
# A grid does not say which of its runs take longer where a plain step does.
_MOVES = Elasticities(*3 * (NOTHING_SAID.elasticity,))

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Segments:
    """What was decoded of one cell with one draft length.

    timed : one segment a round; of plain decoding as many as stand between the others
    plain_s : seconds of a plain step beside each segment, before and after it
    """

    timed: tuple[Timed, ...]
    plain_s: tuple[float, ...]

    @property
    def plain_steps(self) -> Floats:
        """Blocks in plain steps, one for each segment, shape (T,)."""
        return np.array([each.seconds / each.blocks for each in self.timed]) / self.plain_s

    def part(self, name: str) -> float:
        """What of a block, in plain steps, is seconds, draft_s, target_s or overhead_s.

        The mean of the middle half of the segments, by the length of their blocks, so that the
        parts make up the whole and what was disturbed does not count.
        """
        middle = np.argsort(self.plain_steps, kind="stable")[_middle(len(self.timed))]
        parts = [getattr(each, name) / each.blocks for each in self.timed]
        return float(np.mean((np.array(parts) / self.plain_s)[middle]))


def validate_cell(
    target: Any,
    draft: Any,
    batch: int,
    context: int,
    gammas: Sequence[int],
    survival: Sequence[float],
    temperature: float,
    rounds: int,
    cost: DrawnLoadCost,
    error: float | None,
    seed: int,
    checkpoint: Checkpoint,
    **drawn: Any,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured of one cell; see ``decode_cell`` and ``compare_cell``.

    checkpoint : keeps the rounds that were decoded
    drawn : top_k, top_p and acceptance_law of ``decode_synthetic``
    """
    mode = cost.cost.mode
    compiled = mode == "compiled"
    decoded = decode_cell(
        *(target, draft, batch, context, gammas, survival, temperature, rounds, compiled, seed),
        checkpoint,
        **drawn,
    )
    compared = compare_cell(decoded, cost.cost, survival, batch, context, cost, error)
    return [{"temperature": temperature, "mode": mode, **row} for row in compared]


def decode_cell(
    target: Any,
    draft: Any,
    batch: int,
    context: int,
    gammas: Sequence[int],
    survival: Sequence[float],
    temperature: float,
    rounds: int,
    compiled: bool,
    seed: int,
    checkpoint: Checkpoint,
    **drawn: Any,
) -> dict[int, Segments]:
    """Segments of decoding by draft length, plain decoding (0) among them.

    A round is a function of the settings, its number and the draft lengths that take part.

    target, draft : models of transformers, on one device
    rounds : segments of each draft length that may be the best under ``survival``; slower ones
        have fewer, spread over the same time
    checkpoint : keeps the rounds that were decoded
    drawn : top_k, top_p and acceptance_law of ``decode_synthetic``
    """

    @cache
    def ready() -> tuple[RaggedModel, RaggedModel]:
        """The models, after a round that compiles, chooses kernels and takes memory."""
        shared = min(model.config.get_text_config().vocab_size for model in (target, draft))
        slots = context + room(max(gammas))
        release_unused(next(target.parameters()).device)
        large, small = (
            RaggedModel(model, batch, slots, compiled=compiled, vocabulary=shared)
            for model in (target, draft)
        )
        source = torch.Generator(device=large.device).manual_seed(seed)
        for model in (large, small):
            model.fill(context, source)
        decoded(large, small, 0, gammas)
        return large, small

    tokens = 1.0 + np.cumsum([0.0, *survival])

    def decoded(
        large: RaggedModel, small: RaggedModel, number: int, gammas: Sequence[int]
    ) -> list[Timed]:
        """The segments of a round in order: plain, one draft length, plain, another, plain ..."""
        order = [0]
        for gamma in np.random.default_rng([seed, batch, context, number]).permutation(gammas):
            order += [int(gamma), 0]
        timed = []
        for place, gamma in enumerate(order):
            # Texts grow; in the middle of the segment they have the context that is asked for,
            # unless they would begin in another bucket of the caches.
            middle = context - round((BLOCKS - 1) / 2 * tokens[gamma])
            start = max(1, context // BUCKET * BUCKET, middle)
            for model in (large, small):
                model.cut(start)
            # What a draft length accepts does not depend on which others take part.
            names = [seed, batch, context, number, gamma, 0 if gamma else place]
            given = gamma, survival, BLOCKS, temperature, np.random.default_rng(names)
            timed.append(decode_synthetic(large, small, *given, **drawn))
        return timed

    def decode_round(number: int, gammas: Sequence[int]) -> list[Timed]:
        return decoded(*ready(), number, gammas)

    found: dict[int, list[tuple[Timed, float]]] = {gamma: [] for gamma in [0, *gammas]}
    racing = gammas
    for number in range(1, rounds + 1):
        name = f"{temperature:g}-{batch}-{context}-{number}.json"
        make = partial(decode_round, number, racing if number % _ROUNDS else gammas)
        timed = checkpoint.keep_json(name, make, list[Timed])
        for before, segment, after in zip(timed[::2], timed[1::2], timed[2::2], strict=False):
            plain_s = (before.seconds + after.seconds) / (before.blocks + after.blocks)
            found[segment.gamma].append((segment, plain_s))
            found[0].append((after, plain_s))
        if number % _ROUNDS == 0:
            racing = _racing(_segments(found), survival)
    return _segments(found)


def _segments(found: Mapping[int, Sequence[tuple[Timed, float]]]) -> dict[int, Segments]:
    return {gamma: Segments(*zip(*beside, strict=True)) for gamma, beside in found.items()}


def _racing(decoded: Mapping[int, Segments], survival: Sequence[float]) -> list[int]:
    """Draft lengths that are not slower than another one, or than plain decoding, beyond doubt."""
    sides = (1 - _BEYOND_DOUBT) / 2, (1 + _BEYOND_DOUBT) / 2
    ranges = {
        gamma: np.quantile(_drawn_speeds(decoded, survival, gamma), sides)
        for gamma in decoded
        if gamma
    }
    to_beat = max(1.0, *(low for low, _ in ranges.values()))
    # One at least goes on, so that its own speedup is known well.
    best = max(ranges, key=lambda gamma: ranges[gamma].sum())
    return [gamma for gamma in ranges if gamma == best or ranges[gamma][1] >= to_beat]


def compare_cell(
    decoded: Mapping[int, Segments],
    cost: LoadCost,
    survival: Sequence[float],
    batch: int,
    context: int,
    drawn_cost: LoadCost | None = None,
    error: float | None = None,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, one per draft length of one cell.

    drawn_cost : the cost in draws, which ``predicted_low`` and ``predicted_high`` come of; without
        it nothing of the cost is left open
    error : half of the 95 % interval that the fit leaves cells which were not timed, as a share

    ``profile_plain_ms``, ``measured_plain_ms``: of a plain step in the grid, and now; where they
    differ, the machine is in another state, and the prediction's interval is wider.

    Tokens are the expected ones on both sides: which were drawn is chance and costs nothing, so
    ``error_acceptance`` is zero.  ``measured_best`` and ``predicted_best`` are the draft lengths
    of the cell that are fastest under ``survival``, with that synthetic acceptance (``specsim
    optimize`` replays the trace); ``loss`` is the share of speed that following the prediction
    costs, and ``segments`` their number.  Measured intervals (``low``, ``high``) are a bootstrap
    over them, too narrow with fewer than five; a ``loss_low`` of zero or less says that the two
    lengths cannot be told apart.
    """
    gammas = sorted(gamma for gamma in decoded if gamma)
    plain_step_s = float(np.median(decoded[0].plain_s))
    tokens = 1.0 + np.cumsum([0.0, *survival])
    speed = {gamma: float(tokens[gamma] / decoded[gamma].part("seconds")) for gamma in gammas}
    speed[0] = 1.0
    measured_best = fastest(speed)
    expected = {gamma: batch_point(survival, cost, gamma, batch, context) for gamma in [0, *gammas]}
    predicted_best = fastest({gamma: each.speedup for gamma, each in expected.items()})
    drawn = {gamma: _drawn_speeds(decoded, survival, gamma) for gamma in [0, *gammas]}
    loss = around(
        1 - speed[predicted_best] / speed[measured_best],
        1 - drawn[predicted_best] / drawn[measured_best],
    )
    rows = []
    for gamma in gammas:
        each, segments = expected[gamma], decoded[gamma]
        found = around(speed[gamma], drawn[gamma])
        predicted = _predicted(each.speedup, drawn_cost, error, (survival, gamma, batch, context))
        predicted = _moved(predicted, each.spent, plain_step_s)
        measured = BlockTiming(
            tokens=each.tokens_per_call,
            draft_s=plain_step_s * segments.part("draft_s"),
            verify_s=plain_step_s * segments.part("target_s"),
            overhead_s=plain_step_s * segments.part("overhead_s"),
            plain_step_s=plain_step_s,
        )
        blocks = sum(one.blocks for one in segments.timed)
        rows.append(
            {
                "batch": batch,
                "context": context,
                "gamma": gamma,
                "segments": len(segments.timed),
                "tokens_per_call": each.tokens_per_call,
                "drawn_tokens_per_call": sum(t.tokens for t in segments.timed) / blocks / batch,
                "predicted_speedup": each.speedup,
                "predicted_low": predicted.low,
                "predicted_high": predicted.high,
                "measured_speedup": found.best,
                "measured_low": found.low,
                "measured_high": found.high,
                "relative_error": each.speedup / found.best - 1,
                "profile_plain_ms": 1e3 * each.spent.plain_step_s,
                "measured_plain_ms": 1e3 * plain_step_s,
                "predicted_block_s": each.block_s,
                "measured_block_s": plain_step_s * segments.part("seconds"),
                **decompose_error(each.spent, measured),
                "predicted_best": predicted_best,
                "measured_best": measured_best,
                "loss": loss.best,
                "loss_low": loss.low,
                "loss_high": loss.high,
            }
        )
    return rows


def _predicted(
    speedup: float,
    drawn_cost: LoadCost | None,
    error: float | None,
    asked: tuple[Sequence[float], int, int, int],
) -> Interval[float]:
    """The speedup with what the repeats of the grid and its fit leave open, as logarithms."""
    reach = np.zeros(2)
    if drawn_cost is not None:
        survival, *where = asked
        found = np.asarray(batch_point(survival, drawn_cost, *where).speedup)
        reach = np.abs(np.log(np.quantile(found, [0.025, 0.975]) / speedup))
    low, high = np.exp(np.hypot(reach, np.log1p(error or 0.0)))
    return Interval(speedup / low, speedup, speedup * high)


def _moved(predicted: Interval[float], spent: BlockTiming, plain_step_s: float) -> Interval[float]:
    """The prediction where a plain step takes so long."""
    seconds = np.array([spent.draft_s, spent.verify_s, spent.overhead_s])
    moves = _MOVES.speedup(np.array([0.0, spent.plain_step_s, 0.0]), seconds, 0.0)
    return moves.moved(predicted, plain_step_s / spent.plain_step_s)


def _drawn_speeds(decoded: Mapping[int, Segments], survival: Sequence[float], gamma: int) -> Floats:
    """Speedups of a bootstrap over segments, (D,), 1 for plain decoding.

    Draft lengths with the same number of segments have the same ones drawn, so that they compare.
    """
    if not gamma:
        return np.ones(DRAWS)
    count = len(decoded[gamma].timed)
    drawn = decoded[gamma].plain_steps[Bootstrap(count).drawn]
    blocks = np.sort(drawn, axis=1)[:, _middle(count)].mean(axis=1)
    speeds: Floats = (1.0 + sum(survival[:gamma])) / blocks
    return speeds


def _middle(count: int) -> slice:
    """Of so many in order, the middle half, and all of fewer than four."""
    return slice(count // 4, count - count // 4)
