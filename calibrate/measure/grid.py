"""What runs cost in a batch: a grid over new tokens, batch and context, in the rhythm of blocks.

A cell is one batch and one context; all draft lengths are timed in it, interleaved.  Machines drift
by tens of percent within seconds, CPUs above all, so plain steps stand between the draft lengths
and every run is kept with those beside it, and on a CPU the repeats of a cell are spread over
several passes through the grid.  A cell that was measured is kept in the work folder, so a grid
that was killed goes on where it was; a cell that cannot be measured is left out with its reason,
and the others are measured all the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import torch

from calibrate.batch.clock import Clock
from calibrate.batch.ragged import CompileError, RaggedModel, release_unused
from calibrate.batch.synthetic import decode_synthetic
from calibrate.decode.engine import wait
from calibrate.models.sampling import Sampling
from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checkpoint import Checkpoint
from specsim.checks import InvalidArgumentError, UnsupportedError, check_choice, integer

# Model, the model that ran just before, and new tokens.
Kind = tuple[str, str, int]
# What ran, its seconds, and those of the plain steps beside it.
Timed = tuple[Kind, float, float]
# Gives what a repeat of so high a number found, and measures it with the function if need be.
KeepRepeat = Callable[[int, Callable[[], list[Timed]]], list[Timed]]

# Blocks of one draft length, or plain steps, that are timed in a row; the first is the warm block,
# which follows another rhythm and is not counted.
_TIMED_BLOCKS = 3
# Blocks of a segment of decoding, which a cell has room for.
BLOCKS = 6
# Passes through the grid on a CPU, where nothing needs to be compiled anew for each.
_PASSES = 4
# Overhead is a small part of a block, so it is measured with so many times fewer repeats, and with
# so many at least.
_FEWER, _LEAST = 4, 3
# Contexts where none are asked for, as far as the models can read them.
_USUAL_CONTEXTS = (512, 4096)
# Why a cell is missing that another run with the same settings would measure.
OUT_OF_TIME = "out of time"
# How a line begins on a cell that counts as measured and has fewer repeats than were asked for.
UNFINISHED = "grid: measured in some of its passes only: "


@dataclass(frozen=True)
class GridSettings:
    """What is measured.

    repeats : times that a cell is measured; each gives two target runs of every width
    top_k, top_p, acceptance_law : how the overhead is decoded, at each of the temperatures
    """

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    gamma_max: int
    repeats: int
    temperatures: tuple[float, ...]
    modes: tuple[str, ...] = ("eager",)
    seed: int = 0
    top_k: int | None = None
    top_p: float | None = None
    acceptance_law: AcceptanceLaw = "ratio-test"

    def __post_init__(self) -> None:
        for name, values in (("batch", self.batches), ("context", self.contexts)):
            for value in values:
                integer(name, value, low=1)
        integer("gamma_max", self.gamma_max, low=1)
        integer("repeats", self.repeats, low=1)
        check_choice("acceptance_law", self.acceptance_law, ACCEPTANCE_LAWS)
        for temperature in self.temperatures:
            Sampling(temperature, self.top_k, self.top_p)  # checks them

    @property
    def cells(self) -> list[Cell]:
        """Small ones first, so that what fails for want of memory fails late."""
        return [
            Cell(mode, batch, context)
            for mode in self.modes
            for batch in sorted(set(self.batches))
            for context in sorted(set(self.contexts))
        ]

    def check_fits(self, context: int) -> None:
        """Refuse contexts that the models cannot read."""
        most = longest_context(context, self.gamma_max)
        for asked in self.contexts:
            if asked > most:
                raise InvalidArgumentError(
                    f"context must be <= {most} with these models and gamma_max "
                    f"{self.gamma_max}, got {asked}"
                )


@dataclass(frozen=True)
class Cell:
    """One batch and one context."""

    mode: str
    batch: int
    context: int

    @property
    def name(self) -> str:
        return f"{self.mode}-{self.batch}-{self.context}"


@dataclass(frozen=True)
class Grid:
    """What came of it; rows have the fields of RunTime, Overhead and Missing in
    ``specsim.profiles``.

    unfinished : cells that were measured in some of their passes, and why not in all
    """

    times: list[dict[str, Any]]
    overhead: list[dict[str, Any]]
    missing: list[dict[str, Any]]
    unfinished: dict[Cell, str]

    @property
    def out_of_time(self) -> bool:
        """Whether another run with the same settings would measure more."""
        reasons = [*(row["reason"] for row in self.missing), *self.unfinished.values()]
        return OUT_OF_TIME in reasons

    @property
    def notes(self) -> list[str]:
        """A line on every cell that is not finished."""
        return [
            f"{UNFINISHED}batch {cell.batch}, context {cell.context}, {cell.mode} ({reason})"
            for cell, reason in self.unfinished.items()
        ]


def measure_grid(
    target: Any,
    draft: Any,
    settings: GridSettings,
    checkpoint: Checkpoint,
    advance: Callable[[], None] = lambda: None,
    more_time: Callable[[], bool] = lambda: True,
) -> Grid:
    """Measure all cells that are not in the checkpoint yet.

    target, draft : models of transformers, on one device
    advance : called behind each cell of each pass, as often as ``planned_parts`` says
    more_time : whether another cell may be begun
    """
    found: dict[Cell, list[dict[str, Any]]] = {cell: [] for cell in settings.cells}
    reasons: dict[Cell, str] = {}
    lost = ""
    for number, passes, cell in _plan(target, settings):
        name = f"grid-{cell.name}-{number}.json"
        if name not in checkpoint and (lost or not more_time()):
            reasons.setdefault(cell, lost or OUT_OF_TIME)
        elif name in checkpoint or cell not in reasons:
            part = replace(
                settings,
                repeats=settings.repeats // passes + (number < settings.repeats % passes),
                seed=settings.seed + number,
            )
            keep = partial(_kept_repeat, checkpoint, f"grid-{cell.name}-{number}")
            measure = partial(_attempt, target, draft, cell, part, keep)
            try:
                found[cell].append(_of_pass(number, checkpoint.keep_json(name, measure)))
            except _NotMeasuredError as error:
                reasons[cell] = str(error)
                lost = str(error) if error.lost else ""
        advance()
    parts = [part for measured in found.values() for part in measured]
    return Grid(
        times=joined([row for part in parts for row in part["times"]]),
        overhead=joined([row for part in parts for row in part["overhead"]]),
        # What one pass measured of a cell is a measurement.
        missing=[{**asdict(cell), "reason": reasons[cell]} for cell in reasons if not found[cell]],
        unfinished={cell: reason for cell, reason in reasons.items() if found[cell]},
    )


def _kept_repeat(
    checkpoint: Checkpoint, cell: str, repeat: int, measure: Callable[[], list[Timed]]
) -> list[Timed]:
    """What a repeat found, measured unless the checkpoint has it."""
    found = checkpoint.keep_json(f"{cell}-{repeat}.json", measure)
    return [(tuple(kind), seconds, plain) for kind, seconds, plain in found]


def _of_pass(number: int, part: dict[str, Any]) -> dict[str, Any]:
    """The rows of a cell with the pass that they were measured in."""
    for row in [*part["times"], *part["overhead"]]:
        row["passes"] = [number] * len(row["seconds"])
    return part


def planned_parts(target: Any, settings: GridSettings) -> int:
    """How many cells all passes have together."""
    return sum(1 for _ in _plan(target, settings))


def _plan(target: Any, settings: GridSettings) -> Iterator[tuple[int, int, Cell]]:
    """Which pass of how many measures which cell, in order."""
    on_cpu = next(target.parameters()).device.type == "cpu"
    for mode in settings.modes:
        cells = [cell for cell in settings.cells if cell.mode == mode]
        passes = min(_PASSES, settings.repeats) if on_cpu and mode == "eager" else 1
        for number in range(passes):
            for cell in cells:
                yield number, passes, cell


def joined(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for everything but the lists of seconds, which come one after another."""
    together: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        lists = {name: value for name, value in row.items() if isinstance(value, list)}
        key = tuple(value for name, value in row.items() if name not in lists)
        if key in together:
            for name, value in lists.items():
                together[key][name].extend(value)
        else:
            together[key] = {**row, **{name: list(value) for name, value in lists.items()}}
    return list(together.values())


def usual_contexts(context: int, gamma_max: int) -> tuple[int, ...]:
    """Contexts to measure models at whose longest text is ``context``."""
    most = longest_context(context, gamma_max)
    found = tuple(usual for usual in _USUAL_CONTEXTS if usual <= most)
    return found or (max(most // 4, 1), most)


def longest_context(context: int, gamma_max: int) -> int:
    """The longest context of a cell of models whose longest text is ``context``."""
    most = context - room(gamma_max)
    if most < 1:
        longest = (context - room(0) - 1) // BLOCKS
        raise InvalidArgumentError(
            f"gamma_max must be in [1, {longest}] where batches are timed with these models, which "
            f"read {context} tokens, got {gamma_max}"
        )
    return most


def room(gamma_max: int) -> int:
    """Slots that a cell needs beyond its context."""
    return BLOCKS * (gamma_max + 1) + 2


class _NotMeasuredError(Exception):
    """Why a cell cannot be measured; ``lost`` if no other one can be after it."""

    def __init__(self, reason: str, lost: bool = False) -> None:
        super().__init__(reason)
        self.lost = lost


def _attempt(
    target: Any, draft: Any, cell: Cell, settings: GridSettings, keep: KeepRepeat
) -> dict[str, Any]:
    """The cell; whatever fails becomes the reason why there is none."""
    device = next(target.parameters()).device
    try:
        release_unused(device)
        return _measure_cell(target, draft, cell, settings, keep)
    except UnsupportedError as error:
        raise _NotMeasuredError(str(error)) from None
    except CompileError as error:
        # A recording that fails leaves the allocator, the stream and the random numbers of the
        # device in a state that nothing after it can rely on.
        raise _NotMeasuredError(str(error), lost=device.type == "cuda") from None
    # torch raises its own kinds for memory and for devices, and plain RuntimeError for the host's.
    except (RuntimeError, MemoryError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if _out_of_memory(error):
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            raise _NotMeasuredError(f"out of memory: {reason}") from None
        raise _NotMeasuredError(f"the device failed: {reason}", lost=True) from None


def _out_of_memory(error: Exception) -> bool:
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in str(error)


def _measure_cell(
    target: Any, draft: Any, cell: Cell, settings: GridSettings, keep: KeepRepeat
) -> dict[str, Any]:
    device = next(target.parameters()).device
    slots = cell.context + room(settings.gamma_max)
    shared = min(model.config.get_text_config().vocab_size for model in (target, draft))
    compiled = cell.mode == "compiled"
    models = {
        name: RaggedModel(model, cell.batch, slots, compiled=compiled, vocabulary=shared)
        for name, model in (("target", target), ("draft", draft))
    }
    source = torch.Generator(device=device).manual_seed(settings.seed)
    samples: dict[Kind, list[tuple[float, float]]] = defaultdict(list)
    for model in models.values():
        model.fill(cell.context, source)

    def drawn(repeat: int) -> np.random.Generator:
        return np.random.default_rng([settings.seed, cell.batch, cell.context, repeat])

    def once(repeat: int) -> list[Timed]:
        return _time_once(models, settings.gamma_max, drawn(repeat), source)

    # The first time compiles, chooses kernels and takes memory.
    warm = cache(partial(once, 0))

    def measured(repeat: int) -> list[Timed]:
        warm()
        return once(repeat)

    for repeat in range(1, settings.repeats + 1):
        for kind, seconds, plain in keep(repeat, partial(measured, repeat)):
            samples[kind].append((seconds, plain))
    where = {"batch": cell.batch, "context": cell.context, "mode": cell.mode}
    times = [
        {
            "model": model,
            "follows": follows,
            "tokens": tokens,
            **where,
            # Clocks give nanoseconds; more digits are noise that profiles would have to carry.
            "seconds": [round(seconds, 9) for seconds, _ in found],
            "plain": [round(plain, 9) for _, plain in found],
        }
        for (model, follows, tokens), found in sorted(samples.items())
    ]
    plain = fmean(beside for found in samples.values() for _, beside in found)
    overhead = _overhead(models, cell, settings, drawn(settings.repeats + 1), where)
    for row in overhead:
        row["plain"] = [round(plain, 9)] * len(row["seconds"])
    return {"times": times, "overhead": overhead}


def _time_once(
    models: Mapping[str, RaggedModel],
    gamma_max: int,
    random: np.random.Generator,
    source: torch.Generator,
) -> list[Timed]:
    """Blocks of every draft length in random order, and plain steps before, between and after.

    What ran after what, its seconds, and the seconds of the plain steps beside it.
    """
    target, draft = models["target"], models["draft"]
    shape = (target.batch, gamma_max + 1)
    vocabulary = min(target.vocabulary, draft.vocabulary)
    ids = torch.randint(vocabulary, shape, generator=source, device=target.device)
    clock = Clock(target.device)
    # What each interval was, and in which segment; plain steps and drafts alternate.
    kinds: list[tuple[int, Kind] | None] = []

    def run(segment: int, model: str, follows: str, width: int, counted: bool) -> None:
        logits = models[model].read(ids[:, :width])
        clock.mark()
        kinds.append((segment, (model, follows, width)) if counted else None)
        # What decoding does between runs, an interval of its own.
        logits[:, -1].argmax(-1)
        clock.mark()
        kinds.append(None)

    order = [0]
    for gamma in random.permutation(range(1, gamma_max + 1)).tolist():
        order += [gamma, 0]
    clock.mark()
    for segment, gamma in enumerate(order):
        for block in range(_TIMED_BLOCKS):
            # After a bonus token the draft has two tokens to read first.
            first = 1 + block % 2
            for step in range(gamma):
                before, width = ("draft", 1) if step else ("target", first)
                run(segment, "draft", before, width, counted=block > 0)
            run(segment, "target", "draft" if gamma else "target", gamma + 1, counted=block > 0)
            if gamma:
                draft.rewind(gamma - 1 + first)
            target.rewind(gamma + 1)
            # Decoding waits here for what was accepted.  A host that ran ahead instead would hide
            # what it takes to start the next runs.
            wait(target.device)
            clock.mark()
            kinds.append(None)
    found = [
        (*what, took) for what, took in zip(kinds, clock.intervals(), strict=True) if what
    ]  # fmt: skip
    plain: dict[int, list[float]] = defaultdict(list)
    for segment, _, took in found:
        if not order[segment]:
            plain[segment].append(took)
    return [
        # A plain step is compared with itself, a run with the mean, as decoding takes the mean.
        (kind, took, fmean(plain[segment - 1] + plain[segment + 1]) if order[segment] else took)
        for segment, kind, took in found
    ]


def overhead_gammas(gamma_max: int) -> list[int]:
    """Where the overhead is measured; it is linear in gamma between them."""
    return sorted({0, 1, (gamma_max + 1) // 2, gamma_max})


def _overhead(
    models: Mapping[str, RaggedModel],
    cell: Cell,
    settings: GridSettings,
    random: np.random.Generator,
    where: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Seconds of a block outside the runs, from segments of decoding with nothing accepted.

    A host is slow for a while, so every repeat has all segments, in random order.
    """
    asked = list(product(settings.temperatures, overhead_gammas(settings.gamma_max)))
    seconds: dict[tuple[float, int], list[float]] = {each: [] for each in asked}
    survival = [0.0] * settings.gamma_max
    for repeat in range(1 + max(_LEAST, settings.repeats // _FEWER)):
        for place in random.permutation(len(asked)):
            temperature, gamma = asked[place]
            for model in models.values():
                model.rewind(model.longest - cell.context)
            found = decode_synthetic(
                models["target"],
                models["draft"],
                gamma,
                survival,
                BLOCKS,
                temperature,
                random,
                top_k=settings.top_k,
                top_p=settings.top_p,
                acceptance_law=settings.acceptance_law,
            )
            if repeat:
                # Where nothing lies between the runs, two clocks may differ by less than that.
                seconds[asked[place]].append(round(max(found.overhead_s, 0.0) / found.blocks, 9))
    return [
        {
            "temperature": temperature,
            "gamma": gamma,
            **where,
            "seconds": seconds[temperature, gamma],
        }
        for temperature, gamma in asked
    ]
