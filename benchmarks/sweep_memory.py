"""The memory of a sweep of a million settings, in the process that hands them out and collects.

    python benchmarks/sweep_memory.py [--settings 1000000] [--workers 2]

A sweep of ``specsim allocate`` in processes of their own.  Printed is the peak of the resident
memory of the collecting process after every tenth of the settings: it must not grow with them, and
end below 1 GiB.  Exits 1 where it does not.  A million takes some ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import specsim

WANTED_GIB = 1.0


def peak_gib() -> float:
    """Of this process since it began; Linux counts KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--settings", type=int, default=1_000_000, help="a multiple of 1,000, >= 2,000"
    )
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    settings = {
        "command": "allocate",
        "inputs": {
            "drafter": [f"draft:0.{alpha}:0.04" for alpha in range(50, 60)],
            "verify_slope": {"first": 0.001, "last": 0.1, "count": 100},
            "overhead": {"first": 0.001, "last": 0.5, "count": asked.settings // 1000},
        },
    }
    begin = time.perf_counter()
    tenth = 0

    def report(activity: str, done: int, total: int) -> None:
        nonlocal tenth
        if total and 10 * done >= tenth * total:
            seconds = time.perf_counter() - begin
            print(f"{done:>9,} settings, {seconds:7.1f} s, {peak_gib():.3f} GiB", flush=True)
            tenth = 10 * done // total + 1

    with tempfile.TemporaryDirectory() as folder:
        found = specsim.sweep(
            settings, Path(folder) / "out", workers=asked.workers, progress=report
        )
        size = sum(path.stat().st_size for path in found.folder.iterdir())
    seconds = time.perf_counter() - begin
    print(
        f"{found.settings:,} settings in {found.parts:,} parts of {size / 2**20:.1f} MiB, "
        f"{seconds:.1f} s, {found.failed} failed; peak {peak_gib():.3f} GiB "
        f"(below {WANTED_GIB} GiB is wanted)"
    )
    return 0 if peak_gib() < WANTED_GIB and not found.failed else 1


if __name__ == "__main__":
    sys.exit(main())
