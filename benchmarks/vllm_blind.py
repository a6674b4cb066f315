"""Speedups of vLLM predicted before and measured afterwards, each part in a process of its own.

    make engine
    specsim calibrate --draft embedded/small --temperature 0 --requests 32 --max-new-tokens 133 \\
        --gamma-max 5 --out small.json
    python benchmarks/vllm_blind.py studies/measured/vllm small.json

First the step times at K = 0, 1, 3 and 5 and batch 1, 4 and 16 (``specsim.calibrate_engine``),
then the check at K = 1 to 5, whose prediction is written before its servers start
(``specsim.validate_engine``).  Writes ``blind-timed.json``, the step times, and ``blind.csv``,
predicted beside measured.  A process that was killed goes on with the passes that are done: start
it again.  With 5 passes of both, which a third word changes, it should take less than 20 minutes on
two idle cores, five of them for ten servers to start.
"""

from __future__ import annotations

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
PASSES = 5


def main(words: list[str]) -> int:
    """``OUT PROFILE [PASSES [PART]]``: all parts, or one of them."""
    out, profile = Path(words[0]), Path(words[1])
    passes = int(words[2]) if len(words) > 2 else PASSES
    parts = {"timing": timing, "check": check}
    if len(words) > 3:
        return parts[words[3]](out, profile, passes)
    out.mkdir(parents=True, exist_ok=True)
    for part in parts:
        command = [sys.executable, __file__, *words[:2], str(passes), part]
        done = subprocess.run(command, check=False)
        if done.returncode:
            return done.returncode
    return 0


def timing(out: Path, profile: Path, passes: int) -> int:
    """Step times, unless they are there."""
    timed = out / "blind-timed.json"
    if timed.is_file():
        return 0
    asked = EngineTiming(gamma=(1, 3, 5), repeats=passes)
    with progress_bar() as progress:
        found = calibrate_engine(profile, timed, asked, progress=progress)
    say(found)
    return 0


def check(out: Path, profile: Path, passes: int) -> int:
    """The blind check; 1 where a measured interval lies outside of the predicted one."""
    asked = EngineBlindCheck(gamma=GAMMAS, passes=passes, timed=out / "blind-timed.json")
    with progress_bar() as progress:
        found = validate_engine(profile, asked, progress=progress)
    (out / "blind.csv").write_text(render(found.rows(), "csv") + "\n")
    shutil.copy(found.prediction, out / "blind-predicted.json")
    say(found)
    return int(not found.passed)


def say(found: Result) -> None:
    """The table and what it says as a whole."""
    print(render(found.table(), "csv"))
    for line in (*found.sentences(), *found.warnings):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
