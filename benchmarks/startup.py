"""How long ``specsim optimize --alpha 0.8 --c 0.05`` takes against ``python -c "import numpy"``.

    python benchmarks/startup.py

Both in turn, wall-clock from a warm disk; prints the ratio of the medians (at most 3 is wanted).
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "import numpy": [sys.executable, "-c", "import numpy"],
    "specsim optimize": [
        *(sys.executable, "-m", "specsim.cli"),
        *("optimize", "--alpha", "0.8", "--c", "0.05"),
    ],
}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(12):
        for name, command in COMMANDS.items():
            begin = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            if turn >= 2:
                seconds[name].append(time.perf_counter() - begin)
    base, ours = (statistics.median(times) for times in seconds.values())
    print(f"import numpy {base:.3f} s, specsim optimize {ours:.3f} s, ratio {ours / base:.2f}")


if __name__ == "__main__":
    main()
