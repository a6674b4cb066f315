"""A server that does one step after another, and what its clients see of it."""

from __future__ import annotations

import heapq
from bisect import bisect_right

import numpy as np

from specsim.counts.streams import Stream

STEP_S, REQUEST_S, PROMPT_S, TOKEN_S = 0.005, 0.0008, 0.002, 0.00012


def served(
    sent_s: list[float],
    prompts: list[int],
    chunks: list[int],
    frontend_s: float,
    jitter_s: float = 0.0,
    extra_s: float = 0.0,
    seed: int = 0,
    reading_s: tuple[float, float] = (0.0, 0.0),
    context_s: float = 0.0,
    decode_s: float = 0.0,
    prompt_s: float = 0.0,
    variations: tuple[float, float, float] = (0.0, 0.0, 0.0),
    arrival_s: float = 0.0,
) -> tuple[list[Stream], list[tuple[int, int, int, float]]]:
    """A server that does one step after another, of all requests that have arrived by then; its
    clients' streams, and of every step decodes, prompts, their tokens and seconds.

    reading_s : what a step with a prompt takes longer, and again for each of its requests
    context_s : what a step takes longer for each token in the caches of its decodes
    decode_s, prompt_s : how much later a first chunk comes for each request that decodes in its
        step, and for each other one that has its first chunk there
    variations : coefficients of variation of steps without prompts, of those with some, and of
        what requests spend before all steps; gamma-distributed
    arrival_s : what a step takes longer for each request that is sent while it runs
    """
    random = np.random.default_rng(seed)
    waiting = [
        (at + frontend_s * _factor(random, variations[2]), number)
        for number, at in enumerate(sent_s)
    ]
    heapq.heapify(waiting)
    times: list[list[float]] = [[] for _ in sent_s]
    running: list[int] = []
    steps = []
    now = 0.0
    while waiting or running:
        new = []
        if not running:
            now = max(now, waiting[0][0])
        while waiting and waiting[0][0] <= now:
            new.append(heapq.heappop(waiting)[1])
        tokens = sum(prompts[number] for number in new)
        both = len(running) + len(new)
        seconds = STEP_S + extra_s + REQUEST_S * both + PROMPT_S * len(new) + TOKEN_S * tokens
        if new:
            seconds += reading_s[0] + reading_s[1] * both
        seconds += context_s * sum(prompts[number] + len(times[number]) for number in running)
        seconds *= _factor(random, variations[bool(new)])
        came = bisect_right(sent_s, now)
        while came < len(sent_s) and sent_s[came] <= now + seconds:
            seconds += arrival_s
            came += 1
        now += seconds
        steps.append((len(running), len(new), tokens, seconds))
        for number in (*running, *new):
            outside_s = decode_s * len(running) + prompt_s * (len(new) - 1)
            late_s = 0.0 if times[number] else outside_s
            times[number].append(now + late_s + jitter_s * random.random())
        running = [n for n in (*running, *new) if len(times[n]) < chunks[n]]
    streams = [
        Stream(prompt, at, tuple(each), (1,) * len(each))
        for prompt, at, each in zip(prompts, sent_s, times, strict=True)
    ]
    return streams, steps


def _factor(random: np.random.Generator, variation: float) -> float:
    """With mean 1."""
    if not variation:
        return 1.0
    return float(random.gamma(variation**-2, variation**2))


def a_load(seed: int, requests: int = 200, every_s: float = 0.1) -> tuple[list[float], ...]:
    random = np.random.default_rng(seed)
    sent = np.cumsum(random.exponential(every_s, requests)).tolist()
    prompts = random.integers(2, 150, requests).tolist()
    chunks = random.integers(1, 60, requests).tolist()
    return sent, prompts, chunks
