"""What a run of the target takes where its width is the usual one, and where it is rare.

    python benchmarks/rare_widths.py MINUTES [TEMPERATURE]

Decodes the embedded target with prompt lookup, one request at a time, plainly and with K = 1 to 8
in random order.  A block with room for K drafts that finds them all is a run over K + 1 tokens,
which is the usual width there; a run over fewer, with a draft at least, is rare.  Both are over the
plain runs of the same request, with 95 % intervals over requests.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict

import numpy as np
import pandas as pd
import torch

from calibrate.decode.engine import Decoded, DecodeRequest
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.measure.timing import runs
from calibrate.models.collector import models_not_walked
from calibrate.models.load import load_pair
from calibrate.models.prompts import held_out_prompts
from calibrate.models.sampling import Sampling
from specsim.intervals import Bootstrap

TOKENS, GAMMAS, PROMPTS = 64, range(1, 9), 16
# Whether a width is the usual one.
Kind = tuple[int, str]


def sums(found: list[tuple[int, Decoded]], prompt: list[int]) -> dict[Kind, tuple[float, int]]:
    """Of one request: in how many plain runs' time its runs of each kind were, and how many."""
    plainly = [seconds for gamma, each in found if not gamma for _, seconds in each.target.each]
    each_kind: dict[Kind, list[float]] = defaultdict(list)
    for gamma, decoded in found:
        for (_, _, width, _), seconds in runs(decoded, gamma, len(prompt)) if gamma else ():
            kind = "usual" if width == gamma + 1 else "rare"
            each_kind[width, kind].append(seconds / np.mean(plainly))
    return {kind: (sum(took), len(took)) for kind, took in each_kind.items()}


def main(minutes: float, temperature: float) -> None:
    device = torch.device("cpu")
    torch.set_num_threads(1)
    pair = load_pair("embedded/target", "prompt-lookup", device)
    target, drafter = pair.with_drafter()
    prompts = held_out_prompts(pair.target.tokenizer, TOKENS, PROMPTS)
    random, draws = np.random.default_rng(0), torch.Generator(device).manual_seed(0)
    requests = []
    end = time.monotonic() + 60 * minutes
    with models_not_walked():
        while time.monotonic() < end:
            prompt = prompts[random.integers(len(prompts))]
            found = []
            for gamma in random.permutation([0, 0, *GAMMAS]).tolist():
                request = DecodeRequest(prompt, TOKENS, Sampling(temperature), draws)
                decoding = (
                    speculative(target, drafter, request, gamma)
                    if gamma
                    else plain(target, request)
                )
                found.append((gamma, decoding.finish()))
            requests.append(sums(found, prompt))
    bootstrap = Bootstrap(len(requests))
    rows = []
    for width in range(2, GAMMAS.stop + 1):
        row = {"width": str(width)}
        for kind in ("usual", "rare"):
            both = np.array([each.get((width, kind), (0.0, 0)) for each in requests])
            count = int(both[:, 1].sum())
            if count:
                ratio = bootstrap.ratio(both[:, 0], both[:, 1])
                row[kind] = f"{ratio.best:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
                row[f"{kind} runs"] = str(count)
        rows.append(row)
    print(f"{len(requests)} requests at temperature {temperature:g}")
    print(pd.DataFrame(rows).fillna("").to_string(index=False))


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
