"""``specsim validate --synthetic``: prices tested by batches at a drawn acceptance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._models import load_measured, need_torch, progress_bar, resumable
from specsim.files import write_atomically

if TYPE_CHECKING:
    from specsim.batching.cost import MeasuredLoadCost
    from specsim.batching.workload import BatchWorkload
    from specsim.profiles import Mode

# What a person reads; json and csv have every column.
_FOR_PEOPLE = (
    "batch",
    "context",
    "gamma",
    "tokens_per_call",
    "predicted_speedup",
    "measured_speedup",
    "measured_low",
    "measured_high",
    "relative_error",
    "error_draft",
    "error_verify",
    "error_overhead",
    "predicted_best",
    "measured_best",
    "loss",
)
# Speed that following the prediction may cost in a cell, against the best that was measured.
_MOST_LOSS = 0.02


def run(
    path: Path,
    batch: tuple[int, ...] | None,
    context: tuple[int, ...] | None,
    gamma: tuple[int, ...] | None,
    temperature: float | None,
    alpha: tuple[float, ...] | None,
    mode: Mode | None,
    turns: int,
    seed: int,
    **given: Any,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, one per batch, context and draft length.

    Cells that were decoded are kept until all are: a run that was killed goes on where it was.
    """
    from specsim.batching.workload import workloads_of_profile
    from specsim.profiles import read_profile

    need_torch()
    profile = read_profile(path)
    found = workloads_of_profile(path, alpha=alpha, temperature=temperature, mode=mode)
    work = [(load, *_cells(load, batch, context, gamma)) for load in found]
    target, draft = load_measured(profile, given)
    from calibrate.validate.batching import compare_cell, decode_cell

    asked = ["synthetic", batch, context, gamma, temperature, alpha, mode, turns, seed, given]
    rows: list[dict[str, Any]] = []
    with resumable(path, *asked) as folder, progress_bar() as progress:
        task = progress.add_task("decoding", total=sum(len(cells) for *_, cells in work))
        for load, cost, gammas, cells in work:
            survival = load.survival.tolist()
            temperature = load.temperature or 0.0
            for size, tokens in cells:
                file = folder / f"{temperature:g}-{size}-{tokens}.json"
                if not file.is_file():
                    decoded = decode_cell(
                        target,
                        draft,
                        size,
                        tokens,
                        gammas,
                        survival,
                        temperature,
                        turns,
                        cost.mode == "compiled",
                        seed,
                    )
                    compared = compare_cell(decoded, cost, survival, size, tokens)
                    measured = {"temperature": temperature, "mode": cost.mode}
                    cell = [{**measured, **row} for row in compared]
                    write_atomically(file, json.dumps(cell).encode())
                rows += json.loads(file.read_text())
                progress.advance(task)
    return rows


def _cells(
    load: BatchWorkload,
    batch: tuple[int, ...] | None,
    context: tuple[int, ...] | None,
    gamma: tuple[int, ...] | None,
) -> tuple[MeasuredLoadCost, tuple[int, ...], list[tuple[int, int]]]:
    """The cost of one setting, the draft lengths, and every batch and context."""
    from calibrate.measure.grid import room
    from specsim.batching.cost import MeasuredLoadCost

    assert isinstance(load.cost, MeasuredLoadCost)
    assert load.context is not None, "a profile says what its models can read"
    gammas = gamma or tuple(range(1, load.gamma_max + 1))
    if max(gammas) > load.gamma_max:
        raise InvalidArgumentError(
            f"--gamma must be in [1, {load.gamma_max}] with this profile, got {max(gammas)}"
        )
    longest = load.context - room(max(gammas))
    contexts = load.contexts(context)
    if max(contexts) > longest:
        raise InvalidArgumentError(
            f"--context must be <= {longest} with these models, got {max(contexts)}"
        )
    return load.cost, gammas, [(b, c) for c in contexts for b in load.batches(batch)]


def show(rows: Sequence[Mapping[str, Any]], output_format: str) -> None:
    """The table on stdout."""
    from specsim.report.tables import render

    if output_format in ("table", "markdown"):
        several = len({row["temperature"] for row in rows}) > 1
        columns = ("temperature", *_FOR_PEOPLE) if several else _FOR_PEOPLE
        rows = [{name: row[name] for name in columns} for row in rows]
    click.echo(render(rows, output_format, "synthetic acceptance, predicted and measured"))


def judge(
    rows: Sequence[Mapping[str, Any]], median_tolerance: float, tolerance: float | None
) -> list[str]:
    """What failed; says on stderr how close the predictions were."""
    errors = [abs(row["relative_error"]) for row in rows]
    cells = {(row["temperature"], row["context"], row["batch"]): row for row in rows}.values()
    same = sum(cell["predicted_best"] == cell["measured_best"] for cell in cells)
    apart = sum(cell["loss_low"] > 0 for cell in cells)
    losses = [cell["loss"] for cell in cells]
    click.echo(
        f"relative error of the speedup: median {median(errors):.1%}, worst {max(errors):.1%}; "
        f"best draft length as predicted in {same} of {len(cells)} cells, and in "
        f"{len(cells) - same - apart} more too close to tell; following the prediction costs "
        f"{max(losses):.1%} of speed at most",
        err=True,
    )
    failures = [
        f"batch {cell['batch']}, context {cell['context']}: gamma {cell['predicted_best']} was "
        f"predicted best and is {cell['loss']:.1%} slower than gamma {cell['measured_best']}"
        for cell in cells
        if cell["loss"] > _MOST_LOSS
    ]
    if median(errors) > median_tolerance:
        failures.append(f"the median error is over --median-tolerance {median_tolerance:g}")
    if tolerance is not None and max(errors) > tolerance:
        failures.append(f"the worst error is over --tolerance {tolerance:g}")
    return failures
