"""Laws in K of an engine's steps, by how far off the speedups are that they predict.

    python benchmarks/vllm_laws.py

For every check in studies/measured/vllm, what was predicted before it is moved to what another law
makes of the same step times, and stands beside what servers then took.  Laws are the line that
predictions rest on, what lies between the lengths that were timed, a parabola, and a line with a
step between one draft and two; each of sets alone, and with steps under load beside them.  Moved
are steps of the check's batch alone: first tokens, and those of the smaller batches that a set
shrinks to, are taken to move alike, so that all but the first law is an approximation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from specsim.checks import Floats
from specsim.counts.file import read_acceptance
from specsim.predict.engine_sets import StepRepeats, line_weights
from specsim.report.tables import render

MEASURED = Path(__file__).parent.parent / "studies" / "measured" / "vllm"
# Step times by calibration, and what was predicted and measured, by folder.
THREE = ["blind-timed.json", "blind-2-timed.json", "blind-3-timed.json"]
CHECKS: list[tuple[str, list[str], str]] = [
    ("three", THREE, "blind-cells.csv"),
    ("three-restless", THREE, "blind-cells.csv"),
    (".", ["blind-timed.json"], "blind.csv"),
    (".", ["blind-t1-timed.json"], "blind-t1.csv"),
    (".", ["blind-generate-timed.json"], "blind-generate.csv"),
]
# What each K that was timed counts in the value at another.
Weights = Callable[[Sequence[int], int], Floats]


def between(gammas: Sequence[int], gamma: int) -> Floats:
    return np.array([np.interp(gamma, gammas, row) for row in np.eye(len(gammas))])


def fitted(columns: Callable[[Floats], list[Floats]]) -> Weights:
    def weights(gammas: Sequence[int], gamma: int) -> Floats:
        design = np.stack(columns(np.array(gammas, dtype=float)), axis=1)
        at = np.stack(columns(np.array([gamma], dtype=float)), axis=1)
        found: Floats = (at @ np.linalg.pinv(design))[0]
        return found

    return weights


LAWS: dict[str, Weights] = {
    "line": line_weights,
    "between those timed": between,
    "parabola": fitted(lambda k: [np.ones_like(k), k, k**2]),
    "line, and a step at two": fitted(lambda k: [np.ones_like(k), k, (k >= 2).astype(float)]),
}


def main() -> None:
    rows = []
    for folder, timings, cells in CHECKS:
        judged = pd.read_csv(MEASURED / folder / cells)
        for law, weights in LAWS.items():
            for load in (False, True):
                off = np.concatenate(
                    [
                        errors(MEASURED / folder / timed, of_calibration, weights, load)
                        for timed, of_calibration in zip(timings, split(judged), strict=True)
                    ]
                )
                rows.append(
                    {
                        "check": f"{folder}/{cells}".removeprefix("./"),
                        "law": law,
                        "steps_under_load": load,
                        "median_absolute_error": float(np.median(np.abs(off))),
                        "worst_absolute_error": float(np.abs(off).max()),
                        "mean_error": float(off.mean()),
                        "root_mean_square": float(np.sqrt(np.mean(off**2))),
                    }
                )
    print(render(rows, "markdown"))


def split(judged: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each calibration."""
    if "calibration" not in judged:
        return [judged]
    return [rows for _, rows in judged.groupby("calibration")]


def errors(timed: Path, judged: pd.DataFrame, weights: Weights, load: bool) -> Floats:
    """Of each row, predicted by another law over measured, less one."""
    content = read_acceptance(timed)
    sets = StepRepeats.of(content.step_times())
    both = sets.beside(tuple(content.streamed_steps()))
    as_was = both.steps.mean(axis=0)
    as_now = (both if load else sets).steps.mean(axis=0)
    found = []
    for row in judged.itertuples():
        batch, gamma = sets.batches.index(row.batch), row.gamma
        was = as_was[batch] @ line_weights(sets.gammas, gamma)
        now = as_now[batch] @ weights(sets.gammas, gamma)
        found.append(row.predicted_speedup * was / now / row.measured_speedup - 1)
    return np.array(found)


if __name__ == "__main__":
    main()
