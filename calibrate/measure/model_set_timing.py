"""What runs of any number of models cost, as ratios to runs of plain decoding beside them.

A model's run is slower right after another model has used the caches of the processor (by half,
for a small draft), so every run is timed twice: after a run of another model and after its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch

from calibrate.decode.engine import CachedModel
from calibrate.measure.trace import OVERHEAD, generator
from calibrate.models.sampling import Sampling
from specsim.hardware.repeats import PassDraws, Repeats
from specsim.hardware.run_time_fit import FittedRunTimes, GridPoint
from specsim.laws import TARGET
from specsim.predict.measured import RunTimes
from specsim.predict.replay.run_counts import RunKind

# Seconds of a run and of the plain run beside it, by model, whether another one ran before, new
# tokens and context.
Samples = defaultdict[tuple[Any, ...], list[tuple[float, float]]]

# Widths of the runs of a party, as far as they are needed.
_WIDTHS = (1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


@torch.inference_mode()
def sample_model_set(
    models: Mapping[str, CachedModel],
    context: int,
    widest: float,
    random: np.random.Generator,
    samples: Samples,
) -> None:
    """Every model on every width at one context, after a run of another model and after its own.

    widest : the widest run that will have to be priced
    models : the target under its name ``specsim.laws.TARGET``, and all that draft
    """
    draws = generator(next(iter(models.values())).device, OVERHEAD)
    target = models[TARGET]
    drafts = [model for name, model in models.items() if name != TARGET]
    longest = min(model.context for model in models.values())
    needed = next((width for width in _WIDTHS if width >= widest), _WIDTHS[-1])
    widths = [width for width in _WIDTHS if width <= min(needed, longest - context)]
    text = random.integers(target.vocabulary, size=context + max(widths) + 1)
    ids = torch.from_numpy(text)[None].to(target.device)
    for model in models.values():
        model.prefill(text[: context + 1].tolist())
    order = [(name, width) for name in models for width in widths]
    for index in random.permutation(len(order)).tolist():
        name, width = order[index]
        model = models[name]
        before = target
        if name == TARGET and drafts:
            before = drafts[int(random.integers(len(drafts)))]
        # The second of two runs of the target is one of plain decoding.
        for _ in range(2):
            plain = _timed(target, ids[:, context : context + 1], draws)
            target.forget(1)
        _timed(before, ids[:, context : context + 1], draws)
        before.forget(1)
        for fresh in (True, False):
            took = _timed(model, ids[:, context : context + width], draws)
            model.forget(width)
            samples[name, fresh, width, context].append((took, plain))


@dataclass(frozen=True)
class ModelSetTimes:
    """Run times by kind of run, smoothed as those of a profile are.

    drawn : the same as far as the repeats leave it open, a last axis of draws on the seconds
    """

    best: Mapping[RunKind, RunTimes]
    drawn: Mapping[RunKind, RunTimes]


def price_runs(passes: Sequence[Samples]) -> ModelSetTimes:
    """Of what ``sample_model_set`` found in two passes or more."""
    plain: dict[int, list[float]] = defaultdict(list)
    found: dict[tuple[Any, ...], list[tuple[float, int]]] = defaultdict(list)
    for number, samples in enumerate(passes):
        for what, pairs in samples.items():
            plain[what[-1]] += [beside for _, beside in pairs]
            found[what] += [(took / beside, number) for took, beside in pairs]
    draws = PassDraws(tuple(range(len(passes))))
    best, drawn = {}, {}
    for kind in {RunKind(*key[:2]) for key in found}:
        points = []
        for (name, fresh, width, context), ratios in found.items():
            if (name, fresh) == kind:
                repeats = Repeats.of(*zip(*ratios, strict=True))
                seconds = median(plain[context]) * repeats.mean
                points.append(GridPoint(width, 1, context, seconds, repeats.over_mean))
        times = FittedRunTimes.of(points)
        contexts = sorted({point.context for point in points})
        # Near the end of a context the widest runs have no room: widths that all contexts have.
        widths = [
            width
            for width in sorted({point.tokens for point in points})
            if sum(point.tokens == width for point in points) == len(contexts)
        ]
        cells = [[(width, 1, context) for context in contexts] for width in widths]
        where = np.array(widths, float), np.array(contexts, float)
        best[kind] = RunTimes(*where, np.array([[times(*cell) for cell in row] for row in cells]))
        drawn[kind] = RunTimes(
            *where, np.array([[times.drawn(*cell, draws) for cell in row] for row in cells])
        )
    return ModelSetTimes(best, drawn)


def _timed(model: CachedModel, ids: torch.Tensor, random: torch.Generator) -> float:
    """Seconds of a run, followed by the sampling that decoding does between runs, untimed."""
    before = model.runs.seconds
    Sampling(1.0).draw(model.read(ids), random)
    return model.runs.seconds - before
