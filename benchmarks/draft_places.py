"""What draft runs take by their place in a block, and whether it is A (1 + fading / place).

    python benchmarks/draft_places.py DRAFT MINUTES         # small 2

Decodes the embedded family greedily with K = 2, 4 and 8, one request at a time in random order.
Places from 2 on are over A of the fit to all of them (``specsim.hardware.later_drafts``); the first
run of a block reads one token or two, and is not of the law.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pandas as pd
import torch

from calibrate.decode.engine import DecodeRequest
from calibrate.decode.speculative import speculative
from calibrate.models.collector import models_not_walked
from calibrate.models.load import load_pair
from calibrate.models.prompts import held_out_prompts
from calibrate.models.sampling import Sampling

TOKENS, GAMMAS, PROMPTS = 64, (2, 4, 8), 16


def main(draft: str, minutes: float) -> None:
    """Print a row for every place, with a column for each draft length and one for the law."""
    device = torch.device("cpu")
    torch.set_num_threads(1)
    pair = load_pair("embedded/target", f"embedded/{draft}", device)
    target, drafter = pair.with_drafter()
    prompts = held_out_prompts(pair.target.tokenizer, TOKENS, PROMPTS)
    random = np.random.default_rng(0)
    found = []
    end = time.monotonic() + 60 * minutes
    with models_not_walked():
        while time.monotonic() < end:
            prompt = prompts[int(random.integers(PROMPTS))]
            for gamma in random.permutation(GAMMAS).tolist():
                request = DecodeRequest(prompt, TOKENS, Sampling(0.0), torch.Generator(device))
                decoded = speculative(target, drafter, request, gamma).finish()
                runs = iter(decoded.draft.each)
                for drafted in decoded.drafted:
                    block = [next(runs) for _ in range(drafted)]
                    if drafted == gamma:
                        found += [(gamma, at, s) for at, (_, s) in enumerate(block, start=1)]
    frame = pd.DataFrame(found, columns=["K", "place", "seconds"])
    later = frame[frame["place"] > 1]
    columns = np.column_stack([np.ones(len(later)), 1 / later["place"]])
    (level, slope), *_ = np.linalg.lstsq(columns, later["seconds"], rcond=None)
    table = frame.groupby(["place", "K"])["seconds"].mean().unstack() / level
    table["law"] = (1 + slope / level / table.index).where(table.index > 1)
    print(f"{draft}: A = {1e3 * level:.4g} ms, fading {slope / level:.3g}")
    print(table.round(3).to_string(na_rep=""))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
