"""Profiles, acceptance files and sweeps as ``specsim.compare`` takes them: figures by setting.

Of a profile: how often drafts were accepted, what runs and the host cost in plain steps beside
them, and the speedups that follow.  Of an acceptance file: what was counted, how long steps and
prompts took, and what steps under load are fitted to cost.  Of a sweep: the answer to every setting
of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from specsim.api.compared import INPUT, Side, figures, flat
from specsim.api.result import Row, plain
from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError
from specsim.counts.file import read_acceptance
from specsim.counts.streamed_costs import StreamedCosts
from specsim.hardware.repeats import Repeats, spread_of_means
from specsim.hardware.run_time_fit import kind_of, ratios
from specsim.intervals import Interval, normal_quantile
from specsim.profiles import MeasuredAcceptance, Profile, read_profile
from specsim.serving.step_model import VARIATIONS

if TYPE_CHECKING:
    from specsim.counts.drafts import DraftCounts
    from specsim.counts.steps import PromptTime, StepTime, StreamedSteps

# Tokens of the prompt beside which steps under load are compared.
_PROMPT_TOKENS = 64
_RUN = frozenset(("run", "tokens", "batch", "context", "mode"))
_HOST_TIME = frozenset(("temperature", "gamma", "batch", "context", "mode"))
# Columns of a sweep that are none of an answer.
_OF_A_SWEEP = ("setting", "warnings", "left_out", "specsim_version")
# Answers that have an interval as low, best, high in one list.
_IN_LISTS = ("serve", "plan")
# Every figure of every setting is held at once.
_MOST_SETTINGS = 20_000
_STEP = frozenset(("gamma", "batch", "context", "repeat", "drafter_loaded"))
_PROMPT = frozenset(("gamma", "tokens"))
_LOADED = frozenset(("gamma", "batch"))


def profile_side(path: Path) -> Side:
    """The profile with its traces; without them its speedups are left out, with a warning."""
    profile = read_profile(path)
    values = figures(
        "acceptance", map(_acceptance_row, profile.acceptance), frozenset(("temperature",))
    )
    values |= figures("run times", _run_time_rows(profile), _RUN)
    values |= figures("host times", _host_time_rows(profile), _HOST_TIME)
    warnings = list(profile.warnings)
    try:
        speedups = _speedup_rows(profile, path)
        values |= figures("speedup", speedups, frozenset(("temperature", "gamma")))
    except SpecsimError as reason:
        warnings.append(f"{path}: speedups are not compared: {reason}")
    return Side(str(path), "profile", _measured_on(profile), values, tuple(warnings))


def acceptance_side(path: Path) -> Side:
    """What an acceptance file counts; what was timed in repeats has an interval."""
    file = read_acceptance(path)
    counts, steps = tuple(file.draft_counts()), tuple(file.step_times())
    from specsim.api.read import EngineCounts  # loads all readers

    counted = EngineCounts(
        engine=file.engine,
        acceptance_law=file.acceptance_law,
        counts=counts,
        totals=None if file.totals is None else file.totals.totals(),
        lengths=tuple(each.length() for each in file.lengths),
        steps=steps,
        sources=tuple(file.sources),
    )
    values = figures("counts", plain(counted.rows()), frozenset(("gamma",)))
    values |= figures("steps", plain(_step_rows(path, counts, steps)), _STEP)
    values |= figures("prompts", _prompt_rows(file.prompt_times(), steps), _PROMPT)
    values |= figures("under load", _loaded_rows(tuple(file.streamed_steps())), _LOADED)
    names = ("specsim", "engine", "acceptance_law", "temperature", "method")
    inputs = {name: getattr(file, name) for name in names}
    inputs["sources"] = [each.file for each in file.sources]
    return Side(str(path), "acceptance file", inputs, values)


def sweep_side(folder: Path) -> Side:
    """A complete sweep, of at most 20,000 settings; each is known by its inputs."""
    from specsim.sweeps.record import has_record, read_record
    from specsim.sweeps.results import read_settings

    if not has_record(folder):
        raise InvalidArgumentError(
            f"{folder} holds no complete sweep: name another folder, or a file"
        )
    record = read_record(folder)
    if record.settings > _MOST_SETTINGS:
        raise InvalidArgumentError(
            f"{folder} must have at most {_MOST_SETTINGS:,} settings to be compared, got "
            f"{record.settings:,}: join the tables by their inputs instead"
        )
    rows = [
        {name: value for name, value in row.items() if name not in _OF_A_SWEEP}
        for row in read_settings(folder, record).to_pylist()
    ]
    inputs = frozenset(name for name in rows[0] if name.startswith(INPUT))
    in_lists = str(record.definition.get("command")).startswith(_IN_LISTS)
    asked = flat({"specsim": record.specsim, **record.definition})
    return Side(str(folder), "sweep", asked, figures("rows", rows, inputs, in_lists))


def _measured_on(profile: Profile) -> dict[str, Any]:
    """Models, machine and versions, and how much was measured."""
    models = {
        role: {"name": model.name, "sha256": model.sha256}
        for role, model in (("target", profile.target), ("draft", profile.draft))
    }
    hardware, software = profile.hardware, profile.software
    found = flat(
        {
            **models,
            "hardware": {name: getattr(hardware, name) for name in hardware.__struct_fields__},
            "software": {name: getattr(software, name) for name in software.__struct_fields__},
            "gamma_max": profile.gamma_max,
        }
    )
    names = ("requests", "prompt_tokens", "prompts_sha256", "max_new_tokens", "acceptance_law")
    for measured in profile.acceptance:
        at = f"temperature {measured.sampling.temperature:g}"
        found |= {f"{at}.{name}": getattr(measured, name) for name in names}
        found |= {f"{at}.{name}": getattr(measured.sampling, name) for name in ("top_k", "top_p")}
    return found


def _acceptance_row(measured: MeasuredAcceptance) -> Row:
    row: Row = {"temperature": measured.sampling.temperature}
    for end, side in (("", "best"), ("_low", "low"), ("_high", "high")):
        row[f"alpha{end}"] = getattr(measured.alpha, side)
        row[f"survival{end}"] = [getattr(rate, side) for rate in measured.survival]
    return row


def _run_time_rows(profile: Profile) -> Iterator[Row]:
    """Every cell: its median, and what it takes in plain steps beside it, with an interval."""
    for cells in (profile.run_times, profile.grid):
        # A plain step is its own measure.
        beside = [[] if cell.seconds == cell.plain else ratios(cell) for cell in cells]
        measured = in_plain_steps(
            beside, [cell.passes for cell in cells], [cell.runs for cell in cells]
        )
        for cell, columns in zip(cells, measured, strict=True):
            yield {
                "run": kind_of(cell),
                "tokens": cell.tokens,
                "batch": cell.batch,
                "context": cell.context,
                "mode": cell.mode,
                "ms": 1e3 * median(cell.seconds),
                **columns,
            }


def _host_time_rows(profile: Profile) -> Iterator[Row]:
    """What a block takes beside its runs; of prompt lookup the searches, too."""
    for cells in (profile.overhead, profile.batch_overhead):
        beside = [
            [each / plain for each, plain in zip(cell.seconds, cell.plain, strict=False)]
            for cell in cells
        ]
        measured = in_plain_steps(beside, [cell.passes for cell in cells])
        for cell, columns in zip(cells, measured, strict=True):
            yield {
                "temperature": cell.temperature,
                "gamma": cell.gamma,
                "batch": cell.batch,
                "context": cell.context,
                "mode": cell.mode,
                "host_ms": 1e3 * median(cell.seconds),
                **{f"host_{name}": value for name, value in columns.items()},
            }


def in_plain_steps(
    beside: Sequence[Sequence[float]],
    passes: Sequence[Sequence[int]],
    runs: Sequence[Sequence[int]] | None = None,
) -> Iterator[Row]:
    """The mean of each cell with its 95 % interval, as columns; none of a cell without repeats, or
    with one that took nothing.

    beside : of each cell, every repeat over the plain step beside it; empty: there was none
    passes : of each cell, the pass that each repeat belongs to; empty: all are of one
    runs : of each cell, how many runs each repeat is the mean of; empty: all of as many

    How far repeats and passes of a cell lie apart is taken as the same share of all of them
    (``spread_of_means``): a single cell has too few passes to say it, and of many cells the one
    with the smallest spread would be news each time.
    """
    known = [number for number, values in enumerate(beside) if values and min(values) > 0]
    counted = runs or [()] * len(beside)
    repeats = {
        number: Repeats.of(beside[number], passes[number], counted[number]) for number in known
    }
    spread = spread_of_means([each.over_mean for each in repeats.values()])
    errors = dict(zip(known, spread.tolist(), strict=True))
    reach = normal_quantile(0.95)
    for number in range(len(beside)):
        if number not in repeats:
            yield {}
            continue
        best = repeats[number].mean
        half = reach * errors[number] * best or nan  # nothing is repeated
        yield Interval(best - half, best, best + half).columns("plain_steps")


def _speedup_rows(profile: Profile, path: Path) -> list[Row]:
    """Every draft length by replay; of costs alone nothing."""
    if not profile.acceptance:
        return []
    from specsim.optimizers.workload import Workload

    return [
        {
            "temperature": workload.measured.sampling.temperature,
            "gamma": each.gamma,
            **Interval(each.low, each.speedup, each.high).columns("speedup"),
            "tokens_per_call": each.tokens_per_call,
        }
        for workload in Workload.all_of(profile, path, None)
        for each in workload.predict(range(1, profile.gamma_max + 1))
    ]


def _step_rows(
    path: Path, counts: tuple[DraftCounts, ...], steps: tuple[StepTime, ...]
) -> list[Row]:
    """As ``specsim.calibrate_engine`` says them, or one by one where they were not repeated."""
    from specsim.api.engine_timing import EngineCalibration

    try:
        rows = EngineCalibration(path=path, counts=counts, steps=steps, prompts=()).rows()
    except UnsupportedError:
        return [dict(vars(each)) for each in steps]
    return [{name: row[name] for name in row if name != "tokens_per_call"} for row in rows]


def _loaded_rows(streamed: tuple[StreamedSteps, ...]) -> Iterator[Row]:
    """What ``StreamedCosts`` says of every draft length; how sure that is it does not."""
    if not streamed:
        return
    costs = StreamedCosts(streamed)
    for step in costs.step_times():
        yield {"gamma": step.gamma, "batch": step.batch, "step_ms": 1e3 * step.seconds}
    for gamma, law in costs.laws.items():
        for batch in law.batches[1:]:
            with_prompt_s = law.seconds(batch, 1, _PROMPT_TOKENS)
            yield {"gamma": gamma, "batch": batch, "with_prompt_ms": 1e3 * with_prompt_s}
        yield {"gamma": gamma, "per_prompt_token_us": 1e6 * law.per_token_s}
    yield {"arrival_ms": 1e3 * costs.arrival_s}
    yield {"frontend_ms": 1e3 * costs.frontend_s}
    yield {"frontend_decode_ms": 1e3 * costs.frontend_decode_s}
    yield {"frontend_prompt_ms": 1e3 * costs.frontend_prompt_s}
    if costs.knows_variations:
        for name in VARIATIONS:
            yield {name: getattr(costs, name)}


def _prompt_rows(prompts: Sequence[PromptTime], steps: Sequence[StepTime]) -> Iterator[Row]:
    """Every draft length and number of tokens: means of the engine's time and the client's, and the
    former in plain steps of the same repeat, at the smallest batch of all.
    """
    timed: dict[tuple[int, int], list[PromptTime]] = {}
    for each in prompts:
        timed.setdefault((each.gamma, each.tokens), []).append(each)
    plain = [step for step in steps if step.gamma == 0 and step.repeat is not None]
    smallest = min((step.batch for step in plain), default=0.0)
    plain_s = {step.repeat: step.seconds for step in plain if step.batch == smallest}
    beside = [
        [each.seconds / plain_s[each.repeat] for each in times if each.repeat in plain_s]
        for times in timed.values()
    ]
    passes = [[each.repeat for each in times if each.repeat in plain_s] for times in timed.values()]
    measured = in_plain_steps(beside, passes)
    for ((gamma, tokens), times), columns in zip(timed.items(), measured, strict=True):
        yield {
            "gamma": gamma,
            "tokens": tokens,
            "prompt_ms": 1e3 * mean(each.seconds for each in times),
            "answer_ms": 1e3 * mean(each.answer_s for each in times),
            **columns,
        }
