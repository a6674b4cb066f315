"""How long ``specsim explain`` takes as a process, of a deployment of shapes.

    python benchmarks/explain_startup.py

In turn, from a warm disk, beside ``python -c "import numpy"``; prints the median of the wall-clock,
and the median and the least of the processor's time.  The least is about what an idle machine
takes, for which under half a second is wanted; others on the same core lengthen all three.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

WANTED_S = 0.5
_HERE = [*("--gamma", "5", "--batch", "32", "--context", "2048", "--alpha", "0.7")]
_CARDS = [*("--tensor-parallel", "4", "--graph-tokens", "128", "--eager-layer-us", "300")]
COMMANDS = {
    "import numpy": [],
    "dense, a draft model": ["llama-3.1-8b", "draft_model:llama-3.2-1b", "H100", *_HERE],
    "experts, eagle3": ["qwen3-30b-a3b", "eagle3", "H100", *_HERE],
    "four cards, graphs": ["llama-3.3-70b", "eagle3", "H200", *_HERE, *_CARDS],
    "671 billion, mtp": ["deepseek-v3", "mtp", "B200", *_HERE, "--tensor-parallel", "8"],
}


def seconds(words: list[str]) -> tuple[float, float]:
    """Wall-clock and processor's time of one process."""
    command = [sys.executable, "-c", "import numpy"]
    if words:
        target, drafter, accelerator, *rest = words
        named = ["--target", target, "--drafter", drafter, "--accelerator", accelerator]
        command = [sys.executable, "-m", "specsim.cli", "explain", *named, *rest]
    begin, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.perf_counter() - begin, os.times()
    used = after.children_user + after.children_system
    return wall, used - before.children_user - before.children_system


def main() -> None:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for turn in range(12):
        for name, words in COMMANDS.items():
            if turn < 2:
                seconds(words)
            else:
                taken[name].append(seconds(words))
    for name, times in taken.items():
        walls, used = (sorted(column) for column in zip(*times, strict=True))
        verdict = "yes" if used[0] < WANTED_S else "no"
        wall, median = statistics.median(walls), statistics.median(used)
        print(
            f"{name:22s} {wall:.3f} s, of the processor {median:.3f} s, at least {used[0]:.3f} s; "
            f"under {WANTED_S} s: {verdict}"
        )


if __name__ == "__main__":
    main()
