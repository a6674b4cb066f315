"""What a run of the target takes at the start of a request, and without a draft between wider runs.

    python benchmarks/runs_in_requests.py DRAFT MINUTES     # small 4, or prompt-lookup 4

Decodes the embedded family by turns, one request at a time in random order: the same 64 tokens in
one decoding and in two of 32, plainly and with K = 1 and 4.  Everything is over the mean run of
plain decoding of 64 tokens, with 95 % intervals over the rounds:

    first, second      these runs of a plain decoding
    undrafted          runs of the target in blocks that drafted nothing
    speedup_of_halves  the speedup that decodings of 32 tokens show, over that of 64, less one
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch

from calibrate.decode.engine import Decoded, DecodeRequest
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.models.load import load_pair
from calibrate.models.prompts import held_out_prompts
from calibrate.models.sampling import Sampling
from specsim.intervals import Bootstrap, Interval, around

TOKENS, GAMMAS, TEMPERATURES, PROMPTS = 64, (1, 4), (0.0, 1.0), 16
# Temperature, draft length, tokens of a decoding.
Kind = tuple[float, int, int]
# Seconds and number of: decodings' calls; first, second and all plain runs; undrafted runs.
Sums = dict[str, tuple[float, int]]


def sums_of(decoded: Decoded) -> Sums:
    runs = [seconds for _, seconds in decoded.target.each]
    without = [s for s, drafted in zip(runs, decoded.drafted, strict=True) if not drafted]
    return {
        "tokens": (decoded.seconds, len(decoded.tokens)),
        "first": (runs[0], 1),
        "second": (runs[1], 1),
        "runs": (sum(runs), len(runs)),
        "undrafted": (sum(without), len(without)),
    }


def rounds(draft: str, minutes: float) -> Iterator[dict[Kind, list[Sums]]]:
    """What every kind of decoding took, round by round."""
    device = torch.device("cpu")
    torch.set_num_threads(1)
    model = draft if draft == "prompt-lookup" else f"embedded/{draft}"
    pair = load_pair("embedded/target", model, device)
    target, drafter = pair.with_drafter()
    prompts = held_out_prompts(pair.target.tokenizer, TOKENS, PROMPTS)
    random = np.random.default_rng(0)
    seeds = torch.Generator(device)
    seeds.manual_seed(0)

    def decode(prompt: list[int], kind: Kind, written: list[int]) -> Decoded:
        temperature, gamma, tokens = kind
        request = DecodeRequest(prompt, tokens, Sampling(temperature), seeds, written=written)
        if gamma:
            return speculative(target, drafter, request, gamma).finish()
        return plain(target, request).finish()

    kinds = [(t, k, n) for t in TEMPERATURES for k in (0, *GAMMAS) for n in (TOKENS, TOKENS // 2)]
    texts: dict[tuple[int, float], list[int]] = {}
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        found: dict[Kind, list[Sums]] = defaultdict(list)
        number = int(random.integers(PROMPTS))
        for at in random.permutation(len(kinds)):
            kind = kinds[at]
            key = number, kind[0]
            if key not in texts:
                texts[key] = decode(prompts[number], (kind[0], 0, TOKENS), []).tokens
            for begun in range(0, TOKENS, kind[2]):
                decoded = decode(prompts[number], kind, texts[key][:begun])
                found[kind].append(sums_of(decoded))
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("draft")
    parser.add_argument("minutes", type=float)
    asked = parser.parse_args()
    found = list(rounds(asked.draft, asked.minutes))
    bootstrap = Bootstrap(len(found))

    def mean(kind: Kind, name: str) -> tuple[float, np.ndarray]:
        """Seconds of one, and draws of them."""
        per_round = np.array(
            [np.sum([each[name] for each in one[kind]], axis=0) for one in found], dtype=float
        )
        seconds, count = per_round.T
        return seconds.sum() / count.sum(), bootstrap.ratios(seconds, count)

    def over(above: tuple[Kind, str], below: tuple[Kind, str]) -> tuple[float, np.ndarray]:
        (one, ones), (other, others) = mean(*above), mean(*below)
        return one / other, ones / others

    rows = []
    for temperature in TEMPERATURES:
        usual: Kind = (temperature, 0, TOKENS)
        for gamma in (0, *GAMMAS):
            whole: Kind = (temperature, gamma, TOKENS)
            row: dict[str, object] = {"temperature": temperature, "gamma": gamma}
            if gamma:
                row["undrafted"] = around(*over((whole, "undrafted"), (usual, "runs")))
                speeds = [
                    over(((temperature, 0, n), "tokens"), ((temperature, gamma, n), "tokens"))
                    for n in (TOKENS // 2, TOKENS)
                ]
                (half, halves), (full, fulls) = speeds
                row["speedup_of_halves"] = around(half / full - 1, halves / fulls - 1)
            else:
                row |= {n: around(*over((usual, n), (usual, "runs"))) for n in ("first", "second")}
            rows.append(row)
    print(f"{asked.draft}: {len(found)} rounds")
    print(pd.DataFrame(rows).map(_shown).to_string(index=False))


def _shown(value: object) -> str:
    if isinstance(value, Interval):
        return f"{value.best:.3f} ({value.low:.3f} to {value.high:.3f})"
    return "" if value != value else str(value)


if __name__ == "__main__":
    main()
