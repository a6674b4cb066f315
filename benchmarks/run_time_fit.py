"""How far off are fitted run times at batches, contexts and widths that were not measured?

    OMP_NUM_THREADS=1 python benchmarks/run_time_fit.py [--repeats 6]

Times a grid of the embedded family and cells off that grid, all in random order and several times
round, since machines drift; fits the grid alone (``specsim.hardware.run_time_fit``) and
compares at the others.
A median error of 6 % is allowed.  Beside it stands how much two measurements of the same cell
differ, as half of the cells' turns against the other half, in plain steps.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
import torch

from calibrate.measure.grid import GridSettings, joined, measure_grid
from calibrate.models.load import load
from specsim.checkpoint import Checkpoint
from specsim.hardware.run_time_fit import fits, kind_of, ratios
from specsim.profiles import GridTime

BATCHES, CONTEXTS = (1, 2, 4, 8, 16, 32), (112, 448)
HELD_BATCHES, HELD_CONTEXTS = (3, 6, 12, 24), (192, 320)
GAMMA_MAX = 8
ALLOWED = 0.06


def half(turns: list[float], which: int) -> list[float]:
    """The first or the second half of a cell's turns."""
    middle = len(turns) // 2
    return turns[middle:] if which else turns[:middle]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=6)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    target, draft = (
        load(f"embedded/{name}", torch.device("cpu"), torch.float32).model
        for name in ("target", "small")
    )
    grid, held = list(product(BATCHES, CONTEXTS)), list(product(HELD_BATCHES, HELD_CONTEXTS))
    times: dict[tuple[int, int], list[dict[str, Any]]] = {cell: [] for cell in [*grid, *held]}
    cells, order = list(times), np.random.default_rng(0)
    for turn in range(arguments.repeats):
        for index in order.permutation(len(cells)).tolist():
            batch, context = cells[index]
            settings = GridSettings((batch,), (context,), GAMMA_MAX, 1, (), seed=turn)
            with tempfile.TemporaryDirectory() as work:
                times[batch, context] += measure_grid(
                    target, draft, settings, Checkpoint(Path(work))
                ).times
    rows = {cell: msgspec.convert(joined(found), list[GridTime]) for cell, found in times.items()}
    fitted = fits(row for cell in grid for row in rows[cell])
    reference = fits(row for cell in held for row in rows[cell])
    print(f"{'run':14}{'points':>8}{'median error':>14}{'worst':>8}{'halves differ':>15}")
    errors = []
    for (mode, kind), times in fitted.items():
        points = reference[mode, kind].points
        missed = [abs(times(p.tokens, p.batch, p.context) / p.seconds - 1) for p in points]
        errors += missed
        same = [row for cell in held for row in rows[cell] if kind_of(row) == kind]
        beside = [ratios(row) for row in same if row.seconds != row.plain]
        halves = [abs(median(half(found, 0)) / median(half(found, 1)) - 1) for found in beside]
        print(
            f"{kind:14}{len(points):8d}{np.median(missed):14.1%}{max(missed):8.1%}"
            f"{np.median(halves):15.1%}"
        )
    print(f"all: median {np.median(errors):.1%}, worst {max(errors):.1%} ({ALLOWED:.0%} allowed)")
    return 1 if np.median(errors) > ALLOWED else 0


if __name__ == "__main__":
    sys.exit(main())
