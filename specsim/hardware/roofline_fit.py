"""A roofline held against a measured grid: how far off it is for each shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from specsim.checks import Floats, UnsupportedError
from specsim.hardware import Accelerator, Efficiency, Roofline, Shape, roofline
from specsim.hardware.roofline import USUAL
from specsim.hardware.run_time_fit import fits
from specsim.profiles import Profile, Role

# Of twice the logarithm of a ratio of likelihoods of one parameter, 95 % (chi-squared).
_CONTRADICTED = 3.841
# Of two fits that miss a run by a ten-thousandth more or less, neither is the better.
_SAME = 1e-8


def roofline_rows(
    costs: Profile, accelerator: Accelerator, shapes: Mapping[Role, Shape]
) -> list[dict[str, Any]]:
    """The roofline of the target and of the draft against the profile's grid, one row per kind of
    run and efficiency: at the peaks, and with efficiencies fitted to the grid.
    """
    rows: list[dict[str, Any]] = []
    for (mode, kind), times in fits(costs.grid).items():
        model = costs.target if kind == "target" else costs.draft
        shape = shapes["target" if kind == "target" else "draft"]
        try:
            runs = [
                roofline(shape, accelerator, point.tokens, point.batch, point.context)
                for point in times.points
            ]
        except UnsupportedError as error:
            rows.append({"model": model.name, "mode": mode, "kind": kind, "reason": str(error)})
            continue
        measured = np.array([point.seconds for point in times.points])
        fitted = fit_efficiency(runs, measured, len(shape.layers))
        for name, efficiency in (("peak", Efficiency()), ("fitted", fitted)):
            ratio = roofline_s(runs, efficiency, len(shape.layers)) / measured
            errors = np.abs(ratio - 1)
            bound = [
                run.memory_s / efficiency.memory >= run.compute_s / efficiency.compute
                for run in runs
            ]
            # A share that decides no run was not measured.
            row = {
                "model": model.name,
                "mode": mode,
                "kind": kind,
                "efficiency": name,
                "compute": None if all(bound) else efficiency.compute,
                "memory": efficiency.memory if any(bound) else None,
                "layer_us": 1e6 * efficiency.layer_s,
                "memory_bound": sum(bound),
                "points": len(measured),
                "median_error": float(np.median(errors)),
                "worst_error": float(errors.max()),
                "median_ratio": float(np.median(ratio)),
            }
            rows.append(row)
    return rows


def roofline_s(
    runs: Sequence[Roofline], efficiency: Efficiency, layers: int | Sequence[int]
) -> Floats:
    """Seconds at an efficiency, of runs that were priced at the peaks: shape (runs,).

    layers : of the model of each run, or of the one model

    As ``Roofline.seconds``, for runs that are CUDA graphs.
    """
    parts = np.array([[run.compute_s, run.memory_s, run.communication_s] for run in runs])
    return parts_s(parts.reshape(-1, 3), np.asarray(layers, dtype=float), efficiency)


def parts_s(parts: Floats, layers: Floats, efficiency: Efficiency) -> Floats:
    """``roofline_s`` of arithmetic, traffic and communication at the peaks, shape (runs, 3)."""
    compute, memory, communication = parts.T
    work = np.maximum(compute / efficiency.compute, memory / efficiency.memory)
    seconds: Floats = work + layers * efficiency.layer_s + communication
    return seconds


def fit_efficiency(
    runs: Sequence[Roofline], measured: Floats, layers: int | Sequence[int]
) -> Efficiency:
    """The efficiencies with the least squares of log(roofline / measured).

    runs : priced at the peaks
    measured : their seconds
    layers : of the model of each run, or of the one model

    The share of the arithmetic is the usual one (``USUAL``) unless the runs contradict that, by the
    ratio of likelihoods at 95 %: where all wait for memory, the search ends at any other as well.
    """

    def efficiency(x: Floats) -> Efficiency:
        compute, memory, layer_s = np.exp(x)
        return Efficiency(float(min(compute, 1.0)), float(min(memory, 1.0)), float(layer_s))

    def misses(x: Floats) -> Floats:
        return np.log(roofline_s(runs, efficiency(x), layers) / measured)

    # The maximum has kinks, so the search begins at several places.
    most = int(np.max(layers))
    low, high = np.log([1e-7, 1e-7, 1e-9]), np.log([1.0, 1.0, measured.max() / most])
    starts = [np.log([share, share, measured.min() / most / 2]) for share in (0.7, 0.2, 1e-3)]
    starts = [np.clip(start, low + 1e-6, high - 1e-6) for start in starts]
    usual = np.log(USUAL.compute)
    free = [least_squares(misses, start, bounds=(low, high)) for start in starts]
    held = [
        least_squares(lambda x: misses(np.append(usual, x)), start[1:], bounds=(low[1:], high[1:]))
        for start in starts
    ]
    best, known = (min(found, key=lambda fit: fit.cost) for found in (free, held))
    if known.cost <= best.cost * exp(_CONTRADICTED / len(runs)) + _SAME * len(runs):
        return efficiency(np.append(usual, known.x))
    return efficiency(best.x)
