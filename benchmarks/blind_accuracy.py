"""How far off speedups are that were predicted before, and whether their intervals hold.

    python benchmarks/blind_accuracy.py calibrate FOLDER     # three of each draft
    python benchmarks/blind_accuracy.py check FOLDER         # each decoder alone, four passes
    python benchmarks/blind_accuracy.py report FOLDER OUT    # studies/measured/blind

Every command is a process of its own, and goes on where it was killed.  ``report`` judges the
predictions of all calibrations by the one check of their draft, and writes ``cells.csv``,
``estimators.csv`` (how costs are estimated, on the same data) and ``knee.csv`` (fewer requests and
repeats).  Nothing else may run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from calibrate.measure.timing import TOKENS
from specsim.hardware import run_time_fit
from specsim.hardware.repeats import Repeats
from specsim.intervals import around
from specsim.optimizers.workload import Workload
from specsim.profiles import Profile, RunTime, read_profile

DRAFTS = ("small",)
CALIBRATIONS = (1, 2, 3)
REQUESTS, REPEATS, PASSES = 8, 8, 4
KNEE = tuple((requests, repeats) for requests in (4, 8) for repeats in (2, 4, 8))


def profile_of(folder: Path, draft: str, number: int) -> Path:
    return folder / f"{draft}-{number}.json"


def calibrate(folder: Path) -> None:
    """Drafts by turns, so that the calibrations of one are minutes apart."""
    for number in CALIBRATIONS:
        for draft in DRAFTS:
            out = profile_of(folder, draft, number)
            if not out.exists():
                words = ["calibrate", "--draft", f"embedded/{draft}", "--out", str(out)]
                # The seed stays: the texts are the same, and only what is timed differs.
                words += ["--requests", str(REQUESTS), "--repeats", str(REPEATS)]
                specsim(*words)


def check(folder: Path) -> None:
    for draft in DRAFTS:
        out = folder / f"{draft}-blind.json"
        if not out.exists():
            first = profile_of(folder, draft, CALIBRATIONS[0])
            words = ["validate", str(first), "--blind", "--passes", str(PASSES)]
            out.write_text(specsim(*words, "--format", "json"))


def specsim(*words: str) -> str:
    print("specsim", *words, flush=True)
    started = time.monotonic()
    found = subprocess.run(
        [sys.executable, "-m", "specsim", *words], stdout=subprocess.PIPE, text=True, check=False
    )
    print(f"  exit {found.returncode} after {time.monotonic() - started:.0f} s", flush=True)
    if found.returncode not in (0, 1):
        raise SystemExit(found.returncode)
    return found.stdout


def measured_rows(folder: Path, draft: str) -> dict[tuple[float, int], dict[str, Any]]:
    rows = json.loads((folder / f"{draft}-blind.json").read_text())["answer"]["rows"]
    return {(row["temperature"], row["gamma"]): row for row in rows}


def cells(
    folder: Path, change: Callable[[Profile], Profile] = lambda profile: profile, requests: int = 0
) -> Iterator[dict[str, Any]]:
    """Every calibration, temperature and draft length, predicted beside measured.

    change : made to the profile before it predicts
    requests : of the calibration that are used; 0 is all
    """
    for draft in DRAFTS:
        measured = measured_rows(folder, draft)
        for number in CALIBRATIONS:
            path = profile_of(folder, draft, number)
            profile = change(read_profile(path))
            for workload in Workload.all_of(profile, path, None):
                chosen = replace(
                    workload,
                    trace=workload.trace.take(np.arange(requests)) if requests else workload.trace,
                )
                best = chosen.best()
                temperature = workload.measured.sampling.temperature
                for each in chosen.predict(range(1, profile.gamma_max + 1)):
                    row = measured[temperature, each.gamma]
                    drawn = each.drawn if temperature else each.drawn_costs
                    sure = around(each.speedup, drawn)
                    shown = best.speedup if each.gamma == best.gamma else each.speedup
                    low, high = (end * shown / each.speedup for end in (sure.low, sure.high))
                    yield {
                        "draft": draft,
                        "calibration": number,
                        "temperature": temperature,
                        "gamma": each.gamma,
                        "predicted_speedup": shown,
                        "low": low,
                        "high": high,
                        "measured_speedup": row["measured_speedup"],
                        "measured_error": row["measured_error"],
                        "relative_error": shown / row["measured_speedup"] - 1,
                        "inside": within(low, shown, high, row),
                        "chosen": each.gamma == best.gamma,
                    }


def within(low: float, predicted: float, high: float, row: dict[str, Any]) -> bool:
    """Whether the two intervals, of prediction and measurement, explain the error together."""
    off = np.log(predicted / row["measured_speedup"])
    halves = np.log(high / low) / 2, np.log(row["measured_high"] / row["measured_low"]) / 2
    return bool(abs(off) <= np.hypot(*halves))


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
    chosen = frame.loc[frame["chosen"], "relative_error"]
    return {
        "median": float(off.abs().median()),
        "worst": float(off.abs().max()),
        "mean": float(off.mean()),
        "inside": float(frame["inside"].mean()),
        "within_2_percent_of_best": float(np.mean([loss <= 0.02 for loss in losses])),
        "chosen_mean": float(chosen.mean()),
        "chosen_mean_error": float(chosen.std(ddof=1) / np.sqrt(len(chosen))),
    }


def medians(profile: Profile) -> Profile:
    """A price of its own for every width: the median of its repeats."""

    def one(row: RunTime) -> RunTime:
        ratio = median(run_time_fit.ratios(row))
        usual = median(row.plain)
        return msgspec.structs.replace(row, seconds=[ratio * usual], plain=[usual], passes=[])

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
        usual = median(row.plain)
        ratio = Repeats.of(run_time_fit.ratios(row)).mean
        return msgspec.structs.replace(row, seconds=[ratio * usual], plain=[usual], passes=[])

    return msgspec.structs.replace(profile, run_times=[one(row) for row in profile.run_times])


def shorter(profile: Profile, repeats: int) -> Profile:
    """As if only the first passes had been made, each at both temperatures."""

    def cut(row: Any) -> Any:
        kept = [at for at, number in enumerate(row.passes) if number < 2 * repeats]
        lists = {
            name: [getattr(row, name)[at] for at in kept] for name in ("seconds", "plain", "passes")
        }
        return msgspec.structs.replace(row, **lists) if kept else None

    return msgspec.structs.replace(
        profile,
        run_times=[row for each in profile.run_times if (row := cut(each))],
        overhead=[row for each in profile.overhead if (row := cut(each))],
    )


def seconds_timed(profile: Profile, repeats: int, requests: int, tokens: int) -> float:
    """Seconds of decoding that a calibration of this size takes, from its own run times."""
    plain = median(each for row in profile.run_times for each in row.plain)
    host = median(each for row in profile.overhead if row.gamma == 0 for each in row.seconds)
    # Plain decodings stand before and after every two draft lengths.
    decodings = repeats * 2 * (profile.gamma_max * 1.5 + 1) * TOKENS
    return (plain + host) * (decodings + requests * 2 * tokens)


def report(folder: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    found = list(cells(folder))
    pd.DataFrame(found).to_csv(out / "cells.csv", index=False)
    said = summary(found)
    errors = [
        row["measured_error"] / row["measured_speedup"]
        for draft in DRAFTS
        for row in measured_rows(folder, draft).values()
    ]
    print(
        f"{len(found)} cells: median {said['median']:.1%}, worst {said['worst']:.1%}, mean "
        f"{said['mean']:+.2%}; 95 % intervals hold {said['inside']:.1%}; the measurement's own "
        f"error {median(errors):.1%} (median)"
    )
    print(
        f"recommended length within 2 % of the best in {said['within_2_percent_of_best']:.0%}; its "
        f"own prediction off by {said['chosen_mean']:+.2%} in the mean "
        f"(standard error {said['chosen_mean_error']:.2%})"
    )
    kinds: dict[str, Callable[[Profile], Profile]] = {
        "smoothed": lambda profile: profile,
        "means by width": means,
        "medians by width": medians,
    }
    table = [
        {"estimator": name, **summary(list(cells(folder, each)))} for name, each in kinds.items()
    ]
    pd.DataFrame(table).to_csv(out / "estimators.csv", index=False)
    print(pd.DataFrame(table).to_string(index=False))
    first = read_profile(profile_of(folder, DRAFTS[0], CALIBRATIONS[0]))
    table = []
    for requests, repeats in KNEE:
        rows = list(cells(folder, partial(shorter, repeats=repeats), requests))
        seconds = seconds_timed(first, repeats, requests, 128)
        table.append(
            {"requests": requests, "repeats": repeats, "seconds": seconds, **summary(rows)}
        )
    pd.DataFrame(table).to_csv(out / "knee.csv", index=False)
    print(pd.DataFrame(table).to_string(index=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("stage", choices=("calibrate", "check", "report"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path("studies/measured/blind"))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.stage == "report":
        report(asked.folder, asked.out)
    else:
        {"calibrate": calibrate, "check": check}[asked.stage](asked.folder)


if __name__ == "__main__":
    main()
