"""How long ``specsim optimize`` takes by load, over many settings, against ``import numpy``.

    python benchmarks/load_plan.py

9 batches x 3 contexts x 17 draft lengths x 5 drafters, as a process of its own: at most 2 seconds
are wanted.  Both in turn, wall-clock from a warm disk, medians; acceptance is a rate, and then
counted rates with their intervals.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

DRAFTERS = ("draft_model:llama-3.2-1b", "eagle3", "mtp", "parallel:kind=p_eagle", "suffix")
LOAD = (
    *(sys.executable, "-m", "specsim.cli", "optimize"),
    *("--target", "llama-3.1-8b", "--accelerator", "H100", "--gamma-max", "16"),
    *(word for name in DRAFTERS for word in ("--drafter", name)),
    *("--batch", "1,2,4,8,16,32,64,128,192", "--context", "512,1024,2048"),
    *("--format", "csv"),
)
COMMANDS = {
    "import numpy": (sys.executable, "-c", "import numpy"),
    "by a rate": (*LOAD, "--alpha", "0.8"),
    "where little pays": (*LOAD, "--alpha", "0.25"),
    "by counted rates": (*LOAD, "--marginal", "0.76,0.62,0.51,0.42", "--rounds", "2000"),
}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(6):
        for name, command in COMMANDS.items():
            begin = time.perf_counter()
            found = subprocess.run(command, check=True, capture_output=True, text=True)
            if turn:
                seconds[name].append(time.perf_counter() - begin)
            if len(command) > len(LOAD):
                rows = len(found.stdout.splitlines()) - 1
                assert rows == 9 * 3 * len(DRAFTERS), f"{rows} rows"
    base, *others = ((name, statistics.median(times)) for name, times in seconds.items())
    print(f"{base[0]} {base[1]:.3f} s")
    for name, took in others:
        print(f"{name} {took:.3f} s, ratio {took / base[1]:.2f}")


if __name__ == "__main__":
    main()
