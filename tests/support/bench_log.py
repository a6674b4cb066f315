"""What ``vllm bench serve`` would have written of a simulated run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from specsim.serving.service import Served


def bench_log(served: Served, folder: Path) -> Path:
    """The file in this folder, as ``--save-detailed`` has it."""
    times = served.times
    order = np.argsort(times.itl_request, kind="stable")
    ends = np.bincount(times.itl_request, minlength=times.arrival_s.size).cumsum()[:-1]
    document = {
        "input_lens": served.requests.prompt_tokens.tolist(),
        "output_lens": served.requests.output_tokens.tolist(),
        "start_times": times.arrival_s.tolist(),
        "ttfts": times.ttft_s.tolist(),
        "itls": [each.tolist() for each in np.split(times.itl_s[order], ends)],
    }
    path = folder / "bench.json"
    path.write_text(json.dumps(document))
    return path
