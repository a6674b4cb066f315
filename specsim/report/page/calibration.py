"""Pages of ``specsim calibrate``: what was measured, and the speedups that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from specsim.checks import significant
from specsim.hardware.run_time_fit import kind_of
from specsim.report.page.chart import (
    Axis,
    Chart,
    Content,
    Level,
    Row,
    figure_scale,
    number_scale,
)
from specsim.report.page.speedups import speedup_charts
from specsim.report.page.words import sentence

if TYPE_CHECKING:
    from specsim.api.by_profile import ProfileForecast
    from specsim.api.calibrate import Calibration
    from specsim.api.engine_timing import EngineCalibration
    from specsim.profiles import Profile, RunTime

_INTERVAL = ("low", "high")
_HALVES = "Bands hold the middle half of the runs."
# Contexts, times modes, that have a chart of run times each.
_CHARTS = 4
_PLACES = ("batch", "context")


def calibration(found: Calibration) -> Content:
    """Predicted speedup by draft length, acceptance by position, and run times."""
    profile = found.profile
    if found.best is None:
        return Content(
            f"What do runs of {profile.target.name} and {profile.draft.name} cost, in batches?",
            f"Runs of {_cells(profile.grid)} were timed on {profile.hardware.device_name}.",
            _machine(profile),
            _grid_charts(profile),
        )
    return _decision(found.best, profile, found.path)


def profile_forecast(found: ProfileForecast) -> Content:
    """The same of a profile that was there."""
    from specsim.profiles import read_profile

    path = Path(found.inputs["profile"])
    return _decision(found, read_profile(path), path)


def _decision(best: ProfileForecast, profile: Profile, path: Path) -> Content:
    from specsim.optimizers.workload import Workload

    rows: list[Row] = []
    for forecast in best.forecasts:
        law = forecast.acceptance_law
        for load in Workload.all_of(profile, path, forecast.temperature, law):
            rows += [
                {
                    "temperature": forecast.temperature,
                    "gamma": each.gamma,
                    "predicted_speedup": each.speedup,
                    "predicted_low": each.low,
                    "predicted_high": each.high,
                    "predicted_tokens_per_call": each.tokens_per_call,
                    "formula_speedup": load.formula(each.gamma),
                    "chosen": each.gamma == forecast.gamma,
                }
                for each in load.predict(range(1, profile.gamma_max + 1))
            ]
    return Content(
        f"How many tokens should {profile.draft.name} draft for {profile.target.name}?",
        " ".join(_best(best)),
        [*map(sentence, best.sentences()), *_machine(profile)],
        [
            *speedup_charts(rows),
            _acceptance(profile),
            *_run_times(profile.run_times),
            *_grid_charts(profile),
        ],
    )


def engine_calibration(found: EngineCalibration) -> Content:
    """What rounds of an engine cost, by draft length and batch."""
    rows = [{**row, "series": f"batch {row['batch']:g}"} for row in found.rows()]
    gamma = Axis("gamma", "draft tokens of a round, gamma", zero=False)
    last = [row for row in rows if row["gamma"] == max(each["gamma"] for each in rows)]
    costs = "; ".join(
        f"{significant(row['plain_steps'])} plain steps at {row['series']} "
        f"({significant(row['plain_steps_low'])} to {significant(row['plain_steps_high'])})"
        for row in last
    )
    details = {"step_ms": "milliseconds", "tokens_per_call": "tokens per call"}
    return Content(
        "What do rounds of the engine cost?",
        f"A round with {last[0]['gamma']} drafts takes {costs}.",
        [*map(sentence, found.sentences()), f"Written to {found.path}."],
        [
            Chart(
                "rounds",
                "A round in plain steps",
                rows,
                gamma,
                Axis("plain_steps", "time of a round, in plain steps"),
                interval=("plain_steps_low", "plain_steps_high"),
                details=details,
                levels=[Level(1.0, "a plain step")],
                note="Bands are 95 % intervals over repeats.",
            ),
            Chart("steps", "Milliseconds of a round", rows, gamma, Axis("step_ms", "ms")),
        ],
    )


def _best(found: ProfileForecast) -> list[str]:
    """The decision at each temperature."""
    said = []
    for each in found.forecasts:
        at = f"Temperature {each.temperature:g}:"
        if not each.gamma:
            said.append(f"{at} none, plain decoding is faster.")
            continue
        ends = f"{significant(each.speedup_low)} to {significant(each.speedup_high)}"
        said.append(
            f"{at} {each.gamma}, {significant(each.speedup)} times plain decoding ({ends})."
        )
    return said


def _machine(profile: Profile) -> list[str]:
    hardware, software = profile.hardware, profile.software
    return [
        f"Measured {profile.created} on {hardware.device_name} ({hardware.processor}, "
        f"{hardware.threads} of {hardware.cores} threads), {software.dtype}, torch "
        f"{software.torch}."
    ]


def _acceptance(profile: Profile) -> Chart:
    """How many drafts stand up to each position."""
    rows = [
        {
            "series": f"temperature {measured.sampling.temperature:g}",
            "position": position,
            "share": rate.best,
            "low": rate.low,
            "high": rate.high,
        }
        for measured in profile.acceptance
        for position, rate in enumerate(measured.survival, 1)
    ]
    return Chart(
        "acceptance",
        "How often all drafts up to a position are accepted",
        rows,
        Axis("position", "position in the draft", zero=False),
        Axis("share", "share of blocks"),
        interval=_INTERVAL,
        note="Bands are 95 % intervals over requests.",
    )


def _run_times(times: Sequence[RunTime]) -> list[Chart]:
    """Of one sequence, by the tokens that a run reads, at the middle context."""
    if not times:
        return []
    contexts = sorted({row.context for row in times})
    context = contexts[len(contexts) // 2]
    rows = [
        {"series": kind_of(row), "tokens": row.tokens, **_spread(row)}
        for row in sorted(times, key=lambda row: row.tokens)
        if row.context == context
    ]
    return [
        Chart(
            "run-times",
            f"Run times of one sequence, context {context:,}",
            rows,
            Axis("tokens", "tokens that the run reads", zero=False),
            Axis("ms", "milliseconds, median"),
            interval=_INTERVAL,
            note=_HALVES,
        )
    ]


def _grid_charts(profile: Profile) -> list[Chart]:
    """Of batches, a chart for each context and mode: runs on one token, and on the most."""
    cells = sorted({(row.mode, row.context) for row in profile.grid})
    widest = max((row.tokens for row in profile.grid), default=1)
    charts = []
    for number, (mode, context) in enumerate(cells[:_CHARTS]):
        rows = [
            {"series": _tokens(row), "batch": row.batch, **_spread(row)}
            for row in sorted(profile.grid, key=lambda row: row.batch)
            if (row.mode, row.context) == (mode, context) and row.tokens in (1, widest)
        ]
        batches, times = ([row[name] for row in rows] for name in ("batch", "ms"))
        charts.append(
            Chart(
                f"batches-{number + 1}",
                f"Run times of batches, context {context:,}, {mode}",
                rows,
                Axis("batch", "batch (requests)", number_scale(batches), zero=False),
                Axis("ms", "milliseconds, median", figure_scale(times)),
                interval=_INTERVAL,
                note=_HALVES,
            )
        )
    return charts


def _cells(times: Sequence[RunTime]) -> str:
    batches, contexts = (sorted({getattr(row, name) for row in times}) for name in _PLACES)
    if not times:
        return "nothing"
    return (
        f"{len(batches)} batches ({batches[0]:,} to {batches[-1]:,}) at {len(contexts)} contexts "
        f"({contexts[0]:,} to {contexts[-1]:,})"
    )


def _tokens(row: RunTime) -> str:
    return f"{kind_of(row)} run, {row.tokens} token{'' if row.tokens == 1 else 's'}"


def _spread(row: RunTime) -> dict[str, Any]:
    """The median and the quartiles of the runs, in milliseconds."""
    seconds = sorted(row.seconds)
    if len(seconds) == 1:
        return {"ms": 1e3 * seconds[0], "low": None, "high": None}
    low, middle, high = quantiles(seconds, n=4, method="inclusive")
    return {"ms": 1e3 * middle, "low": 1e3 * low, "high": 1e3 * high}
