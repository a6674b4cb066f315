"""From the battery's raw files to rows: predicted beside measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import msgspec
import numpy as np

from calibrate.batch.synthetic import Timed
from calibrate.validate.batching import Segments, compare_cell
from specsim import profiles
from specsim.batching.cost import CellUnavailableError, MeasuredLoadCost
from specsim.batching.point import batch_point
from specsim.checks import Floats, InvalidArgumentError, UnsupportedError

Row = dict[str, Any]
Raw = Mapping[str, Any]


def profile(raw: Raw, machine: Raw) -> profiles.Profile:
    """The grid of a pair of shapes, as a profile of costs alone."""
    cells = raw["cells"].values()
    times = [row for cell in cells for row in cell.get("times", ())]
    overhead = [row for cell in cells for row in cell.get("overhead", ())]
    missing = [cell for cell in cells if "reason" in cell]
    models = [msgspec.convert(raw[which], profiles.MeasuredModel) for which in ("target", "draft")]
    return profile_of(raw, machine, models, times, overhead, missing)


def profile_of(
    raw: Raw,
    machine: Raw,
    models: Sequence[profiles.MeasuredModel],
    times: Sequence[Row],
    overhead: Sequence[Row],
    missing: Sequence[Row],
) -> profiles.Profile:
    """A profile of costs alone; ``raw`` names device, dtype and gamma_max, ``machine`` the rest."""
    visit = machine["visits"][-1]
    return profiles.Profile(
        schema=profiles.SCHEMA,
        version=profiles.VERSION,
        created=visit["date"],
        command=visit["command"],
        target=models[0],
        draft=models[1],
        hardware=profiles.Hardware(
            device=raw["device"]["type"],
            device_name=raw["device"]["name"],
            processor=visit["processor"],
            cores=visit["cores"],
            threads=raw["device"]["threads"],
        ),
        software=profiles.Software(
            specsim=visit["specsim"],
            python=visit["python"],
            torch=visit["torch"],
            transformers=visit["transformers"],
            dtype=raw["dtype"],
        ),
        gamma_max=raw["gamma_max"],
        acceptance=[],
        run_times=[],
        overhead=[],
        notes=[],
        grid=msgspec.convert(times, list[profiles.GridTime]),
        batch_overhead=msgspec.convert(overhead, list[profiles.BatchOverhead]),
        missing=msgspec.convert(missing, list[profiles.Missing]),
    )


def forced_rows(costs: profiles.Profile, cells: Mapping[str, Any]) -> list[Row]:
    """Wall-clock at a synthetic acceptance, predicted from the grid alone (``compare_cell``)."""
    rows = []
    for cell in _decoded(cells):
        try:
            cost = MeasuredLoadCost.of(costs, cell["temperature"], cell["mode"])
            where = cell["survival"], cell["batch"], cell["context"]
            found = compare_cell(_segments(cell), cost, *where)
        except UnsupportedError:  # a part of the grid that this needs is missing
            continue
        rows += [{"mode": cell["mode"], "temperature": cell["temperature"], **row} for row in found]
    return rows


def break_even_rows(
    costs: profiles.Profile, cells: Mapping[str, Any], alphas: Sequence[float]
) -> list[Row]:
    """The smallest measured batch from which on speculation does not pay, and how it was found.

    Other alphas use the same seconds of a block, which depend on alpha only through how often the
    first draft run reads two tokens.  ``steps`` is the distance on the measured batches; None
    stands behind the largest.
    """
    by_context: dict[tuple[profiles.Mode, int], dict[int, Raw]] = {}
    for cell in _decoded(cells):
        if cell["temperature"] == 0:
            by_context.setdefault((cell["mode"], cell["context"]), {})[cell["batch"]] = cell
    rows = []
    for (mode, context), by_batch in sorted(by_context.items()):
        batches = sorted(by_batch)
        if len(batches) < 2:
            continue
        cost = MeasuredLoadCost.of(costs, 0.0, mode)
        for alpha in alphas:
            measured = [_best_measured(by_batch[batch], alpha) for batch in batches]
            try:
                predicted = [_best_predicted(cost, alpha, batch, context) for batch in batches]
            except CellUnavailableError:
                continue
            ends = [_stops(speedups) for speedups in (measured, predicted)]
            rows.append(
                {
                    "mode": mode,
                    "context": context,
                    "alpha": alpha,
                    "measured_break_even": [*batches, None][ends[0]],
                    "predicted_break_even": [*batches, None][ends[1]],
                    "steps": abs(ends[0] - ends[1]),
                    "batches": batches,
                    "measured_speedup": measured,
                    "predicted_speedup": predicted,
                }
            )
    return rows


def overhead_rows(costs: profiles.Profile, cells: Mapping[str, Any]) -> list[Row]:
    """Seconds of a block outside the runs: from the grid, and from forced decoding."""
    rows: list[Row] = [
        {
            "source": "grid",
            "mode": row.mode,
            "temperature": row.temperature,
            "batch": row.batch,
            "context": row.context,
            "gamma": row.gamma,
            "overhead_ms": 1e3 * median(row.seconds),
        }
        for row in costs.batch_overhead
    ]
    for cell in _decoded(cells):
        for gamma, segments in sorted(_segments(cell).items()):
            share = segments.part("overhead_s")
            rows.append(
                {
                    "source": "forced",
                    **{key: cell[key] for key in ("mode", "temperature", "batch", "context")},
                    "gamma": gamma,
                    "overhead_ms": 1e3 * share * median(segments.plain_s),
                    "share_of_block": share / segments.part("seconds"),
                }
            )
    return rows


def _decoded(cells: Mapping[str, Any]) -> list[Raw]:
    return [cell for cell in cells.values() if "timed" in cell]


def _segments(cell: Raw) -> dict[int, Segments]:
    return {
        int(gamma): Segments(
            tuple(Timed(**each) for each in found["timed"]), tuple(found["plain_s"])
        )
        for gamma, found in cell["timed"].items()
    }


def _curve(alpha: float, gamma_max: int) -> Floats:
    return alpha ** np.arange(1, gamma_max + 1, dtype=float)


def _best_measured(cell: Raw, alpha: float) -> float:
    """The largest speedup of any draft length, of the measured seconds of a block."""
    decoded = _segments(cell)
    curve = _curve(alpha, max(decoded))
    return max(
        (1 + float(curve[:gamma].sum())) / decoded[gamma].part("seconds")
        for gamma in decoded
        if gamma
    )


def _best_predicted(cost: MeasuredLoadCost, alpha: float, batch: int, context: int) -> float:
    gamma_max = cost.longest - 1
    curve = _curve(alpha, gamma_max)
    return max(
        batch_point(curve, cost, gamma, batch, context).speedup for gamma in range(1, gamma_max + 1)
    )


def _stops(speedups: Sequence[float]) -> int:
    """Index of the first batch from which on none pays; the number of batches if the last pays."""
    paying = [index for index, speedup in enumerate(speedups) if speedup > 1]
    return paying[-1] + 1 if paying else 0


def median_and_worst(rows: Sequence[Row], key: str = "relative_error") -> tuple[float, float]:
    """Of the sizes of a relative error: the median and the worst."""
    if not rows:
        raise InvalidArgumentError("no rows to judge")
    sizes = [abs(row[key]) for row in rows]
    return median(sizes), max(sizes)
