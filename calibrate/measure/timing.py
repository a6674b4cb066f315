"""Run times: warm, waited for, medians with quartiles, in the rhythm of real decoding.

A model's run is slower right after another model has used the caches of the processor (by half,
for a small draft), so runs are not timed in a tight loop of their own: they are timed in blocks of
gamma draft runs and one target run, as decoding interleaves them, and the first draft run of a
block is kept apart from the others.  Gammas are interleaved, so that a machine that slows
down slows all of them alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from calibrate.decode.engine import CachedModel, DecodeRequest
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.measure.grid import overhead_gammas
from calibrate.measure.trace import OVERHEAD, generator
from calibrate.models.sampling import Sampling
from specsim.acceptance import AcceptanceLaw
from specsim.checkpoint import Checkpoint
from specsim.laws import TARGET
from specsim.predict.measured import RunTimes
from specsim.predict.replay.run_counts import RunKind
from specsim.profiles import Overhead, Role, RunTime

# Blocks of one gamma in a row; the first is the warm block, which follows another rhythm and is not
# counted.
_TIMED_BLOCKS = 3

# Seconds by what was run; each function that samples says in which terms.
Samples = defaultdict[tuple[Any, ...], list[float]]


def time_runs(
    target: CachedModel,
    draft: CachedModel,
    contexts: Sequence[int],
    gamma_max: int,
    repeats: int,
    seed: int,
    checkpoint: Checkpoint,
    advance: Callable[[], None] = lambda: None,
) -> list[RunTime]:
    """Run times of both models on 1..gamma_max + 1 new tokens at each context."""

    def measured(turn: int, context: int) -> list[Any]:
        found: Samples = defaultdict(list)
        random = np.random.default_rng([seed, turn, context])
        sample_runs(target, draft, context, gamma_max, random, found)
        return list(found.items())

    samples: Samples = defaultdict(list)
    for turn in range(repeats):
        for context in contexts:
            name = f"runs-{turn}-{context}.json"
            for what, seconds in checkpoint.keep_json(name, partial(measured, turn, context)):
                samples[tuple(what)] += seconds
            advance()
    return summarize_runs(samples)


@torch.inference_mode()
def sample_runs(
    target: CachedModel,
    draft: CachedModel,
    context: int,
    gamma_max: int,
    random: np.random.Generator,
    samples: Samples,
) -> None:
    """Every gamma once at one context.

    Appends to ``samples``, by model, the model that ran before, new tokens, context.
    """
    text = random.integers(target.vocabulary, size=context + gamma_max + 2)
    ids = torch.from_numpy(text)[None].to(target.device)
    draws = generator(target.device, OVERHEAD)
    for model in (target, draft):
        model.prefill(text[: context + 1].tolist())
    for gamma in random.permutation(gamma_max + 1).tolist():
        for block in range(_TIMED_BLOCKS):
            for step in range(gamma):
                # After a bonus token the draft has two tokens to read: every other block's case.
                width = 2 if step == 0 and block % 2 else 1
                took = _timed(draft, ids[:, context : context + width], draws)
                if block:
                    samples["draft", "draft" if step else "target", width, context].append(took)
            took = _timed(target, ids[:, context : context + gamma + 1], draws)
            if block:
                before: Role = "draft" if gamma else "target"
                samples["target", before, gamma + 1, context].append(took)
            draft.forget(gamma + block % 2 if gamma else 0)
            target.forget(gamma + 1)
    for width in range(3, gamma_max + 2):
        for block in range(_TIMED_BLOCKS):
            took = _timed(draft, ids[:, context : context + width], draws)
            draft.forget(width)
            if block:
                samples["draft", "draft", width, context].append(took)


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

    Appends to ``samples``, by model, whether another one ran before, new tokens, context.

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
        _timed(before, ids[:, context : context + 1], draws)
        before.forget(1)
        for fresh in (True, False):
            took = _timed(model, ids[:, context : context + width], draws)
            model.forget(width)
            samples[name, fresh, width, context].append(took)


def price_runs(samples: Samples) -> dict[RunKind, RunTimes]:
    """Medians by kind of run, of what ``sample_model_set`` found."""
    tables = {}
    for kind in {RunKind(*key[:2]) for key in samples}:
        found = [key[2:] for key in samples if key[:2] == kind]
        contexts = sorted({context for _, context in found})
        # Near the end of a context the widest runs have no room: widths that all contexts have.
        widths = [
            width
            for width in sorted({width for width, _ in found})
            if all((width, context) in found for context in contexts)
        ]
        seconds = [
            [np.median(samples[(*kind, width, context)]) for context in contexts]
            for width in widths
        ]
        tables[kind] = RunTimes(
            np.array(widths, float), np.array(contexts, float), np.array(seconds)
        )
    return tables


def _timed(model: CachedModel, ids: torch.Tensor, random: torch.Generator) -> float:
    """Seconds of a run, followed by the sampling that decoding does between runs, untimed."""
    before = model.runs.seconds
    Sampling(1.0).draw(model.read(ids), random)
    return model.runs.seconds - before


def summarize_runs(samples: Samples) -> list[RunTime]:
    """Medians and quartiles of what ``sample_runs`` found."""
    rows = []
    for (model, follows, tokens, context), seconds in sorted(samples.items()):
        repeats = len(seconds)
        rows.append(RunTime(model, follows, tokens, context, 1, repeats, **_quartiles(seconds)))
    return rows


def _quartiles(seconds: Sequence[float]) -> dict[str, float]:
    """The median and the quartiles around it, as the rows of a profile call them."""
    low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75]).tolist()
    return {"median_s": median, "low_s": low, "high_s": high}


def time_overhead(
    target: CachedModel,
    draft: CachedModel,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    samplings: Sequence[Sampling],
    gamma_max: int,
    seed: int,
    checkpoint: Checkpoint,
    advance: Callable[[], None] = lambda: None,
    acceptance_law: AcceptanceLaw = "ratio-test",
) -> list[Overhead]:
    """Host seconds of a block outside the model runs, from real decoding of a few requests."""

    def measured(number: int, sampling: Sampling, gamma: int) -> tuple[float, int]:
        """Seconds of a block, and the number of blocks."""
        random = generator(target.device, OVERHEAD, seed, number, gamma)
        request = DecodeRequest(prompts[number], max_new_tokens, sampling, random)
        if gamma:
            decoding = speculative(target, draft, request, gamma, acceptance_law=acceptance_law)
        else:
            decoding = plain(target, request)
        decoded = decoding.finish()
        return decoded.overhead_s / decoded.calls, decoded.calls

    samples: dict[tuple[float, int], list[tuple[float, int]]] = defaultdict(list)
    for number in range(len(prompts)):
        for sampling in samplings:
            for gamma in overhead_gammas(gamma_max):
                name = f"overhead-{sampling.temperature:g}-{number}-{gamma}.json"
                found = checkpoint.keep_json(name, partial(measured, number, sampling, gamma))
                samples[sampling.temperature, gamma].append(found)
                advance()
    rows = []
    for (temperature, gamma), decodings in sorted(samples.items()):
        seconds, calls = zip(*decodings, strict=True)
        blocks = sum(calls)
        rows.append(Overhead(temperature, gamma, len(decodings), blocks, **_quartiles(seconds)))
    return rows
