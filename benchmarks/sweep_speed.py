"""How much sooner two processes end a sweep than one, and that they write the same bytes.

    python benchmarks/sweep_speed.py [--settings 20000] [--requests 500] [--plan]

A sweep of ``specsim simulate speculative``, or of ``specsim plan --analytic``, as a user starts it:
seconds are of the whole command, with the start of its processes.  At least 1.8 times is wanted,
which takes two cores with nothing else to do.  Exits 1 below it, or where a byte differs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WANTED = 1.8

SIMULATE = """
command = "simulate speculative"
[inputs]
alpha = {{ first = 0.5, last = 0.95, count = 10 }}
gamma = {{ first = 1, last = 10 }}
c = 0.05
tokens = 200
requests = {requests}
seed = {{ first = 1, last = {rest} }}
"""
PLAN = """
command = "plan"
[inputs]
alpha = {{ first = 0.5, last = 0.95, count = 10 }}
rate = {{ first = 10, last = 100, step = 10 }}
prompt = 512
output = 128
requests = 200
step-cost = "step_ms=5,token_us=30,draft_run_ms=0.5"
engine = "vllm:num_gpu_blocks=6000"
gamma = "1:3"
slo = "tpot_p99=0.02,ttft_p99=1"
analytic = true
seed = {{ first = 1, last = {rest} }}
"""


def seconds_of(file: Path, out: Path, workers: int) -> float:
    """Of the command, which must succeed."""
    words = ["sweep", str(file), "--out", str(out), "--workers", str(workers)]
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "specsim", *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=20_000, help="a multiple of 100, >= 200")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--plan", action="store_true")
    asked = parser.parse_args()
    text = (PLAN if asked.plan else SIMULATE).format(
        requests=asked.requests, rest=asked.settings // 100
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "settings.toml"
        file.write_text(text)
        seconds = {each: seconds_of(file, folder / f"{each}", each) for each in (1, 2)}
        one, two = (
            {path.name: path.read_bytes() for path in (folder / f"{each}").iterdir()}
            for each in (1, 2)
        )
    ratio = seconds[1] / seconds[2]
    print(
        f"{asked.settings // 100 * 100:,} settings: {seconds[1]:.1f} s on one process, "
        f"{seconds[2]:.1f} s on two, {ratio:.2f} times as fast ({WANTED} is wanted); "
        f"{'the same bytes' if one == two else 'OTHER BYTES'}"
    )
    return 0 if ratio >= WANTED and one == two else 1


if __name__ == "__main__":
    sys.exit(main())
