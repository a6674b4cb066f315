"""The roofline of a shape against the run times that were measured of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specsim.hardware import Accelerator, Precision, Shape, shape_from_config
from specsim.hardware.roofline_fit import roofline_rows
from specsim.profiles import MeasuredModel, Role
from studies.common.measured import Measured

# A core has no data sheet of its share of the memory, so both rates are fitted: as shares of these,
# which no core reaches.
_TERA = 1e12


def rows(measured: Measured) -> Iterator[dict[str, Any]]:
    """One row per kind of run; none without a grid of batches or without the models' shapes.

    On processors alone: accelerators have data sheets (``calibrate.gpu_suite``).
    """
    shapes = _shapes(measured)
    if measured.profile.hardware.device != "cpu" or not measured.profile.grid or len(shapes) < 2:
        return
    dtype = measured.profile.software.dtype
    machine = Accelerator("fitted", {dtype: _TERA}, _TERA, float("1e15"), "measured")
    for row in roofline_rows(measured.profile, machine, shapes):
        if row["efficiency"] != "fitted":
            continue
        yield {
            "run": row["kind"],
            "model": row["model"],
            "mode": row["mode"],
            "points": row["points"],
            "memory_bound": row["memory_bound"],
            "gflop_per_s": row["compute"] and 1e-9 * _TERA * row["compute"],
            "gb_per_s": row["memory"] and 1e-9 * _TERA * row["memory"],
            "layer_us": row["layer_us"],
            "median_error": row["median_error"],
            "worst_error": row["worst_error"],
        }


def _shapes(measured: Measured) -> dict[Role, Shape]:
    """The models whose config.json is at hand, in the numbers that they ran in."""
    found: dict[Role, Shape] = {}
    models: dict[Role, MeasuredModel] = {
        "target": measured.profile.target,
        "draft": measured.profile.draft,
    }
    for whom, model in models.items():
        name = model.name.removeprefix("embedded/")
        config = model.config or measured.family_file(f"{name}/config.json")
        if config:
            shape = shape_from_config(config)
            found[whom] = shape.at(Precision(measured.profile.software.dtype))
    return found
