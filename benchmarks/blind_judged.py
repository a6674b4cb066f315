"""What a battery of blind checks came to: every cell predicted beside measured, and sums of them.

A battery is a folder of profiles, ``DRAFT-NUMBER.json``, and what one check of each draft measured,
``DRAFT-blind.json`` (``benchmarks/blind_accuracy.py``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from specsim.checks import Floats
from specsim.intervals import Interval, apart
from specsim.optimizers.workload import Workload
from specsim.predict.elasticity import Elasticity
from specsim.predict.prediction_file import PredictedSpeedup, predicted_speedups
from specsim.profiles import Profile, read_profile

DRAFTS = ("small", "middle", "prompt-lookup")
# What is said to draft instead: the pair of ``python -m benchmarks.t5_pair build/t5``.
T5 = "t5"
CALIBRATIONS = (1, 2, 3)


def profile_of(folder: Path, draft: str, number: int) -> Path:
    return folder / f"{draft}-{number}.json"


def measured_rows(folder: Path, draft: str) -> dict[tuple[float, int], dict[str, Any]]:
    rows = json.loads((folder / f"{draft}-blind.json").read_text())["answer"]["rows"]
    return {(row["temperature"], row["gamma"]): row for row in rows}


def checked_drafts(folder: Path) -> list[str]:
    """Those whose check is there."""
    return [draft for draft in (*DRAFTS, T5) if (folder / f"{draft}-blind.json").exists()]


def cells(
    folder: Path,
    change: Callable[[Profile], Profile] = lambda profile: profile,
    requests: int = 0,
    moved_alike: bool = False,
) -> Iterator[dict[str, Any]]:
    """Every calibration that is there, temperature and draft length, predicted beside measured.

    change : made to the profile before it predicts
    requests : of the calibration that are used; 0 is all
    moved_alike : whether it is moved to the check's plain step by the elasticities of the profile
        as it was before the change
    """
    for draft in checked_drafts(folder):
        measured = measured_rows(folder, draft)
        checked = max(row["requests"] for row in measured.values())
        for number in CALIBRATIONS:
            path = profile_of(folder, draft, number)
            if not path.exists():
                continue
            workloads = Workload.all_of(change(read_profile(path)), path, None)
            if requests:
                workloads = [fewer(workload, requests) for workload in workloads]
            known = {each.measured.sampling.temperature: repeats_error(each) for each in workloads}
            moves = elasticities(path) if moved_alike else {}
            others = {}
            if 0 < requests < checked:
                others = {k: v for each in workloads for k, v in of_other_requests(each).items()}
            for said in predicted_speedups(path, workloads, checked).predictions:
                row = measured[said.temperature, said.gamma]
                if other := others.get((said.temperature, said.gamma)):
                    ends = {name: end * said.speedup for name, end in other.items()}
                    said = msgspec.structs.replace(said, **ends)
                said = with_elasticity(said, moves.get((said.temperature, said.gamma)))
                # Older checks do not tell how long plain decoding took.
                plain_ms = row.get("measured_plain_ms")
                expected = (
                    Interval(said.low, said.speedup, said.high)
                    if plain_ms is None
                    else said.at(plain_ms)
                )
                yield {
                    "draft": draft,
                    "calibration": number,
                    "temperature": said.temperature,
                    "gamma": said.gamma,
                    "predicted_speedup": expected.best,
                    "low": expected.low,
                    "high": expected.high,
                    "measured_speedup": row["measured_speedup"],
                    "measured_error": row["measured_error"],
                    "measured_low": row["measured_low"],
                    "measured_high": row["measured_high"],
                    "relative_error": expected.best / row["measured_speedup"] - 1,
                    "inside": within(expected, row),
                    "chosen": said.chosen,
                    "speedup_at_profile_plain": said.speedup,
                    "profile_plain_ms": said.plain_ms,
                    "measured_plain_ms": plain_ms,
                    "elasticity": said.elasticity,
                    "elasticity_error": said.elasticity_error,
                    "repeats_error": known[said.temperature],
                }


def of_other_requests(workload: Workload) -> dict[tuple[float, int], dict[str, float]]:
    """Intervals of predictions over what is predicted, by temperature and draft length, where the
    check decodes more requests than the prediction knows, so that texts are left open at
    temperature 0, too; above it they are left open anyway.
    """
    profile, gammas = workload.profile, range(1, workload.profile.gamma_max + 1)
    temperature = workload.measured.sampling.temperature
    found: dict[tuple[float, int], dict[str, float]] = {}
    if temperature:
        return found
    known = profile.drift if workload.cost.drawn is None else profile.drift_at_plain
    for name, drift in {"": profile.drift, "known_": known}.items():
        for each in workload.predict(gammas, drift):
            low, high = each.low / each.speedup, each.high / each.speedup
            ends = {f"{name}low": low, f"{name}high": high}
            found.setdefault((temperature, each.gamma), {}).update(ends)
    return found


@cache
def elasticities(path: Path) -> dict[tuple[float, int], Elasticity]:
    """Of a profile's speedups, by temperature and draft length."""
    return {
        (workload.measured.sampling.temperature, gamma): workload.elasticity(gamma)
        for workload in Workload.all_of(read_profile(path), path, None)
        for gamma in range(1, workload.profile.gamma_max + 1)
    }


def with_elasticity(said: PredictedSpeedup, moves: Elasticity | None) -> PredictedSpeedup:
    """The same where another elasticity is given, or as it is."""
    if moves is None:
        return said
    return msgspec.structs.replace(said, elasticity=moves.best, elasticity_error=moves.error)


def repeats_error(workload: Workload) -> float:
    """Standard error of the mean logarithm of the speedups of all draft lengths, from what repeats
    of run times leave open and nothing else.
    """
    gammas = range(1, workload.profile.gamma_max + 1)
    drawn = [np.log(each.drawn_costs) for each in workload.predict(gammas, 0.0)]
    return float(np.mean(drawn, axis=0).std())


def fewer(workload: Workload, requests: int) -> Workload:
    kept = min(requests, workload.trace.requests)
    return replace(workload, trace=workload.trace.take(np.arange(kept)))


def within(expected: Interval[float], row: dict[str, Any]) -> bool:
    """Whether the two intervals, of prediction and measurement, explain the error together."""
    measured = (row[f"measured_{name}"] for name in ("low", "speedup", "high"))
    return apart(expected, Interval(*measured)) <= 1


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What a table of cells says."""
    frame = pd.DataFrame(rows)
    off = frame["relative_error"]
    groups = frame.groupby(["draft", "calibration", "temperature"])
    losses = [
        1 - group.loc[group["chosen"], "measured_speedup"].max() / group["measured_speedup"].max()
        for _, group in groups
        if group["chosen"].any()
    ]
    # All calibrations are judged by one check, so that they are not independent.
    by_check = frame[frame["chosen"]].groupby(["draft", "temperature"])
    chosen = by_check["relative_error"].mean()
    apart = off - groups["relative_error"].transform("mean")
    return {
        "median": float(off.abs().median()),
        "worst": float(off.abs().max()),
        "mean": float(off.mean()),
        # About the mean over draft lengths, which is what choosing one of them rests on.
        "over_lengths": float(np.sqrt((apart**2).mean())),
        "inside": float(frame["inside"].mean()),
        # No number where plain decoding is recommended throughout.
        "within_2_percent_of_best": float(pd.Series(losses, dtype=float).le(0.02).mean()),
        "chosen_mean": float(chosen.mean()),
        "chosen_mean_error": float(chosen.std(ddof=1) / np.sqrt(len(chosen))),
    }


def losses_with_plain(cells: pd.DataFrame) -> list[float]:
    """How much slower every recommendation is than the fastest, as a share of that; plain decoding,
    whose speedup is 1, may be either.
    """
    losses = []
    for _, part in cells.groupby(["draft", "temperature", "calibration"]):
        (speedup,) = part.loc[part["chosen"], "measured_speedup"].tolist() or [1.0]
        losses.append(1 - speedup / max(part["measured_speedup"].max(), 1.0))
    return losses


def recommended_losses(folder: Path, cells: pd.DataFrame, *, plain: bool = False) -> list[float]:
    """``loss_by_halves`` of every recommendation; none of checks that do not tell their passes.

    plain : whether plain decoding is a recommendation, and may be the fastest
    """
    losses = []
    for (draft, temperature, _), part in cells.groupby(["draft", "temperature", "calibration"]):
        rows = measured_rows(folder, draft)
        gammas = sorted(gamma for each, gamma in rows if each == temperature)
        by_pass = [rows[temperature, gamma].get("measured_by_pass") for gamma in gammas]
        chosen = part.loc[part["chosen"], "gamma"].tolist() or [0] * plain
        if chosen and all(by_pass):
            speedups = np.array(by_pass)
            if plain:
                gammas, speedups = [0, *gammas], np.vstack([np.ones(speedups.shape[1]), speedups])
            losses.append(loss_by_halves(speedups, gammas.index(chosen[0])))
    return losses


def mean_error(folder: Path) -> float | None:
    """Standard error that the passes of the checks leave the mean error of all cells; None of
    checks that do not tell their passes.
    """
    variances = []
    for draft in checked_drafts(folder):
        rows = measured_rows(folder, draft).values()
        by_pass = [row.get("measured_by_pass") for row in rows]
        if not all(by_pass):
            return None
        # A pass is off with all of its lengths together.
        passes = np.log(np.array(by_pass)).mean(axis=0)
        variances.append(passes.var(ddof=1) / passes.size)
    return float(np.sqrt(sum(variances)) / len(variances))


def loss_by_halves(by_pass: Floats, chosen: int) -> float:
    """How much slower a draft length is than the best, as a share of the best.

    The best of several measured lengths is mostly one that chance favours.  So one half of the
    passes says which is best, and the other how fast that is and the chosen one; the mean over all
    halves.

    by_pass : speedups, (K, P) of K draft lengths in P passes, P even
    """
    passes = by_pass.shape[1]
    losses = []
    for half in combinations(range(passes), passes // 2):
        other = sorted(set(range(passes)) - set(half))
        best = int(by_pass[:, half].mean(axis=1).argmax())
        speeds = by_pass[:, other].mean(axis=1)
        losses.append(1 - speeds[chosen] / speeds[best])
    return float(np.mean(losses))
