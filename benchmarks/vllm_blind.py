"""Speedups of vLLM predicted before and measured afterwards, each part in a process of its own.

    make engine
    specsim calibrate --draft embedded/small --requests 32 --max-new-tokens 133 --gamma-max 5 \\
        --out small.json
    python benchmarks/vllm_blind.py studies/measured/vllm small.json \\
        [--temperature 0] [--api serve] [--passes 5] \\
        [--calibrations 1] [--repeats 5] [--starts 2]

First the step times at K = 0, 1, 3 and 5 and batch 1, 4 and 16 (``specsim.calibrate_engine``),
then the check at K = 1 to 5, whose prediction is written before its servers start
(``specsim.validate_engine``).  Writes ``blind-timed.json``, the times, ``blind-predicted.json``
and ``blind.csv``, predicted beside measured; of another temperature or of ``LLM.generate`` with
that in their names (``blind-t1-generate.csv``).  A process that was killed goes on with the passes
that are done: start it again.  With 5 passes it takes half an hour on two idle cores, some minutes
of them for sixteen servers to start.  Exits 1 where a measured interval lies outside of the
predicted one.

With ``--calibrations 3`` (at temperature 0) steps are timed three times, each begun ten minutes or
more after the one before, and ten minutes pass before the check.  Everything that they say is
written before the check, which judges all of them: the second and third timings have a number in
their files' names (``blind-2-timed.json``), and ``blind-cells.csv`` has every speedup of every
calibration.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pandas as pd

from specsim.api.engine_blind import EngineBlindCheck, validate_engine
from specsim.api.engine_question import asked_of
from specsim.api.engine_timing import EngineTiming, calibrate_engine
from specsim.api.result import Result
from specsim.counts.file import read_acceptance
from specsim.files import file_digest
from specsim.intervals import Interval, apart
from specsim.profiles import read_profile
from specsim.report.progress import progress_bar
from specsim.report.tables import render

GAMMAS = (1, 2, 3, 4, 5)
# As on one GPU: with a worker of its own, which the CPU build has, the engine's process looks out
# for it in a busy loop, on the core that clients and the API need.
_BACKEND = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
ENGINE_ARGS: dict[str, tuple[str, ...]] = {
    "serve": ("--distributed-executor-backend", _BACKEND),
    "generate": (),
}
# Seconds from the beginning of one calibration to that of the next, and from the end of the last to
# the check: machines have states that last for minutes.
APART_S = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("profile", type=Path)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--api", choices=["serve", "generate"], default="serve")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--repeats", type=int, help="of a timing; as many as passes")
    parser.add_argument("--calibrations", type=int, default=1)
    parser.add_argument("--starts", type=int, default=2, help="of the servers of the check")
    parser.add_argument("--part", help="timing-NUMBER, fix, check or report: one of them, here")
    asked = parser.parse_args()
    if asked.calibrations > 1 and asked.temperature:
        parser.error("--calibrations is of temperature 0, where every pass asks the same requests")
    numbers = range(1, asked.calibrations + 1)
    if asked.part:
        name, _, number = asked.part.partition("-")
        parts = {"fix": fix, "check": check, "report": report}
        return timing(asked, int(number)) if name == "timing" else parts[name](asked)
    asked.out.mkdir(parents=True, exist_ok=True)
    parts = [f"timing-{number}" for number in numbers]
    parts += ["fix", "check", "report"] if asked.calibrations > 1 else ["check"]
    begun = 0.0
    for part in parts:
        if asked.calibrations > 1 and wait(asked, part, begun):
            begun = time.time()
        command = [sys.executable, __file__, *sys.argv[1:], "--part", part]
        done = subprocess.run(command, check=False)
        if done.returncode:
            return done.returncode
    return 0


def file(asked: argparse.Namespace, ending: str, number: int = 1) -> Path:
    """In the folder, by what is asked and the number of the calibration."""
    temperature = f"-t{asked.temperature:g}" if asked.temperature else ""
    api = "" if asked.api == "serve" else f"-{asked.api}"
    calibration = f"-{number}" if number > 1 else ""
    found: Path = asked.out / f"blind{temperature}{api}{calibration}{ending}"
    return found


def wait(asked: argparse.Namespace, part: str, begun: float) -> bool:
    """Before something is measured: until the newest calibration is long enough ago; whether there
    is something to measure.

    begun : when the newest one was, if it was here
    """
    files = [file(asked, "-timed.json", at) for at in range(1, asked.calibrations + 1)]
    name, _, number = part.partition("-")
    done = files[int(number) - 1] if name == "timing" else file(asked, ".csv")
    if name not in ("timing", "check") or done.is_file():
        return False
    written = max((each.stat().st_mtime for each in files if each.is_file()), default=0.0)
    since = begun if name == "timing" and begun else written
    left = max(since + APART_S - time.time(), 0.0)
    print(f"{part}: waits {left:.0f} s", flush=True)
    time.sleep(left)
    return True


def timing(asked: argparse.Namespace, number: int) -> int:
    """Step times, unless they are there."""
    timed = file(asked, "-timed.json", number)
    if timed.is_file():
        return 0
    steps = EngineTiming(
        api=asked.api,
        temperature=asked.temperature,
        gamma=(1, 3, 5),
        repeats=asked.repeats or asked.passes,
        engine_args=ENGINE_ARGS[asked.api],
        seed=number - 1,
    )
    with progress_bar() as progress:
        found = calibrate_engine(asked.profile, timed, steps, progress=progress)
    say(found)
    return 0


def checked(asked: argparse.Namespace) -> EngineBlindCheck:
    return EngineBlindCheck(
        api=asked.api,
        temperature=asked.temperature,
        gamma=GAMMAS,
        passes=asked.passes,
        starts=asked.starts,
        timed=file(asked, "-timed.json"),
        engine_args=ENGINE_ARGS[asked.api],
    )


def fix(asked: argparse.Namespace) -> int:
    """What the other calibrations predict of the check that is to come."""
    from calibrate.validate.engine_blind import checked_sets, predicted

    blind = checked(asked)
    every, _ = asked_of(read_profile(asked.profile), asked.profile, blind, False)
    of_check = every.first(blind.requests)
    for number in range(2, asked.calibrations + 1):
        timed_file = file(asked, "-timed.json", number)
        timed = read_acceptance(timed_file)
        steps, streamed = timed.step_times(), tuple(timed.streamed_steps())
        batches = sorted({round(each.batch) for each in steps})
        sets = checked_sets(of_check, batches, len(of_check.requests) // 2)
        speedups = [
            {"gamma": each.gamma, "batch": each.batch, "speedup": astuple(each.speedup)}
            for each in predicted(steps, of_check, sets, GAMMAS, streamed, asked.starts)
        ]
        path, digest = file(asked, "-predicted.json", number), file_digest(timed_file)
        if not path.is_file():
            content = {"timed_sha256": digest, "starts": asked.starts, "speedups": speedups}
            path.write_text(json.dumps(content, indent=2) + "\n")
            continue
        said = json.loads(path.read_text())
        if (said["timed_sha256"], said.get("starts")) != (digest, asked.starts):
            print(f"{path} is of other step times or starts; remove it", file=sys.stderr)
            return 1
    return 0


def check(asked: argparse.Namespace) -> int:
    """The blind check; 1 where a measured interval lies outside of the predicted one.  One that
    several calibrations wait for is not made again.
    """
    if asked.calibrations > 1 and file(asked, ".csv").is_file():
        return 0
    with progress_bar() as progress:
        found = validate_engine(asked.profile, checked(asked), progress=progress)
    shutil.copy(found.prediction, file(asked, "-predicted.json"))
    file(asked, ".csv").write_text(render(found.rows(), "csv") + "\n")
    say(found)
    # Of several calibrations the report says what holds.
    return int(not found.passed and asked.calibrations == 1)


def report(asked: argparse.Namespace) -> int:
    """Every calibration beside the check."""
    measured = pd.read_csv(file(asked, ".csv")).set_index(["gamma", "batch"])
    rows = []
    for number in range(1, asked.calibrations + 1):
        fixed = json.loads(file(asked, "-predicted.json", number).read_text())
        for each in fixed["speedups"]:
            if (each["gamma"], each["batch"]) not in measured.index:
                continue  # a batch that the first calibration, and so the check, does not have
            low, best, high = each["speedup"]
            seen = measured.loc[(each["gamma"], each["batch"])]
            within = Interval(*(seen[f"measured_{end}"] for end in ("low", "speedup", "high")))
            rows.append(
                {
                    "calibration": number,
                    "batch": each["batch"],
                    "gamma": each["gamma"],
                    "predicted_speedup": best,
                    "predicted_low": low,
                    "predicted_high": high,
                    "measured_speedup": within.best,
                    "measured_low": within.low,
                    "measured_high": within.high,
                    "relative_error": best / within.best - 1,
                    "inside": apart(Interval(low, best, high), within) <= 1,
                }
            )
    cells = pd.DataFrame(rows)
    cells.to_csv(file(asked, "-cells.csv"), index=False)
    for line in sentences(cells):
        print(line, flush=True)
    return 0


def sentences(cells: pd.DataFrame) -> list[str]:
    """What all calibrations are off by, and what the length that each of them names at a batch
    loses against the one that was measured best; plain decoding is one of them.
    """
    off = cells["relative_error"]
    chosen = recommended(cells)
    losses, own = chosen["loss"], chosen["relative_error"]
    return [
        f"{len(cells)} speedups of {cells['calibration'].nunique()} calibrations: median "
        f"{off.abs().median():.1%}, worst {off.abs().max():.1%}, mean signed {off.mean():+.2%}",
        f"95 % intervals hold {cells['inside'].mean():.1%}",
        f"the recommended length is within 2 % of the best in {(losses <= 0.02).mean():.0%} of "
        f"{len(losses)} cases and loses {losses.max():.1%} at worst; its own prediction is "
        f"{own.mean():+.1%} off in the mean, with a standard error of {own.sem():.1%}",
    ]


def recommended(cells: pd.DataFrame) -> pd.DataFrame:
    """By calibration and batch, the row of the length with the best prediction, and what it loses;
    plain decoding is one of them, whose speedup is known.
    """
    best = cells.loc[cells.groupby(["calibration", "batch"])["predicted_speedup"].idxmax()]
    plain = best["predicted_speedup"] <= 1
    best.loc[plain, ["gamma", "predicted_speedup", "measured_speedup"]] = 0, 1.0, 1.0
    best.loc[plain, "relative_error"] = np.nan
    most = cells.groupby("batch")["measured_speedup"].max().clip(lower=1.0)
    return best.assign(loss=1 - best["measured_speedup"] / best["batch"].map(most))


def say(found: Result) -> None:
    """The table and what it says as a whole."""
    print(render(found.table(), "csv"))
    for line in (*found.sentences(), *found.warnings):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
