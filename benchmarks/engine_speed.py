"""Speed of the decoding loop: against transformers' assisted generation, and its own overhead.

Everything is measured on the embedded family, in short turns and random order, and given as
ratios, since machines drift.

    OMP_NUM_THREADS=1 python benchmarks/engine_speed.py [--requests 12] [--tokens 48] [--compiled]

Assisted generation: target runs per second of the greedy speculative loop, from the end of the
first target run of a request to the end of its last, on both sides by hooks on the target's
forward.  So the prompt, and what ``generate`` prepares once a request, are left out; a second
column has whole requests.  Both must give the same text in as many target runs.  At least 1.5
is wanted.  "no overhead" is the loop's ratio if our time outside the model runs were nothing:
both sides run the same forward of the same models, so no loop around it can do better.  With
--compiled our side is the loop for batches (``calibrate.batch``), at batch 1, over models compiled
by torch.compile, which ``generate`` cannot do with caches that are cut back; compiling takes some
minutes and is not timed.  Then this is what is judged.

Overhead: host time outside the model runs, as a share of the time in them.  At most 15 % is
wanted.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch

from calibrate.batch.ragged import RaggedModel
from calibrate.batch.synthetic import speculate
from calibrate.decode.bild import bild
from calibrate.decode.drafters import Neural, Vertical
from calibrate.decode.engine import CachedModel, DecodeRequest, Decoding
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.measure.trace import generator
from calibrate.models.load import Loaded, load
from calibrate.models.prompts import held_out_prompts
from calibrate.models.sampling import Sampling
from specsim.schemes import BigLittle

CPU = torch.device("cpu")
PROMPT = 48  # tokens
ASSISTED_GAMMAS = (2, 4, 8)
GAMMAS = range(1, 9)
SLICE = 8  # tokens that one decoder emits before the next has its go
WANTED_RATIO, MOST_OVERHEAD = 1.5, 0.15

Prompt = list[int]
Start = Callable[[Prompt, torch.Generator], Decoding]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--compiled", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    family = {
        name: load(f"embedded/{name}", CPU, torch.float32) for name in ("target", "middle", "small")
    }
    prompts = held_out_prompts(family["target"].tokenizer, PROMPT, arguments.requests)
    gc.collect()
    gc.freeze()
    reached = against_assisted(family, prompts, arguments.tokens, arguments.compiled)
    for sampling in (Sampling(0.0), Sampling(1.0)):
        reached &= overhead(family, prompts, arguments.tokens, sampling)
    sys.exit(not reached)


@dataclass
class Clock:
    """When each run of a model ended."""

    ends: list[float] = field(default_factory=list)

    def __call__(self, *_: Any) -> None:
        self.ends.append(time.perf_counter())


@dataclass(frozen=True)
class Timed:
    """One request: its text, its decoding runs of the target, and seconds.

    loop : seconds from the end of the first decoding run to the end of the last
    in_models : share of our time that is spent in model runs
    """

    text: Prompt
    runs: int
    loop: float
    whole: float
    in_models: float = 1.0


@dataclass(frozen=True)
class Request:
    """What is decoded both ways, but for the prompt; ``clock`` hears of every target run."""

    target: Loaded
    draft: Loaded
    gamma: int
    tokens: int
    clock: Clock
    compiled: tuple[RaggedModel, RaggedModel] | None = None


def against_assisted(
    family: Mapping[str, Loaded], prompts: list[Prompt], tokens: int, compiled: bool
) -> bool:
    """Print a row for every draft and gamma; whether all reach the wanted ratio."""
    target = family["target"]
    clock = Clock()
    hook = target.model.register_forward_hook(clock)
    order = np.random.default_rng(0)
    recorded = compile_family(tokens, clock) if compiled else {}
    print("target runs per second, ours over assisted generation (median and quartiles)")
    print(
        "draft   gamma   loop                 whole request        no overhead   "
        "ours, runs/s   assisted"
    )
    reached = True
    for name, gamma in product(("small", "middle"), ASSISTED_GAMMAS):
        both = (recorded["target"], recorded[name]) if compiled else None
        request = Request(target, family[name], gamma, tokens, clock, both)
        pairs = []
        for prompt in [prompts[0], *prompts]:  # the first one warms up
            ways = (ours_compiled if compiled else ours, assisted)
            done = {way: ways[way](request, prompt) for way in order.permutation(2).tolist()}
            if (done[0].text, done[0].runs) != (done[1].text, done[1].runs):
                sys.exit(f"texts or target runs differ: {done[0]} and {done[1]}")
            pairs.append((done[0], done[1]))
        pairs = pairs[1:]
        loop = [slow.loop / fast.loop for fast, slow in pairs]
        whole = [slow.whole / fast.whole for fast, slow in pairs]
        most = [slow.loop / (fast.loop * fast.in_models) for fast, slow in pairs]
        rates = [
            np.median([(each.runs - 1) / each.loop for each in side])
            for side in zip(*pairs, strict=True)
        ]
        print(
            f"{name:8}{gamma:5}   {spread(loop):21}{spread(whole):21}{np.median(most):11.2f}"
            f"{rates[0]:15.1f}{rates[1]:11.1f}",
            flush=True,
        )
        reached &= bool(np.median(loop) >= WANTED_RATIO)
    hook.remove()
    return reached


def ours(request: Request, prompt: Prompt) -> Timed:
    pair = (CachedModel(each.model, timed=False) for each in (request.target, request.draft))
    random, end = generator(CPU, 0), request.target.end_of_text
    clock = request.clock
    clock.ends.clear()
    start = time.perf_counter()
    asked = DecodeRequest(prompt, request.tokens, Sampling(0.0), random, end)
    decoded = speculative(*pair, asked, request.gamma).finish()
    whole = time.perf_counter() - start
    ends = clock.ends[1:]  # the first run read the prompt
    in_models = 1 - decoded.overhead_s / decoded.seconds
    return Timed(decoded.tokens, len(ends), ends[-1] - ends[0], whole, in_models)


def compile_family(tokens: int, clock: Clock) -> dict[str, RaggedModel]:
    """Compiled models of their own, since hooks do not go with compiling."""
    slots = PROMPT + tokens + max(ASSISTED_GAMMAS) + 1
    found = {
        name: RaggedModel(
            load(f"embedded/{name}", CPU, torch.float32).model, 1, slots, compiled=True
        )
        for name in ("target", "small", "middle")
    }
    for name, model in found.items():
        widths = [gamma + 1 for gamma in ASSISTED_GAMMAS] if name == "target" else [1, 2]
        for width in widths:
            model.prepare(width, slots)
    run = found["target"].read

    def timed(ids: torch.Tensor) -> torch.Tensor:
        logits = run(ids)
        clock()
        return logits

    found["target"].read = timed  # type: ignore[method-assign]
    return found


def ours_compiled(request: Request, prompt: Prompt) -> Timed:
    assert request.compiled is not None
    target, draft = request.compiled
    clock = request.clock
    clock.ends.clear()
    start = time.perf_counter()
    (text,) = speculate(
        target, draft, [prompt], request.gamma, request.tokens, 0.0, np.random.default_rng(0)
    )
    whole = time.perf_counter() - start
    ends = clock.ends
    return Timed(text, len(ends), ends[-1] - ends[0], whole)


def assisted(request: Request, prompt: Prompt) -> Timed:
    """Its options are read from the assistant's own configuration, not from the call's."""
    options = request.draft.model.generation_config
    options.num_assistant_tokens = request.gamma
    options.num_assistant_tokens_schedule = "constant"
    options.assistant_confidence_threshold = 0.0
    ids = torch.tensor([prompt])
    clock = request.clock
    clock.ends.clear()
    start = time.perf_counter()
    text = request.target.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        assistant_model=request.draft.model,
        max_new_tokens=request.tokens,
        do_sample=False,
    )
    whole = time.perf_counter() - start
    ends = clock.ends
    return Timed(text[0, len(prompt) :].tolist(), len(ends), ends[-1] - ends[0], whole)


def overhead(
    family: Mapping[str, Loaded], prompts: list[Prompt], tokens: int, sampling: Sampling
) -> bool:
    """Print a row for every decoder; whether all stay within the wanted share."""
    starts = decoders(family, tokens, sampling)
    order = np.random.default_rng(0)
    shares, blocks = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for number, prompt in enumerate([prompts[0], *prompts]):  # the first one warms up
        started = {name: start(prompt, generator(CPU, number)) for name, start in starts.items()}
        goal, unfinished = 0, list(started)
        while unfinished:
            goal += SLICE
            shuffled = order.permutation(unfinished).tolist()
            unfinished = [name for name in shuffled if started[name].advance(goal)]
        for name, decoding in started.items() if number else ():
            decoded = decoding.finish()
            in_models = decoded.target.seconds + decoded.draft.seconds
            shares[name].append(decoded.overhead_s / in_models)
            blocks[name].append(1e6 * decoded.overhead_s / decoded.calls)
    print(
        f"\noverhead over model time (median and quartiles), temperature {sampling.temperature:g}"
    )
    for name in starts:
        percent = [100 * share for share in shares[name]]
        print(f"{name:16}{spread(percent):21}% {np.median(blocks[name]):8.0f} us a block")
    return max(np.median(shares[name]) for name in starts) <= MOST_OVERHEAD


def decoders(family: Mapping[str, Loaded], tokens: int, sampling: Sampling) -> dict[str, Start]:
    """Every decoder with caches of its own, since all are in mid-request at once."""

    def fresh(name: str) -> CachedModel:
        return CachedModel(family[name].model, name=name)

    def requested(decode: Callable[[DecodeRequest], Decoding]) -> Start:
        return lambda prompt, random: decode(DecodeRequest(prompt, tokens, sampling, random))

    def drafted(gamma: int) -> Start:
        target, draft = fresh("target"), fresh("small")
        return requested(lambda request: speculative(target, draft, request, gamma))

    alone, large, small, reviewed = (
        fresh(name) for name in ("target", "target", "small", "target")
    )
    cascade = Vertical(fresh("middle"), Neural(fresh("small")), 2, steps=2)
    scheme = BigLittle(fallback_threshold=0.3, rollback_threshold=3.0)
    return {
        "plain": requested(lambda request: plain(alone, request)),
        **{f"gamma {gamma}": drafted(gamma) for gamma in GAMMAS},
        "vertical": requested(lambda request: speculative(reviewed, cascade, request)),
        "BiLD": requested(lambda request: bild(large, small, request, scheme)),
    }


def spread(values: list[float]) -> str:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
