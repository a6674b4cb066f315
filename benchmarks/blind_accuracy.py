"""How far off speedups are that were predicted before, and whether their intervals hold.

    python -m benchmarks.blind_accuracy calibrate FOLDER     # three of each draft, ten minutes
                                                             # from one to the next
    python -m benchmarks.blind_accuracy check FOLDER         # ten minutes later, each decoder
                                                             # alone, eight passes, all drafts
                                                             # by turns
    python -m benchmarks.blind_accuracy report FOLDER        # of studies/measured/blind, say

Every command is a process of its own, and goes on where it was killed: ``calibrate FOLDER
--calibrations 1`` ends behind the first of each draft, and a check that is stopped and started
again later is spread over more of what the machine does.  ``report`` judges the predictions of all
calibrations by the one check of their draft, and writes ``cells.csv``, ``estimators.csv`` (how
costs are estimated, on the same data) and ``knee.csv`` (fewer requests and repeats) into FOLDER.
Takes an hour and a quarter; a check of the drafts FIRST,SECOND alone is ``check FOLDER
FIRST,SECOND``.

With ``calibrate FOLDER --turn 30`` every calibration has half a minute in each round, is stopped
and goes on in the next, so that each of them sees what the machine does in three quarters of an
hour, as with ``specsim calibrate --spread-minutes``.

``--seed N``, of calibrate and of check, is for a battery that shares no texts with others: those of
one seed write the same ones, and what these happen to accept above temperature 0 is one error in
all of them.

At temperature 0 a pass decodes all requests of a profile, so that the recommended length is judged
by what it is recommended for; ``--requests 48,96 --checked 8`` is what studies/measured/blind/quiet
has, where it is not.  The profiles there have run times of decodings of 32 tokens: their ``report``
is made with ``--timed-tokens 32``, which the seconds of ``knee.csv`` rest on.  Where ``t5`` is said
to draft, the pair is that of ``python -m benchmarks.t5_pair build/t5``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from benchmarks.blind_estimators import (
    alike,
    alone,
    host_alone,
    means,
    medians,
    seconds_timed,
    shorter,
)
from benchmarks.blind_judged import (
    CALIBRATIONS,
    DRAFTS,
    T5,
    cells,
    checked_drafts,
    losses_with_plain,
    mean_error,
    measured_rows,
    profile_of,
    recommended_losses,
    summary,
)
from calibrate.measure.timing import TOKENS
from specsim.profiles import Profile, read_profile

_T5 = ("--target", "build/t5/target", "--draft", "build/t5/draft")
_T5_PROMPTS = ("--prompts", "build/t5/prompts.txt")
# At temperature 0, where nothing is left to chance, and at 1.
REQUESTS = "16,48"
TOKENS_EACH, REPEATS = 64, 8
# Seconds from one calibration of a draft to the next, and from the last to its check: a shared
# machine has states that last for minutes, and calibrations of one state are off together.
APART_S = 600
# Of the check: requests of each temperature in a pass, and passes.
CHECKED, PASSES = 16, 8
# Of a draft's check before the next draft has its turn: two passes or so.
TURN_S = 180
KNEE = tuple((requests, repeats) for requests in (8, 16, 32, 96) for repeats in (2, 4, 8, 16, 24))


def models(draft: str) -> tuple[str, ...]:
    """Which models a calibration is of, in the words of the command."""
    if draft == T5:
        return _T5
    return "--draft", draft if draft == "prompt-lookup" else f"embedded/{draft}"


def prompts(draft: str) -> tuple[str, ...]:
    """Of which prompts, which a check has to be told again."""
    return _T5_PROMPTS if draft == T5 else ()


def calibrate(
    folder: Path,
    drafts: Sequence[str],
    requests: str,
    repeats: int,
    calibrations: int,
    seed: int,
    turn_s: float | None = None,
) -> None:
    """turn_s : None is one calibration after the other, those of a draft ten minutes apart"""
    waiting = [
        (draft, number)
        for number in CALIBRATIONS[:calibrations]
        for draft in drafts
        if not profile_of(folder, draft, number).exists()
    ]
    while waiting:
        begun = time.monotonic()
        for draft, number in tuple(waiting):
            if turn_s is None:
                wait(folder, draft)
            words = ["calibrate", *models(draft), *prompts(draft)]
            words += ["--out", str(profile_of(folder, draft, number)), "--seed", str(seed + number)]
            words += ["--requests", requests, "--repeats", str(repeats)]
            words += ["--max-new-tokens", str(TOKENS_EACH)]
            if specsim(*words, turn_s=turn_s) is not None:
                waiting.remove((draft, number))
        if waiting:
            time.sleep(max(begun + APART_S - time.monotonic(), 0.0))


def check(folder: Path, drafts: Sequence[str], requests: int, passes: int, seed: int) -> None:
    waiting = [draft for draft in drafts if not (folder / f"{draft}-blind.json").exists()]
    for draft in waiting:
        wait(folder, draft)
    while waiting:
        draft = waiting.pop(0)
        words = ["validate", str(profile_of(folder, draft, CALIBRATIONS[0])), "--blind"]
        words += ["--requests", str(requests), "--passes", str(passes), "--format", "json"]
        words += ["--seed", str(seed)]
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
        kinds["draft runs alike"] = alike
    table = [
        {"estimator": name, **summary(list(cells(folder, each, moved_alike=True)))}
        for name, each in kinds.items()
    ]
    pd.DataFrame(table).to_csv(folder / "estimators.csv", index=False)
    print(pd.DataFrame(table).to_string(index=False))
    most = max(each.requests for each in first.acceptance)
    passes = 1 + max(number for row in first.run_times for number in row.passes)
    table = []
    for requests, repeats in KNEE:
        if requests <= most and 2 * repeats <= passes:
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
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of the calibrations")
    parser.add_argument("--calibrations", type=int, default=len(CALIBRATIONS), help="of each draft")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the check; calibrations have the next ones"
    )
    parser.add_argument(
        "--turn", type=float, help="seconds of a calibration in each round, ten minutes apart"
    )
    parser.add_argument("--checked", type=int, default=CHECKED, help="requests of a pass")
    parser.add_argument("--passes", type=int, default=PASSES, help="of the check")
    parser.add_argument(
        "--timed-tokens", type=int, default=TOKENS, help="of a decoding that run times are of"
    )
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    drafts = asked.drafts.split(",")
    if asked.stage == "report":
        report(asked.folder, asked.timed_tokens)
    elif asked.stage == "calibrate":
        calibrate(
            asked.folder,
            drafts,
            asked.requests,
            asked.repeats,
            asked.calibrations,
            asked.seed,
            asked.turn,
        )
    else:
        check(asked.folder, drafts, asked.checked, asked.passes, asked.seed)


if __name__ == "__main__":
    main()
