"""How long ``specsim explain`` takes as a process, of a deployment of shapes.

    python benchmarks/explain_startup.py

The commands in turn, from a warm disk; prints medians of the wall-clock, and of the processor's
time, which is what an idle machine takes.  Under half a second is wanted.
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
    "dense, a draft model": ["llama-3.1-8b", "draft_model:llama-3.2-1b", "H100", *_HERE],
    "experts, eagle3": ["qwen3-30b-a3b", "eagle3", "H100", *_HERE],
    "four cards, graphs": ["llama-3.3-70b", "eagle3", "H200", *_HERE, *_CARDS],
    "671 billion, mtp": ["deepseek-v3", "mtp", "B200", *_HERE, "--tensor-parallel", "8"],
}


def seconds(words: list[str]) -> tuple[float, float]:
    """Wall-clock and processor's time of one process."""
    target, drafter, accelerator, *rest = words
    named = ["--target", target, "--drafter", drafter, "--accelerator", accelerator]
    begin, before = time.perf_counter(), os.times()
    command = [sys.executable, "-m", "specsim.cli", "explain", *named, *rest]
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
        wall, used = (statistics.median(column) for column in zip(*times, strict=True))
        verdict = "yes" if used < WANTED_S else "no"
        print(
            f"{name:22s} {wall:.3f} s, of the processor {used:.3f} s; under {WANTED_S} s: {verdict}"
        )


if __name__ == "__main__":
    main()
