"""Laws in K of an engine's steps, by how far off the speedups are that they predict.

    python benchmarks/vllm_laws.py

For every check in studies/measured/vllm, what was predicted before it is moved to what another law
makes of the same step times, and stands beside what servers then took.  Laws are the line that
predictions rest on, what lies between the lengths that were timed, a parabola, and a line with a
step between one draft and two; each of sets alone, and with steps under load beside them.  Moved
are steps of the check's batch alone: first tokens, and those of the smaller batches that a set
shrinks to, are taken to move alike, so that all but the first law is an approximation.

A second table says how many of the intervals hold, as they were written down and as they are of the
mean over as many servers as the check had started, which older ones were not written for.  Half
widths change as those of a set do whose requests all take the same number of rounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specsim.checks import Floats
from specsim.counts.file import read_acceptance
from specsim.intervals import Interval, apart
from specsim.predict.engine_sets import AskedSets, StepRepeats, line_weights
from specsim.report.tables import render

MEASURED = Path(__file__).parent.parent / "studies" / "measured" / "vllm"
# Step times by calibration, and what was predicted and measured, by folder.
THREE = ["blind-timed.json", "blind-2-timed.json", "blind-3-timed.json"]
CHECKS: list[tuple[str, list[str], str]] = [
    ("three", THREE, "blind-cells.csv"),
    ("three-starts", THREE, "blind-cells.csv"),
    ("three-morning", THREE, "blind-cells.csv"),
    ("three-warm", THREE, "blind-cells.csv"),
    ("three-restless", THREE, "blind-cells.csv"),
    (".", ["blind-timed.json"], "blind.csv"),
    (".", ["blind-t1-timed.json"], "blind-t1.csv"),
    (".", ["blind-generate-timed.json"], "blind-generate.csv"),
]
# Servers of a check that were started, of each draft length.
STARTS = {"three": 2, "three-starts": 4, "three-morning": 4, "three-warm": 4, "three-restless": 2}
# Rounds of a request without drafts, and tokens of a round with them.
ROUNDS, TOKENS = 127, 2.0
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
    print()
    print(render([held(*each) for each in CHECKS if each[0] in STARTS], "markdown"))


def held(folder: str, timings: Sequence[str], cells: str) -> dict[str, Any]:
    """How many intervals of a check hold."""
    starts, moved = STARTS[folder], []
    judged = pd.read_csv(MEASURED / folder / cells)
    for timed, rows in zip(timings, split(judged), strict=True):
        said = json.loads((MEASURED / folder / timed.replace("timed", "predicted")).read_text())
        content = read_acceptance(MEASURED / folder / timed)
        repeats = StepRepeats.of(content.step_times()).beside(tuple(content.streamed_steps()))
        for row in rows.itertuples():
            rounds = {k: [np.full(row.batch, round(n))] for k, n in _rounds(row.gamma).items()}
            asked = AskedSets(row.batch, rounds)
            then, now = (
                half_width(repeats.speedup(asked, row.gamma, starts=each).speedup)
                for each in (said.get("starts") or 1, starts)
            )
            low, high = (
                row.predicted_speedup * (end / row.predicted_speedup) ** (now / then)
                for end in (row.predicted_low, row.predicted_high)
            )
            seen = Interval(row.measured_low, row.measured_speedup, row.measured_high)
            moved.append(apart(Interval(low, row.predicted_speedup, high), seen) <= 1)
    return {
        "check": folder,
        "starts": starts,
        "speedups": len(judged),
        "hold": int(judged["inside"].sum()),
        "hold_of_the_mean_over_starts": sum(moved),
    }


def _rounds(gamma: int) -> dict[int, float]:
    return {0: ROUNDS, gamma: ROUNDS / TOKENS}


def half_width(interval: Interval[float]) -> float:
    """Of the logarithm."""
    return float(np.log(interval.high / interval.low)) / 2


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
