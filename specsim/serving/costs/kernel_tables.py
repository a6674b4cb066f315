"""Seconds of a step from kernels that were timed one by one, as LLMServingSim's profiler writes
them (casys-kaist/LLMServingSim, profiler/perf): ``attention.csv``, ``dense.csv`` and
``per_sequence.csv``, in microseconds.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, integer, number
from specsim.files import column_numbers, read_frame
from specsim.serving.step_model import HOST, StepModel, StepTerm

if TYPE_CHECKING:
    import pandas as pd

_ATTENTION = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
# Kernels of dense.csv that run once a step; all others run in every layer, layernorm twice.
_ONCE = ("embedding", "final_layernorm")
_TWICE = ("layernorm",)
# Combinations of the four quantities of attention: 128 MiB of float64.
_MOST_CELLS = 2**24


def kernel_tables(
    folder: Path | str, layers: int, between_s: float = 0.0, host_s: float = 0.0
) -> StepModel:
    """Terms ``dense``, ``attention``, ``head``, ``between`` and ``host`` of one model on one
    accelerator.

    folder : with the three files
    layers : of the model; the tables hold the kernels of one
    between_s : seconds of a step that no kernel shows and that nothing hides: gaps and launches
    host_s : seconds of the host's work a step, hidden where the engine schedules asynchronously

    Attention was timed with one chunk of a prompt and decodes of one length; a step with several
    chunks is taken as one chunk of all their tokens behind all their contexts, which came nearer to
    a measured run than one with as many pairs (tests/reference/serving), and its decodes as of
    their mean length.  Combinations that were not timed lie on lines between those that were, and
    beyond the last go on with its slope.
    """
    layers = integer("layers", layers, low=1)
    terms = [
        StepTerm("between", number("between_s", between_s, low=0.0)),
        StepTerm(HOST, number("host_s", host_s, low=0.0)),
    ]
    dense = _read(folder, "dense.csv", ("layer", "tokens", "time_us"))
    table = dense.pivot(index="tokens", columns="layer", values="time_us").interpolate("index")
    times = {
        name: 1 if name in _ONCE else layers * (2 if name in _TWICE else 1)
        for name in table.columns
    }
    seconds = sum(table[name].to_numpy() * 1e-6 * count for name, count in times.items())
    terms.append(StepTerm("dense", seconds, ("padded_tokens",), (table.index.to_numpy(),)))
    attention = _read(folder, "attention.csv", (*_ATTENTION, "time_us"))
    knots, values = _grid(attention)
    axes = ("prefill_tokens", "prefill_context", "decodes", "mean_decode_context")
    terms.append(StepTerm("attention", values * 1e-6 * layers, axes, knots))
    heads = _read(folder, "per_sequence.csv", ("layer", "sequences", "time_us"))
    for _, rows in heads.groupby("layer"):
        rows = rows.sort_values("sequences")
        where = rows["sequences"].to_numpy()
        terms.append(StepTerm("head", rows["time_us"].to_numpy() * 1e-6, ("sampled",), (where,)))
    return StepModel(tuple(terms))


def _read(folder: Path | str, name: str, columns: tuple[str, ...]) -> pd.DataFrame:

    path = Path(folder) / name
    table = read_frame(path, "kernel table", InvalidArgumentError)
    if not set(columns) <= set(table.columns):
        raise InvalidArgumentError(
            f"kernel table {path}: has columns {', '.join(map(str, table.columns))}, expected "
            f"{', '.join(columns)}"
        )
    numbers = [column for column in columns if column != "layer"]
    for column in numbers:
        values = column_numbers(table[column])
        wrong = ~(np.isfinite(values) & (values >= 0))
        if not values.size:
            raise InvalidArgumentError(f"kernel table {path}: has no rows")
        if wrong.any():
            row = int(wrong.argmax())
            raise InvalidArgumentError(
                f"kernel table {path}: {column} must be numbers >= 0, got "
                f"{str(table[column].iloc[row])[:80]} in row {row}"
            )
        table[column] = values
    if "layer" in columns:
        unnamed = table["layer"].isna().to_numpy()
        if unnamed.any():
            raise InvalidArgumentError(
                f"kernel table {path}: layer must be a name, row {int(unnamed.argmax())} has none"
            )
        table["layer"] = table["layer"].astype(str)
    keys = [column for column in columns if column != "time_us"]
    if table.duplicated(keys).any():
        row = int(table.duplicated(keys).to_numpy().argmax())
        raise InvalidArgumentError(
            f"kernel table {path}: row {row} is of the same {', '.join(keys)} as one before"
        )
    return table


def _grid(attention: pd.DataFrame) -> tuple[tuple[Floats, ...], Floats]:
    """Knots of the four axes, and a value everywhere."""
    knots = tuple(np.unique(attention[name].to_numpy(dtype=np.float64)) for name in _ATTENTION)
    sizes = [each.size for each in knots]
    if min(sizes) < 2 or prod(sizes) > _MOST_CELLS:
        said = ", ".join(f"{size} of {name}" for size, name in zip(sizes, _ATTENTION, strict=True))
        raise InvalidArgumentError(
            f"attention.csv must have two values of each quantity and at most {_MOST_CELLS:,} "
            f"combinations, got {said}"
        )
    values = np.full([each.size for each in knots], np.nan)
    places = tuple(
        np.searchsorted(each, attention[name]) for each, name in zip(knots, _ATTENTION, strict=True)
    )
    values[places] = attention["time_us"]
    # Where nobody decodes, or nothing is prefilled, the length of that has no meaning.
    values[:, :, 0, :] = values[:, :, 0, :1]
    values[0, :, :, :] = values[0, :1, :, :]
    values[0, :, 0, :] = 0.0
    values[:, :, 1:, 0] = np.where(
        np.isnan(values[:, :, 1:, 0]), values[:, :, 1:, 1], values[:, :, 1:, 0]
    )
    for inner_only in (True, False):
        for axis in (1, 3, 0, 2):
            _fill(values, axis, knots[axis], inner_only)
    if np.isnan(values).any():
        raise InvalidArgumentError(
            "attention.csv has too few combinations to tell those between and beyond them"
        )
    return knots, values


def _fill(values: Floats, axis: int, where: Floats, inner_only: bool) -> None:
    """Along one axis, put what is missing on the lines between what is known; or beyond them."""
    lines = np.moveaxis(values, axis, -1)
    for index in np.ndindex(lines.shape[:-1]):
        line = lines[index]
        known = np.flatnonzero(~np.isnan(line))
        if known.size < 2 or known.size == line.size:
            continue
        low, high = known[0], known[-1]
        if not inner_only:
            slope = (line[high] - line[known[-2]]) / (where[high] - where[known[-2]])
            beyond = np.arange(high + 1, line.size)
            line[beyond] = line[high] + max(slope, 0.0) * (where[beyond] - where[high])
            line[:low] = line[low]
        inside = slice(low, high + 1)
        line[inside] = np.interp(where[inside], where[known], line[known])
