"""The fuzz tests for as long as one likes, batch after batch with other random numbers.

    python -m tests.fuzz.long [--minutes 60] [--examples 200] [--folder build/fuzz]

A run that was stopped goes on with the next batch.  What a batch found is in FOLDER/found-N.txt,
with the words of the command and how to have the very example again; hypothesis keeps the smallest
in FOLDER/examples and tries it first from then on.  Exits 1 where anything was found.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

# Bytes of addresses that a batch may take; libraries alone map some gigabytes.
_MOST_BYTES = 12 * 2**30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    counter = asked.folder / "batches.txt"
    batch = int(counter.read_text()) if counter.is_file() else 0
    end, found = time.monotonic() + 60 * asked.minutes, 0
    while time.monotonic() < end:
        failed, text = run(batch, asked.examples, asked.folder)
        if failed:
            (asked.folder / f"found-{batch}.txt").write_text(text, encoding="utf-8")
            found += 1
        batch += 1
        counter.write_text(str(batch))
        print(f"batch {batch}: {'something found' if failed else 'nothing found'}", flush=True)
    print(f"{batch} batches in all, {found} of this run found something ({asked.folder})")
    return 1 if found else 0


def run(batch: int, examples: int, folder: Path) -> tuple[bool, str]:
    """Whether a batch failed, and what it printed."""
    words = [sys.executable, "-m", "pytest", "tests/fuzz", "-p", "no:cacheprovider"]
    words += [f"--hypothesis-seed={batch}", "--tb=short"]
    known = {**os.environ, "FUZZ_EXAMPLES": str(examples), "FUZZ_FOLDER": str(folder)}
    done = subprocess.run(
        words,
        env=known,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES)),
    )
    return done.returncode != 0, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
