"""The calibration: traces, run times and overhead of a pair, written as a profile.

Every request of a trace, and every round of timing, is kept as soon as it is there; a request is
a function of the settings and its number alone.  A calibration that was killed and is started
again with the same settings goes on where it was and ends with the same trace.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from calibrate.decode.drafters.copying import PromptLookup
from calibrate.decode.engine import CachedModel, DecodeRequest
from calibrate.measure.grid import Grid, GridSettings, measure_grid, planned_parts
from calibrate.measure.timing import (
    RUN_TIMES,
    TOKENS,
    WAITING,
    TimedText,
    spread_evenly,
    time_decoding,
)
from calibrate.measure.trace import TRACE, generator, record
from calibrate.models.busy import Watch
from calibrate.models.load import Pair
from calibrate.models.machine import hardware, software, told_apart_by
from calibrate.models.sampling import Sampling
from calibrate.models.threads import keep_threads
from specsim import profiles
from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.api.progress import Progress, quiet, steps
from specsim.checkpoint import Checkpoint
from specsim.checks import InvalidArgumentError, check_choice, integer
from specsim.files import frame_bytes, read_frame, write_atomically
from specsim.intervals import DRAWS
from specsim.predict.trace_rates import acceptance_rates
from specsim.traces import Trace, TraceError, read_trace

_LOOKUP_NOTES = (
    "prompt lookup: drafts are a function of the text before their block; a search is host time, "
    "so overhead has it, and the target's runs are as wide as tokens were found",
)
# Texts that run times are measured on.
_TIMED_TEXTS = 8


@dataclass(frozen=True)
class Settings:
    """What is measured.

    ``requests`` may differ between samplings: one number for each.  ``prompt_tokens`` is the most
    that a prompt was allowed, ``spread_s`` seconds over which the repeats are spread.  The trace is
    the same whatever the ``acceptance_law``, which says what rates are worked out from it and how
    the overhead is decoded.
    """

    prompts: tuple[tuple[int, ...], ...]
    samplings: tuple[Sampling, ...]
    requests: tuple[int, ...]
    prompt_tokens: int
    max_new_tokens: int
    gamma_max: int
    repeats: int
    seed: int
    acceptance_law: AcceptanceLaw = "ratio-test"
    spread_s: float = 0.0

    def __post_init__(self) -> None:
        check_choice("acceptance_law", self.acceptance_law, ACCEPTANCE_LAWS)
        integer("max_new_tokens", self.max_new_tokens, low=1)
        integer("gamma_max", self.gamma_max, low=1)
        integer("repeats", self.repeats, low=1)
        integer("seed", self.seed)
        for requests in self.requests:
            # Intervals are over requests, so one request says nothing.
            integer("requests", requests, low=2, high=len(self.prompts))
        if self.max_new_tokens < self.gamma_max:
            raise InvalidArgumentError(
                f"max_new_tokens must be >= gamma_max ({self.gamma_max}), got {self.max_new_tokens}"
            )

    def check_fits(self, context: int) -> None:
        """Refuse requests that the models cannot read, before anything is measured."""
        longest = max(len(prompt) for prompt in self.prompts)
        needed = longest + self.max_new_tokens + self.gamma_max + 2
        if needed > context:
            raise InvalidArgumentError(
                f"prompt tokens + new tokens + gamma_max + 2 must be <= {context}, the context "
                f"of the models, got {needed}"
            )


def calibrate(
    pair: Pair,
    settings: Settings,
    out: Path,
    command: str,
    grid: GridSettings | None = None,
    progress: Progress = quiet,
) -> profiles.Profile:
    """Measure and write the profile ``out``, with its traces beside it.

    ``command`` is what was typed, for the record; ``grid`` is what is measured beyond one
    sequence, of a pair of models.
    """
    settings.check_fits(pair.context)
    models = pair.target.description, pair.draft.description
    ends = pair.target.end_of_text
    decisive = _decisive(models, pair.target.model, settings, grid, ends=ends)
    checkpoint = Checkpoint.beside(out, decisive)
    keep_threads(checkpoint, progress)
    watch = Watch(checkpoint, progress, _threads(pair.target.model), untimed=("trace", WAITING))
    progress = watch.progress
    target, draft = pair.with_drafter()
    acceptance = [
        _measure_acceptance(pair, target, draft, settings, index, checkpoint, out, progress)
        for index in range(len(settings.samplings))
    ]
    times = time_decoding(
        target,
        draft,
        [
            _texts(settings, measured, read_trace(out.with_name(measured.trace.file)))
            for measured in acceptance
        ],
        settings.samplings,
        settings.gamma_max,
        max(min(TOKENS, settings.max_new_tokens), settings.gamma_max + 1),
        settings.repeats,
        settings.seed,
        checkpoint,
        steps(progress, RUN_TIMES, settings.repeats),
        settings.acceptance_law,
        spread_evenly(settings.spread_s, settings.repeats, progress),
    )
    both = pair.target.model, pair.draft.model
    batches = _grid(*both, grid, checkpoint, progress) if grid else None
    costs = _grid_fields(batches) if batches else {}
    over = settings.spread_s / 60
    notes = [
        f"acceptance: replay of text drawn from the target, {settings.acceptance_law}; intervals "
        f"95 %, bootstrap over requests, {DRAWS} draws",
        "run times: seconds a run, batch 1, means over stretches of real decoding, beside runs of "
        "plain decoding just before and after",
        *([f"run times: passes were due evenly over {over:g} minutes"] if over else ()),
        "overhead: seconds of a block of the same decoding outside the model runs, and what a run "
        "without a draft takes longer than in plain decoding",
        *(_LOOKUP_NOTES if models[1].longest_match is not None else ()),
        *(batches.notes if batches else ()),
        *watch.warnings(),
    ]
    measured = {
        "acceptance": acceptance,
        "run_times": msgspec.convert(times["run_times"], list[profiles.RunTime]),
        "overhead": msgspec.convert(times["overhead"], list[profiles.Overhead]),
        **costs,
    }
    profile = _profile(
        command, models, pair.target.model, settings.gamma_max, notes=notes, **measured
    )
    profiles.write_profile(profile, out)
    checkpoint.done()
    return profile


def calibrate_costs(
    target: tuple[Any, profiles.MeasuredModel],
    draft: tuple[Any, profiles.MeasuredModel],
    grid: GridSettings,
    out: Path,
    command: str,
    progress: Progress = quiet,
    more_time: Callable[[], bool] = lambda: True,
) -> profiles.Profile:
    """Measure what runs cost, and nothing of acceptance; models may have random weights.

    command : what was typed, for the record
    more_time : whether another cell may be begun; the profile names those that were not, or not in
        all passes, and another call with the same settings goes on with them
    """
    (model, described), (small, small_described) = target, draft
    models = described, small_described
    checkpoint = Checkpoint.beside(out, _decisive(models, model, grid))
    keep_threads(checkpoint, progress)
    watch = Watch(checkpoint, progress, _threads(model))
    found = _grid(model, small, grid, checkpoint, watch.progress, more_time)
    notes = [*found.notes, *watch.warnings()]
    costs = _grid_fields(found)
    profile = _profile(command, models, model, grid.gamma_max, notes=notes, **costs)
    profiles.write_profile(profile, out)
    if not found.out_of_time:
        checkpoint.done()
    return profile


def _grid(
    target: Any,
    draft: Any,
    grid: GridSettings,
    checkpoint: Checkpoint,
    progress: Progress,
    more_time: Callable[[], bool] = lambda: True,
) -> Grid:
    advance = steps(progress, "run times in a batch", planned_parts(target, grid))
    return measure_grid(target, draft, grid, checkpoint, advance, more_time)


def _grid_fields(found: Grid) -> dict[str, Any]:
    """The grid, as the profile's fields."""
    return {
        "grid": msgspec.convert(found.times, list[profiles.RunTime]),
        "batch_overhead": msgspec.convert(found.overhead, list[profiles.Overhead]),
        "missing": msgspec.convert(found.missing, list[profiles.Missing]),
    }


def _threads(model: Any) -> int:
    """Cores that a measurement keeps busy."""
    return torch.get_num_threads() if next(model.parameters()).device.type == "cpu" else 1


def _decisive(
    models: Sequence[profiles.MeasuredModel],
    target: Any,
    *settings: Settings | GridSettings | None,
    ends: Iterable[int] = (),
) -> list[Any]:
    """Everything that decides the profile.

    ends : tokens behind which texts end
    """
    weights = next(target.parameters())
    # Threads may still be found by a trial, and the checkpoint keeps them.
    machine = told_apart_by(hardware(weights.device))
    where = [str(weights.dtype), str(weights.device), *machine]
    asked = [asdict(each) if each else None for each in settings]
    return [*(model.sha256 for model in models), *where, *asked, sorted(ends)]


def _profile(
    command: str,
    models: tuple[profiles.MeasuredModel, profiles.MeasuredModel],
    target: Any,
    gamma_max: int,
    **measured: Any,
) -> profiles.Profile:
    """What was measured, with when, by what and where; the rest of the fields is empty."""
    weights = next(target.parameters())
    empty: dict[str, Any] = {"acceptance": [], "run_times": [], "overhead": [], "notes": []}
    return profiles.Profile(
        schema=profiles.SCHEMA,
        version=profiles.VERSION,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=command,
        target=models[0],
        draft=models[1],
        hardware=hardware(weights.device),
        software=software(weights.dtype),
        gamma_max=gamma_max,
        **(empty | measured),
    )


def _measure_acceptance(
    pair: Pair,
    target: CachedModel,
    draft: CachedModel | PromptLookup,
    settings: Settings,
    index: int,
    checkpoint: Checkpoint,
    out: Path,
    progress: Progress,
) -> profiles.MeasuredAcceptance:
    import pandas as pd  # what runs cost is measured where there is none, too

    sampling, requests = settings.samplings[index], settings.requests[index]
    advance = steps(progress, f"trace at temperature {sampling.temperature:g}", requests)
    # A machine that is lent for measuring may have no pyarrow; the reader takes both.
    suffix = ".parquet" if find_spec("pyarrow") else ".csv"
    frames = []
    for request in range(requests):

        def recorded(part: Path, request: int = request) -> None:
            asked = DecodeRequest(
                settings.prompts[request],
                settings.max_new_tokens,
                sampling,
                generator(target.device, TRACE, settings.seed, index, request),
                pair.target.end_of_text,
            )
            frame = record(target, draft, request, asked)
            part.write_bytes(frame_bytes(frame, suffix))

        part = checkpoint.keep(f"{index}-{request}{suffix}", recorded)
        # Read back even what was just written, so that resumed and fresh runs cannot differ.
        frames.append(read_frame(part, "trace", TraceError))
        advance()
    content = frame_bytes(pd.concat(frames, ignore_index=True), suffix)
    sha256 = hashlib.sha256(content).hexdigest()
    file = out.with_name(f"{out.stem}.trace-{sha256[:12]}{suffix}")
    write_atomically(file, content)
    trace = read_trace(file, acceptance_law=settings.acceptance_law)
    alpha, survival, conditional = acceptance_rates(trace, settings.gamma_max, settings.seed)
    return profiles.MeasuredAcceptance(
        sampling=profiles.SamplingSetting(sampling.temperature, sampling.top_k, sampling.top_p),
        requests=requests,
        prompt_tokens=settings.prompt_tokens,
        prompts_sha256=profiles.prompts_digest(settings.prompts[:requests]),
        max_new_tokens=settings.max_new_tokens,
        tokens=trace.tokens,
        seed=settings.seed,
        alpha=alpha,
        survival=survival,
        conditional=conditional,
        trace=profiles.FileReference(file.name, sha256),
        acceptance_law=settings.acceptance_law,
    )


def _texts(
    settings: Settings, measured: profiles.MeasuredAcceptance, trace: Trace
) -> list[TimedText]:
    """The longest ones, of equals the first."""
    tokens = trace.columns["token"]
    longest = np.argsort(-trace.lengths[: measured.requests], kind="stable")
    return [
        TimedText(
            settings.prompts[number],
            tokens[trace.starts[number] : trace.starts[number + 1]].tolist(),
        )
        for number in longest[:_TIMED_TEXTS].tolist()
    ]
