"""Speedups of vLLM predicted before and measured afterwards, each part in a process of its own.

    make engine
    specsim calibrate --draft embedded/small --requests 32 --max-new-tokens 133 --gamma-max 5 \\
        --out small.json
    python benchmarks/vllm_blind.py studies/measured/vllm small.json \\
        [--temperature 0] [--api serve] [--passes 5]

First the step times at K = 0, 1, 3 and 5 and batch 1, 4 and 16 (``specsim.calibrate_engine``),
then the check at K = 1 to 5, whose prediction is written before its servers start
(``specsim.validate_engine``).  Writes ``blind-timed.json``, the times, ``blind-predicted.json``
and ``blind.csv``, predicted beside measured; of another temperature or of ``LLM.generate`` with
that in their names (``blind-t1-generate.csv``).  A process that was killed goes on with the passes
that are done: start it again.  With 5 passes it takes half an hour on two idle cores, five minutes
of them for ten servers to start.  Exits 1 where a measured interval lies outside of the predicted
one.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from specsim.api.engine_blind import EngineBlindCheck, validate_engine
from specsim.api.engine_timing import EngineTiming, calibrate_engine
from specsim.api.result import Result
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("profile", type=Path)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--api", choices=["serve", "generate"], default="serve")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--part", choices=["timing", "check"], help="one of them, here")
    asked = parser.parse_args()
    if asked.part:
        return {"timing": timing, "check": check}[asked.part](asked)
    asked.out.mkdir(parents=True, exist_ok=True)
    for part in ("timing", "check"):
        command = [sys.executable, __file__, *sys.argv[1:], "--part", part]
        done = subprocess.run(command, check=False)
        if done.returncode:
            return done.returncode
    return 0


def file(asked: argparse.Namespace, ending: str) -> Path:
    """In the folder, by what is asked."""
    temperature = f"-t{asked.temperature:g}" if asked.temperature else ""
    api = "" if asked.api == "serve" else f"-{asked.api}"
    found: Path = asked.out / f"blind{temperature}{api}{ending}"
    return found


def timing(asked: argparse.Namespace) -> int:
    """Step times, unless they are there."""
    timed = file(asked, "-timed.json")
    if timed.is_file():
        return 0
    steps = EngineTiming(
        api=asked.api,
        temperature=asked.temperature,
        gamma=(1, 3, 5),
        repeats=asked.passes,
        engine_args=ENGINE_ARGS[asked.api],
    )
    with progress_bar() as progress:
        found = calibrate_engine(asked.profile, timed, steps, progress=progress)
    say(found)
    return 0


def check(asked: argparse.Namespace) -> int:
    """The blind check; 1 where a measured interval lies outside of the predicted one."""
    blind = EngineBlindCheck(
        api=asked.api,
        temperature=asked.temperature,
        gamma=GAMMAS,
        passes=asked.passes,
        timed=file(asked, "-timed.json"),
        engine_args=ENGINE_ARGS[asked.api],
    )
    with progress_bar() as progress:
        found = validate_engine(asked.profile, blind, progress=progress)
    file(asked, ".csv").write_text(render(found.rows(), "csv") + "\n")
    shutil.copy(found.prediction, file(asked, "-predicted.json"))
    say(found)
    return int(not found.passed)


def say(found: Result) -> None:
    """The table and what it says as a whole."""
    print(render(found.table(), "csv"))
    for line in (*found.sentences(), *found.warnings):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
