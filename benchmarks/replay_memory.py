"""Memory and time of ``specsim replay`` on a trace file of many rows, for gamma 1..16.

    python benchmarks/replay_memory.py [ROWS] [FOLDER]

Writes a trace of 40,000,000 rows by default (a gigabyte, removed afterwards), replays it in a
process of its own and prints the most memory that this one held.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LENGTH, PIECE = 500, 1_000_000


def write(path: Path, rows: int) -> None:
    """Requests of 500 tokens, a million rows at a time."""
    random = np.random.default_rng(0)
    writer = None
    for first in range(0, rows, PIECE):
        size = min(PIECE, rows - first)
        number = first + np.arange(size)
        table = pa.table(
            {
                "request": number // LENGTH,
                "position": number % LENGTH,
                "logp_target": np.log(random.uniform(0.1, 1, size)).astype(np.float32),
                "logp_draft": np.log(random.uniform(0.1, 1, size)).astype(np.float32),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000_000
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
        path = Path(folder) / "trace.parquet"
        write(path, rows)
        print(f"{rows:,} rows, {path.stat().st_size / 2**20:,.0f} MiB")
        begin = time.perf_counter()
        words = [sys.executable, "-m", "specsim", "replay", str(path), "--gamma", "1:16"]
        subprocess.run([*words, "--c", "0.05"], check=True)
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        print(f"{time.perf_counter() - begin:.0f} s, at most {most:.2f} GiB")


if __name__ == "__main__":
    main()
