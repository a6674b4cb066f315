"""How far off speedups are that were predicted before, and whether their intervals hold.

    python benchmarks/blind_accuracy.py calibrate FOLDER     # three of each draft, ten minutes
                                                             # from one to the next
    python benchmarks/blind_accuracy.py check FOLDER         # ten minutes later, each decoder
                                                             # alone, eight passes, all drafts
                                                             # by turns
    python benchmarks/blind_accuracy.py report FOLDER        # of studies/measured/blind, say

Every command is a process of its own, and goes on where it was killed: ``calibrate FOLDER
--calibrations 1`` ends behind the first of each draft, and a check that is stopped and started
again later is spread over more of what the machine does.  ``report`` judges the predictions of all
calibrations by the one check of their draft, and writes ``cells.csv``, ``estimators.csv`` (how
costs are estimated, on the same data) and ``knee.csv`` (fewer requests and repeats) into FOLDER.
Takes an hour and a quarter; a check of the drafts FIRST,SECOND alone is ``check FOLDER
FIRST,SECOND``.

At temperature 0 a pass decodes all requests of a profile, so that the recommended length is judged
by what it is recommended for; ``--requests 48,96 --checked 8`` is what studies/measured/blind/quiet
has, where it is not.  The profiles there have run times of decodings of 32 tokens: their ``report``
is made with ``--timed-tokens 32``, which the seconds of ``knee.csv`` rest on.  Where ``t5`` is said
to draft, the pair is that of ``python -m benchmarks.t5_pair build/t5``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from calibrate.measure.timing import TOKENS
from specsim.checks import Floats
from specsim.hardware import run_time_fit
from specsim.hardware.later_drafts import of_length
from specsim.hardware.repeats import Repeats
from specsim.intervals import Interval, apart
from specsim.optimizers.workload import Workload
from specsim.predict.elasticity import Elasticity
from specsim.predict.prediction_file import PredictedSpeedup, predicted_speedups
from specsim.profiles import Overhead, Profile, RunTime, read_profile

DRAFTS = ("small", "middle", "prompt-lookup")
# What is said to draft instead: the pair of ``python -m benchmarks.t5_pair build/t5``.
T5 = "t5"
_T5 = ("--target", "build/t5/target", "--draft", "build/t5/draft")
_T5_PROMPTS = ("--prompts", "build/t5/prompts.txt")
CALIBRATIONS = (1, 2, 3)
# At temperature 0, where nothing is left to chance, and at 1.
REQUESTS = "16,48"
TOKENS_EACH, REPEATS = 64, 8
# Seconds from one calibration of a draft to the next, and from the last to its check: a shared
# machine has states that last for minutes, and calibrations of one state are off together.
APART_S = 600
# Of the check: requests of each temperature in a pass.
CHECKED, PASSES = 16, 8
# Of a draft's check before the next draft has its turn: two passes or so.
TURN_S = 180
KNEE = tuple((requests, repeats) for requests in (8, 16, 32, 96) for repeats in (2, 4, 8))


def profile_of(folder: Path, draft: str, number: int) -> Path:
    return folder / f"{draft}-{number}.json"


def models(draft: str) -> tuple[str, ...]:
    """Which models a calibration is of, in the words of the command."""
    if draft == T5:
        return _T5
    return "--draft", draft if draft == "prompt-lookup" else f"embedded/{draft}"


def prompts(draft: str) -> tuple[str, ...]:
    """Of which prompts, which a check has to be told again."""
    return _T5_PROMPTS if draft == T5 else ()


def calibrate(folder: Path, drafts: Sequence[str], requests: str, calibrations: int) -> None:
    for number in CALIBRATIONS[:calibrations]:
        for draft in drafts:
            out = profile_of(folder, draft, number)
            if not out.exists():
                wait(folder, draft)
                words = ["calibrate", *models(draft), *prompts(draft), "--out", str(out)]
                words += ["--seed", str(number)]
                words += ["--requests", requests, "--repeats", str(REPEATS)]
                specsim(*words, "--max-new-tokens", str(TOKENS_EACH))


def check(folder: Path, drafts: Sequence[str], requests: int) -> None:
    waiting = [draft for draft in drafts if not (folder / f"{draft}-blind.json").exists()]
    for draft in waiting:
        wait(folder, draft)
    while waiting:
        draft = waiting.pop(0)
        words = ["validate", str(profile_of(folder, draft, CALIBRATIONS[0])), "--blind"]
        words += ["--requests", str(requests), "--passes", str(PASSES), "--format", "json"]
        words += prompts(draft)
        found = specsim(*words, turn_s=TURN_S if waiting else None)
        if found is None:
            waiting.append(draft)
        else:
            (folder / f"{draft}-blind.json").write_text(found)


def wait(folder: Path, draft: str) -> None:
    """Until the newest calibration of the draft is long enough ago."""
    profiles = [profile_of(folder, draft, number) for number in CALIBRATIONS]
    written = max((each.stat().st_mtime for each in profiles if each.exists()), default=0.0)
    left = max(written + APART_S - time.time(), 0.0)
    print(f"{draft}: waits {left:.0f} s", flush=True)
    time.sleep(left)


def specsim(*words: str, turn_s: float | None = None) -> str | None:
    """What a command prints; None where it was stopped at the end of its turn."""
    print("specsim", *words, flush=True)
    started = time.monotonic()
    try:
        found = subprocess.run(
            [sys.executable, "-m", "specsim", *words],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=turn_s,
        )
    except subprocess.TimeoutExpired:
        return None
    print(f"  exit {found.returncode} after {time.monotonic() - started:.0f} s", flush=True)
    if found.returncode not in (0, 1):
        raise SystemExit(found.returncode)
    return found.stdout


def measured_rows(folder: Path, draft: str) -> dict[tuple[float, int], dict[str, Any]]:
    rows = json.loads((folder / f"{draft}-blind.json").read_text())["answer"]["rows"]
    return {(row["temperature"], row["gamma"]): row for row in rows}


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


def checked_drafts(folder: Path) -> list[str]:
    """Those whose check is there."""
    return [draft for draft in (*DRAFTS, T5) if (folder / f"{draft}-blind.json").exists()]


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
        "within_2_percent_of_best": float(np.mean([loss <= 0.02 for loss in losses])),
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


def medians(profile: Profile) -> Profile:
    """A price of its own for every width: the median of its repeats."""

    def one(row: RunTime) -> RunTime:
        return _priced(row, lambda repeats: median(run_time_fit.ratios(repeats)))

    host = [
        msgspec.structs.replace(
            row,
            seconds=[median(s / p for s, p in zip(row.seconds, row.plain, strict=True))],
            plain=[1.0],
            passes=[],
        )
        for row in profile.overhead
    ]
    usual = median(each for row in profile.overhead for each in row.plain)
    host = [
        msgspec.structs.replace(row, seconds=[row.seconds[0] * usual], plain=[usual])
        for row in host
    ]
    return msgspec.structs.replace(
        profile, run_times=[one(row) for row in profile.run_times], overhead=host
    )


def means(profile: Profile) -> Profile:
    """A price of its own for every width: the mean of its repeats, outliers held."""

    def one(row: RunTime) -> RunTime:
        return _priced(row, lambda repeats: run_time_fit.repeats_of(repeats).mean)

    return msgspec.structs.replace(profile, run_times=[one(row) for row in profile.run_times])


def _priced(row: RunTime, price: Callable[[RunTime], float]) -> RunTime:
    """One price in the place of all repeats, or of all of a draft length where that is told."""
    usual = median(row.plain)
    lengths = sorted(set(row.gammas))
    found = [price(of_length(row, gamma)) for gamma in lengths] or [price(row)]
    return msgspec.structs.replace(
        row,
        seconds=[usual * ratio for ratio in found],
        plain=[usual] * len(found),
        passes=[],
        runs=[],
        gammas=lengths,
    )


def host_alone(profile: Profile) -> Profile:
    """Host time of each draft length by itself: as if all of its repeats agreed."""

    def one(row: Overhead) -> Overhead:
        ratios = [s / p for s, p in zip(row.seconds, row.plain, strict=True)]
        mean = Repeats.of(ratios).mean
        return msgspec.structs.replace(row, seconds=[mean * plain for plain in row.plain])

    return msgspec.structs.replace(profile, overhead=[one(row) for row in profile.overhead])


def alone(profile: Profile) -> Profile:
    """As if no other program had run beside it, which profiles say and intervals allow for."""
    return msgspec.structs.replace(profile, notes=[])


def alike(profile: Profile) -> Profile:
    """As if nobody told the draft lengths of later draft runs."""
    rows = [msgspec.structs.replace(row, gammas=[]) for row in profile.run_times]
    return msgspec.structs.replace(profile, run_times=rows)


def shorter(profile: Profile, repeats: int) -> Profile:
    """As if only the first passes had been made, each at both temperatures."""
    passes = range(2 * repeats)
    return msgspec.structs.replace(
        profile,
        run_times=run_time_fit.in_passes(profile.run_times, passes),
        overhead=run_time_fit.in_passes(profile.overhead, passes),
    )


def seconds_timed(profile: Profile, repeats: int, requests: int, timed_tokens: int) -> float:
    """Seconds of decoding that a calibration of this size takes, from its own run times."""
    plain = median(each for row in profile.run_times for each in row.plain)
    host = median(each for row in profile.overhead if row.gamma == 0 for each in row.seconds)
    # Plain decodings stand before and after every two draft lengths.
    decodings = repeats * 2 * (profile.gamma_max * 1.5 + 1) * timed_tokens
    texts = sum(min(requests, each.requests) * each.max_new_tokens for each in profile.acceptance)
    return (plain + host) * (decodings + texts)


def report(folder: Path, timed_tokens: int) -> None:
    found = list(cells(folder))
    if not found:
        raise SystemExit(f"{folder} has no calibration with its check: run calibrate and check")
    pd.DataFrame(found).to_csv(folder / "cells.csv", index=False)
    said = summary(found)
    errors = [
        row["measured_error"] / row["measured_speedup"]
        for draft in checked_drafts(folder)
        for row in measured_rows(folder, draft).values()
    ]
    print(
        f"{len(found)} cells: median {said['median']:.1%}, worst {said['worst']:.1%}, mean "
        f"{said['mean']:+.2%}; 95 % intervals hold {said['inside']:.1%}; the measurement's own "
        f"error {median(errors):.1%} (median)"
    )
    if (of_checks := mean_error(folder)) is not None:
        print(f"standard error that the checks leave the mean: {of_checks:.2%}")
    print(
        f"recommended length within 2 % of the best in {said['within_2_percent_of_best']:.0%}; its "
        f"own prediction off by {said['chosen_mean']:+.2%} in the mean "
        f"(standard error {said['chosen_mean_error']:.2%})"
    )
    frame = pd.DataFrame(found)
    if losses := recommended_losses(folder, frame):
        print(
            f"recommended length {np.mean(losses):.1%} slower than the best in the mean, where one "
            f"half of a check's passes says which is best and the other by how much; within 2 % in "
            f"{np.mean(np.array(losses) <= 0.02):.0%}"
        )
    with_plain = [losses_with_plain(frame), recommended_losses(folder, frame, plain=True)]
    shares = [f"{np.mean(np.array(each) <= 0.02):.0%}" for each in with_plain if each]
    print(
        f"with plain decoding among the recommendations within 2 % in {shares[0]}"
        + "".join(f", by halves in {each}" for each in shares[1:])
    )
    if frame["measured_plain_ms"].notna().all():
        still = frame["speedup_at_profile_plain"] / frame["measured_speedup"] - 1
        print(
            f"as if plain decoding took what it did in the calibrations: median "
            f"{still.abs().median():.1%}, worst {still.abs().max():.1%}, mean {still.mean():+.2%}"
        )
    # The check wrote the prediction of the first calibration before it measured, by the estimator
    # of then; what stands above is by today's.
    for draft in checked_drafts(folder):
        written = pd.DataFrame(measured_rows(folder, draft).values())
        written = written.assign(draft=draft, calibration=CALIBRATIONS[0])
        print(f"{draft}, as written before its check: {_errors(written)}")
    for (draft, temperature), part in frame.groupby(["draft", "temperature"]):
        print(f"{draft} at temperature {temperature:g}: {_errors(part)}")
    kinds: dict[str, Callable[[Profile], Profile]] = {
        "smoothed": lambda profile: profile,
        "smoothed, as if alone": alone,
        "means by width": means,
        "medians by width": medians,
        "host time by length": host_alone,
    }
    first = read_profile(profile_of(folder, checked_drafts(folder)[0], CALIBRATIONS[0]))
    if any(row.gammas for row in first.run_times):
        kinds["later draft runs alike"] = alike
    table = [
        {"estimator": name, **summary(list(cells(folder, each, moved_alike=True)))}
        for name, each in kinds.items()
    ]
    pd.DataFrame(table).to_csv(folder / "estimators.csv", index=False)
    print(pd.DataFrame(table).to_string(index=False))
    most = max(each.requests for each in first.acceptance)
    table = []
    for requests, repeats in KNEE:
        if requests <= most:
            rows = list(cells(folder, partial(shorter, repeats=repeats), requests))
            seconds = seconds_timed(first, repeats, requests, timed_tokens)
            known = {"requests": requests, "repeats": repeats, "seconds": seconds}
            table.append({**known, **summary(rows)})
    pd.DataFrame(table).to_csv(folder / "knee.csv", index=False)
    print(pd.DataFrame(table).to_string(index=False))


def _errors(part: pd.DataFrame) -> str:
    said = summary(part.to_dict("records"))
    return (
        f"median {said['median']:.1%}, worst {said['worst']:.1%}, mean {said['mean']:+.2%}, "
        f"inside {said['inside']:.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("stage", choices=("calibrate", "check", "report"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("drafts", nargs="?", default=",".join(DRAFTS))
    parser.add_argument("--requests", default=REQUESTS, help="of the calibrations, by temperature")
    parser.add_argument("--calibrations", type=int, default=len(CALIBRATIONS), help="of each draft")
    parser.add_argument("--checked", type=int, default=CHECKED, help="requests of a pass")
    parser.add_argument(
        "--timed-tokens", type=int, default=TOKENS, help="of a decoding that run times are of"
    )
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    drafts = asked.drafts.split(",")
    if asked.stage == "report":
        report(asked.folder, asked.timed_tokens)
    elif asked.stage == "calibrate":
        calibrate(asked.folder, drafts, asked.requests, asked.calibrations)
    else:
        check(asked.folder, drafts, asked.checked)


if __name__ == "__main__":
    main()
