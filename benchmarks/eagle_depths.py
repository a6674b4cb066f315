"""The embedded EAGLE head by depth: what its law, its replay and its decoder say of each gamma.

    python benchmarks/eagle_depths.py studies/measured/eagle

The target answers held-out prompts; its text is recorded at every depth of a block from every
start, and decoded again with the head at gamma 1 to 6.  Two files: ``depths.csv``, how often the
token at a depth is accepted given that all before it were (``rate``), and given the text alone, the
tokens before it being the text's whatever the head would have drafted (``on_the_text``); and
``calls.csv``, tokens per target
call by the law with those rates, by the law with the first of them at every depth, by the replay of
the text, and as decoded.  Exits 1 unless at temperature 0 calls and draft runs of every
request are the replayed ones, and above it within four standard errors of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibrate.decode.build import start
from calibrate.decode.engine import DecodeRequest
from calibrate.decode.plain import plain
from calibrate.measure.recorded_text import ReadableText
from calibrate.measure.trace import DECODING, TRACE, generator
from calibrate.models.load import load_pair
from calibrate.models.pool import ModelPool, load_pool
from calibrate.models.prompts import held_out_prompts
from calibrate.models.sampling import Sampling
from specsim.laws import TARGET
from specsim.predict.replay import build
from specsim.predict.replay.rates import acceptance_rates, total
from specsim.report.tables import render
from specsim.schemes import SpeculativeDecoding
from specsim.schemes.drafters import EagleDrafter

GAMMAS = range(1, 7)
REQUESTS, PROMPT, NEW = 24, 64, 128
CPU = torch.device("cpu")


def main(out: Path) -> int:
    """Measure both tables; 1 where the replay is contradicted."""
    pair = load_pair("embedded/target", "embedded/small", CPU)
    pool = load_pool(pair, {})
    prompts = held_out_prompts(pair.target.tokenizer, PROMPT, REQUESTS)
    depths: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature)
        texts = [recorded(pool, sampling, number, each) for number, each in enumerate(prompts)]
        scheme = SpeculativeDecoding(max(GAMMAS), "eagle")
        found = total(each for text in texts for each in acceptance_rates(scheme.drafter, text))
        rates = [tried.rate for tried in found.values()]
        alone = on_the_text(texts, scheme)
        for depth, tried in enumerate(found.values(), start=1):
            counts = {"accepted": tried.happened, "tried": tried.times, "rate": tried.rate}
            row = {"temperature": temperature, "depth": depth, **counts}
            depths.append({**row, "on_the_text": alone[depth - 1]})
        for gamma in GAMMAS:
            calls.append(compared(pool, sampling, gamma, texts, rates))
            print(calls[-1], flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / "depths.csv").write_text(render(depths, "csv") + "\n")
    (out / "calls.csv").write_text(render(calls, "csv") + "\n")
    return int(any(not row["as_replayed"] for row in calls))


def recorded(pool: ModelPool, sampling: Sampling, number: int, prompt: list[int]) -> ReadableText:
    """The target's answer to a prompt."""
    model_set = pool.new(timed=False)
    request = DecodeRequest(prompt, NEW, sampling, generator(CPU, TRACE, number), frozenset({0}))
    tokens = plain(model_set.target, request).finish().tokens
    return ReadableText(prompt, tokens, NEW, sampling, model_set)


def on_the_text(texts: list[ReadableText], scheme: SpeculativeDecoding) -> list[float]:
    """The mean of a_{s,j} over all starts s with a token at depth j, for each j."""
    drafter = EagleDrafter(scheme.draft, scheme.gamma)
    found = [text.accepted_by_depth(drafter, TARGET)[0] for text in texts]
    return [
        float(np.concatenate([each[: max(len(each) - depth, 0), depth] for each in found]).mean())
        for depth in range(scheme.gamma)
    ]


def compared(
    pool: ModelPool,
    sampling: Sampling,
    gamma: int,
    texts: list[ReadableText],
    rates: list[float],
) -> dict[str, Any]:
    """One gamma at one temperature: a row of tokens per call, and of draft runs."""
    scheme, model_set = SpeculativeDecoding(gamma, "eagle"), pool.new(timed=False)
    expected = [build.predict(scheme, text) for text in texts]
    decoded = []
    for number, text in enumerate(texts):
        random = generator(CPU, DECODING, number, gamma)
        request = DecodeRequest(text.prompt, NEW, sampling, random, frozenset({0}))
        decoded.append(start(scheme, model_set, request).finish())
    lengths = np.array([len(each.tokens) for each in decoded])
    foreseen = np.array([[each.calls, each.runs.runs("eagle")] for each in expected])
    foreseen /= np.array([[each.tokens] for each in expected])
    counted = np.array([[each.calls, each.draft.count] for each in decoded]) / lengths[:, None]
    gaps = counted - foreseen
    spread = gaps.std(axis=0, ddof=1) / np.sqrt(len(gaps))
    exact = bool((np.abs(gaps) < 1e-9).all())
    tokens = sum(each.tokens for each in expected)
    return {
        "temperature": sampling.temperature,
        "gamma": gamma,
        "requests": len(texts),
        "law_by_depth": scheme.law(rates[:gamma]).tokens_per_call,
        "law_of_first_rate": scheme.law(rates[0]).tokens_per_call,
        "replayed": tokens / sum(each.calls for each in expected),
        "counted": float(lengths.sum()) / sum(each.calls for each in decoded),
        "replayed_draft_runs": sum(each.runs.runs("eagle") for each in expected),
        "counted_draft_runs": sum(each.draft.count for each in decoded),
        "exact": exact,
        "calls_z": None if exact else float(gaps[:, 0].mean() / spread[0]),
        "as_replayed": exact
        or (not sampling.greedy and bool((np.abs(gaps.mean(axis=0)) <= 4 * spread).all())),
    }


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
