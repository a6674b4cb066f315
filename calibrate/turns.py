"""Real decoding in turns, so that what is compared is measured side by side.

Machines drift by tens of percent within minutes and are disturbed within a second, so nothing is
compared across either.  A turn is one request, and turns go round all sets of requests.  It has a
short calibration of the run times; then plain decoding and speculative decoding with every gamma
go on side by side, a few tokens each in random order, until all have the whole text.  What
disturbs the machine hits all of them alike and leaves ratios alone.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from calibrate.decode.engine import CachedModel, Decoded, Decoding
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.models import Pair
from calibrate.sampling import Sampling
from calibrate.timing import Samples, sample_runs, summarize_runs
from calibrate.trace import DECODING, generator
from specsim.checks import Floats
from specsim.profiles import RunTime

_BOOTSTRAP_DRAWS = 1000
# Tokens that one decoder emits before the next has its go: some tens of milliseconds.  With fewer,
# reading its own keys and values back into the processor's caches after the others' would count.
_SLICE = 8


@dataclass(frozen=True)
class Requests:
    """Prompts that are decoded under one sampling setting."""

    prompts: Sequence[Sequence[int]]
    sampling: Sampling
    max_new_tokens: int

    def start(
        self,
        request: int,
        gamma: int,
        target: CachedModel,
        draft: CachedModel,
        random: torch.Generator,
        end_of_text: int | None,
    ) -> Decoding:
        """A decoder at the start of one request; gamma 0 is plain decoding."""
        prompt, limit = self.prompts[request], self.max_new_tokens
        if gamma == 0:
            return plain(target, prompt, limit, self.sampling, random, end_of_text)
        return speculative(target, draft, prompt, gamma, limit, self.sampling, random, end_of_text)


@dataclass(frozen=True)
class Turns:
    """What was decoded of one set of requests.

    decoded : by gamma (0 is plain decoding), one result a request
    """

    decoded: Mapping[int, list[Decoded]]

    def seconds(self, gamma: int) -> Floats:
        """Shape (R,)."""
        return np.array([each.seconds for each in self.decoded[gamma]])

    def lengths(self, gamma: int) -> Floats:
        """Tokens emitted, shape (R,)."""
        return np.array([float(len(each.tokens)) for each in self.decoded[gamma]])

    def calls(self, gamma: int) -> Floats:
        """Target calls, shape (R,)."""
        return np.array([float(each.calls) for each in self.decoded[gamma]])

    def speedup(
        self, gamma: int, expected: tuple[Floats, Floats] | None = None, seed: int = 0
    ) -> tuple[float, float, float]:
        """(low, best, high): plain over speculative time a token, 95 % by bootstrap over requests.

        ``expected`` seconds of each request, plain and speculative: where the prediction is for
        these very requests, how requests differ in it is no uncertainty of the measurement, so
        the interval is that of measured over expected, times expected.
        """
        figures = [self.seconds(0), self.lengths(0), self.seconds(gamma), self.lengths(gamma)]
        size = len(figures[0])
        draws = np.random.default_rng(seed).integers(size, size=(_BOOTSTRAP_DRAWS, size))

        def ratio(plain_s: Floats, plain: Floats, fast_s: Floats, fast: Floats) -> Floats:
            return np.asarray(plain_s / plain / (fast_s / fast))

        best = float(ratio(*(figure.sum() for figure in figures)))
        drawn = ratio(*(figure[draws].sum(1) for figure in figures))
        if expected is not None:
            ordinary, fast = expected
            drawn /= ordinary[draws].sum(1) / fast[draws].sum(1)
            drawn *= ordinary.sum() / fast.sum()
        low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
        return low, best, high

    def same_text(self, gamma: int) -> bool:
        """Whether every request has the text of plain decoding; so it must be at temperature 0."""
        pairs = zip(self.decoded[0], self.decoded[gamma], strict=True)
        return all(plain.tokens == fast.tokens for plain, fast in pairs)


def decode_in_turns(
    pair: Pair,
    sets: Sequence[Requests],
    gammas: Sequence[int],
    contexts: Sequence[int],
    gamma_max: int,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> tuple[list[Turns], list[RunTime]]:
    """Decode every request plainly and with every gamma, run times measured in between.

    The run times are over all turns: they depend on neither prompts nor temperature.
    """
    target, draft = pair.cached()
    # Each decoder has caches of its own, since all of them are in mid-request at once.
    caches = {gamma: pair.cached(timed=False) for gamma in (0, *gammas)}
    order = np.random.default_rng([DECODING, seed])
    samples: Samples = defaultdict(list)
    turns = [Turns({gamma: [] for gamma in caches}) for _ in sets]
    gc.collect()
    gc.freeze()  # long-lived models and modules: a collection in mid-turn need not walk them
    for index, request in _round_robin([len(each.prompts) for each in sets]):
        for context in contexts:
            sample_runs(target, draft, context, gamma_max, order, samples)
        chosen = sets[index]
        started = {}
        for gamma, models in caches.items():
            random = generator(target.device, DECODING, seed, index, request, gamma)
            started[gamma] = chosen.start(request, gamma, *models, random, pair.target.end_of_text)
        _side_by_side(started, order)
        for gamma, decoding in started.items():
            turns[index].decoded[gamma].append(decoding.finish())
        advance()
    gc.unfreeze()
    return turns, summarize_runs(samples)


def _side_by_side(decodings: Mapping[int, Decoding], order: np.random.Generator) -> None:
    """Decode all to the end, ``_SLICE`` tokens at a time, in a new order each round."""
    goal, unfinished = 0, sorted(decodings)
    while unfinished:
        goal += _SLICE
        shuffled = order.permutation(unfinished).tolist()
        unfinished = [gamma for gamma in shuffled if decodings[gamma].advance(goal)]


def _round_robin(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """(set, request) of every turn, each set's requests spread evenly over the whole time."""
    turns = [(index, request) for index, size in enumerate(sizes) for request in range(size)]
    return sorted(turns, key=lambda turn: ((turn[1] + 0.5) / sizes[turn[0]], turn[0]))
