"""``specsim calibrate``: measure a pair of models and write a profile."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._models import (
    load_or_build,
    measuring_options,
    prepare,
    progress_bar,
    typed,
)
from specsim.commands._options import IntegerRange, format_option, refuse_given

if TYPE_CHECKING:
    from calibrate.measure.grid import GridSettings
    from specsim.profiles import Profile

# What a batch is measured at where nothing is said, as engines record their graphs.
_BATCHES = (1, 2, 4, 8, 16, 32)
# What only acceptance is measured with.
_OF_ACCEPTANCE = ("prompts", "requests", "prompt_tokens", "max_new_tokens", "top_k", "top_p")


@click.command(
    epilog="Examples: specsim calibrate --target Qwen/Qwen3-8B --draft Qwen/Qwen3-0.6B "
    "--prompts prompts.jsonl --out qwen.json; specsim calibrate --cost-only "
    "--target llama-3.1-8b --draft llama-3.2-1b --batch 1,2,4,8,16,32,64 --out costs.json"
)
@measuring_options
@click.option(
    "--batch",
    type=IntegerRange(1),
    help="Measure run times in batches too. [default with --context or --cost-only: 1,2,4,...,32]",
)
@click.option(
    "--context",
    type=IntegerRange(1),
    help="Tokens in the caches of a batch. [default: 512,4096, or what the models can read]",
)
@click.option(
    "--compiled",
    is_flag=True,
    help="Time batches compiled as well: as CUDA graphs, on a CPU by torch.compile (minutes).",
)
@click.option(
    "--cost-only",
    is_flag=True,
    help="Measure what runs cost and nothing else; a model may then be given by its shape alone: "
    "a config.json, or a shape that specsim ships.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Profile to write; traces go beside it.",
)
@format_option
def command(
    out: Path,
    batch: tuple[int, ...] | None,
    context: tuple[int, ...] | None,
    compiled: bool,
    cost_only: bool,
    output_format: str,
    **given: Any,
) -> int:
    """Measure how often drafts are accepted and what runs cost, and write a profile.

    Text is drawn from the target, the draft reads it in one pass, and both models' run times are
    measured in the rhythm of real decoding.  A calibration that was killed goes on where it was
    when started again with the same arguments.

    With --batch, run times of whole batches are measured as well, which decisions by load
    (specsim optimize --batch) rest on.  Exits 1 if some of them could not be measured; the others
    are kept.
    """
    from specsim.report.tables import render

    if not out.parent.is_dir():
        raise InvalidArgumentError(f"--out {out}: no such folder {out.parent}")
    if out.is_dir():
        raise InvalidArgumentError(
            f"--out {out} is a folder; name the profile, such as {out}/p.json"
        )
    if cost_only:
        refuse_given(_OF_ACCEPTANCE, "and --cost-only exclude each other")
        profile = _costs(out, batch, context, compiled, given)
        rows = _cost_rows(profile)
    else:
        prepared = prepare(given)
        from calibrate.measure.calibration import calibrate
        from specsim.optimizers.workload import Workload

        grid = None
        if batch or context or compiled:
            grid = _grid(batch, context, compiled, prepared.pair.context, given)
        with progress_bar() as progress:
            profile = calibrate(prepared.pair, prepared.settings, out, typed(), progress, grid)
        rows = [asdict(load.forecast(load.best())) for load in Workload.all_of(profile, out, None)]
    click.echo(f"wrote {out}", err=True)
    title = "run times of one token, and how far off the fit is" if cost_only else None
    click.echo(render(rows, output_format, title or "best draft length, predicted"))
    for cell in profile.missing:
        click.echo(
            f"missing: batch {cell.batch}, context {cell.context}, {cell.mode}: {cell.reason}",
            err=True,
        )
    return 1 if profile.missing else 0


def _grid(
    batch: tuple[int, ...] | None,
    context: tuple[int, ...] | None,
    compiled: bool,
    longest: int,
    given: dict[str, Any],
) -> GridSettings:
    from calibrate.measure.grid import GridSettings, room, usual_contexts

    gamma_max = given["gamma_max"]
    grid = GridSettings(
        batches=batch or _BATCHES,
        contexts=context or usual_contexts(longest, room(gamma_max)),
        gamma_max=gamma_max,
        repeats=given["repeats"],
        temperatures=given["temperature"],
        modes=("eager", "compiled") if compiled else ("eager",),
        seed=given["seed"],
    )
    grid.check_fits(longest)
    return grid


def _costs(
    out: Path,
    batch: tuple[int, ...] | None,
    context: tuple[int, ...] | None,
    compiled: bool,
    given: dict[str, Any],
) -> Profile:
    """The profile of a pair of which each may be a shape."""
    models = load_or_build(given)
    from calibrate.measure.calibration import calibrate_costs

    longest = min(model.context for _, model in models)
    grid = _grid(batch, context, compiled, longest, given)
    target, draft = models
    with progress_bar() as progress:
        return calibrate_costs(target, draft, grid, out, typed(), progress)


def _cost_rows(profile: Profile) -> list[dict[str, Any]]:
    """By kind of run and mode: a run on one token, how much runs scatter, and the fit.

    ``spread`` is the quartiles' distance over the median, of the median cell, in plain steps, which
    is what the fit rests on; ``slowest`` is the largest outlier in seconds, over the median of its
    cell.
    """
    import numpy as np

    from specsim.hardware.run_time_fit import fits, kind_of, ratios

    rows = []
    for (mode, kind), times in fits(profile.grid).items():
        cells = [row for row in profile.grid if (row.mode, kind_of(row)) == (mode, kind)]
        # A plain step is its own measure.
        beside = [ratios(row) for row in cells if row.seconds != row.plain]
        quartiles = [np.quantile(each, [0.25, 0.5, 0.75]) for each in beside]
        first, last = times.points[0], max(times.points, key=lambda p: (p.batch, p.context))
        rows.append(
            {
                "run": kind,
                "mode": mode,
                "points": len(times.points),
                "smallest_load_ms": 1e3 * times(1, first.batch, first.context),
                "largest_load_ms": 1e3 * times(1, last.batch, last.context),
                "spread": float(np.median([(high - low) / mid for low, mid, high in quartiles])),
                "slowest": max(max(row.seconds) / float(np.median(row.seconds)) for row in cells),
                "error_between_median": times.error.between[0],
                "error_between_worst": times.error.between[1],
                "error_beyond_median": times.error.beyond[0],
                "error_beyond_worst": times.error.beyond[1],
            }
        )
    return rows
