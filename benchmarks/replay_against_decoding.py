"""The exact replay against counted target calls of real decoding, without timing anything.

    python benchmarks/replay_against_decoding.py [--requests 210] [--tokens 100] [--draft NAME]

Temperature 0: the replayed number of calls must EQUAL the counted one for every request and every
gamma from 1 to 8, and the text that of plain decoding.  Temperature 1: z over requests of counted
minus replayed calls, each decoding with random numbers of its own; |z| < 3 is wanted for every
gamma (false-alarm chance 2 % over eight).  The trace of a request is one text, so both the text's
and the decoder's randomness are in z.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from calibrate.decode.engine import DecodeRequest
from calibrate.decode.speculative import speculative
from calibrate.measure.trace import DECODING, TRACE, generator, record
from calibrate.models.load import Pair, load_pair
from calibrate.models.prompts import held_out_prompts
from calibrate.models.sampling import Sampling
from specsim.predict.replay.fixed_gamma import replay
from specsim.traces import Trace

GAMMAS = range(1, 9)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=210)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--draft", default="embedded/small")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cpu")
    pair = load_pair("embedded/target", arguments.draft, device)
    prompts = held_out_prompts(pair.target.tokenizer, 64, arguments.requests)
    for temperature in (1.0, 0.0):
        check(pair, prompts, arguments.tokens, Sampling(temperature))


def check(pair: Pair, prompts: list[list[int]], tokens: int, sampling: Sampling) -> None:
    """Print one line per gamma."""
    target, draft = pair.cached()
    device = target.device
    gaps: dict[int, list[float]] = {gamma: [] for gamma in GAMMAS}
    counted = dict.fromkeys(GAMMAS, 0)
    expected = dict.fromkeys(GAMMAS, 0.0)
    emitted = same = 0
    for number, prompt in enumerate(prompts):
        random = generator(device, TRACE, 77, number)
        frame = record(target, draft, number, DecodeRequest(prompt, tokens, sampling, random))
        a = np.exp(np.minimum(frame["logp_draft"] - frame["logp_target"], 0)).to_numpy(float)
        emitted += len(frame)
        for replayed in replay(Trace(a, np.array([0, len(a)])), GAMMAS):
            gamma = replayed.gamma
            random = generator(device, DECODING, 77, number, gamma)
            request = DecodeRequest(prompt, tokens, sampling, random)
            decoded = speculative(target, draft, request, gamma).finish()
            gaps[gamma].append(decoded.calls - replayed.total_calls)
            counted[gamma] += decoded.calls
            expected[gamma] += replayed.total_calls
            same += decoded.tokens == frame["token"].tolist()
    print(
        f"temperature {sampling.temperature:g}: {len(prompts)} requests, {emitted} tokens a gamma"
    )
    for gamma in GAMMAS:
        difference = np.array(gaps[gamma])
        if sampling.greedy:
            verdict = f"requests where they differ: {np.count_nonzero(difference)}"
        else:
            z = difference.mean() / (difference.std(ddof=1) / np.sqrt(len(difference)))
            verdict = f"z {z:+.2f}"
        print(
            f"  gamma {gamma}: replayed {expected[gamma]:.1f} calls, counted {counted[gamma]}, "
            f"tokens per call {emitted / expected[gamma]:.4f} and {emitted / counted[gamma]:.4f}, "
            f"{verdict}",
            flush=True,
        )
    if sampling.greedy:
        print(
            f"  texts equal to plain decoding: {same} of {len(prompts) * len(GAMMAS)}", flush=True
        )


if __name__ == "__main__":
    main()
