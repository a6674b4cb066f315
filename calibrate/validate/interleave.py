"""Real decoding, interleaved, so that what is compared is measured side by side.

Machines drift by tens of percent within minutes and are disturbed within a second, so nothing is
compared across either.  Requests come one after another, from all sets of them alike.  All decoders
go on with a request side by side, a few tokens each in random order, until all have the whole text.
What disturbs the machine hits all of them alike and leaves ratios alone.  Each request is written
down as soon as all have decoded it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from calibrate.decode.engine import Decoded, Decoding
from calibrate.measure.trace import DECODING, generator
from calibrate.models.collector import models_not_walked
from specsim.checkpoint import Checkpoint
from specsim.checks import Floats
from specsim.intervals import Bootstrap, Interval
from specsim.predict.error_decomposition import BlockTiming

# What plain decoding is called among the decoders.
PLAIN = 0
# Tokens that one decoder emits before the next has its go: some tens of milliseconds.  With fewer,
# reading its own keys and values back into the processor's caches after the others' would count.
_SLICE = 8

# A decoder at the start of a request: from the prompt and a source of random numbers.
Start = Callable[[Sequence[int], torch.Generator], Decoding]


@dataclass(frozen=True)
class RequestSet:
    """Prompts, and the decoders that all of them go through.

    decoders : by gamma, or by name; ``PLAIN`` among them is what the others are compared with
    """

    prompts: Sequence[Sequence[int]]
    decoders: Mapping[Hashable, Start]


@dataclass(frozen=True)
class Interleaved:
    """What was decoded of one set of requests.

    decoded : by decoder, one result a request
    """

    decoded: Mapping[Hashable, list[Decoded]]

    def seconds(self, name: Hashable) -> Floats:
        """Shape (R,)."""
        return np.array([each.seconds for each in self.decoded[name]])

    def lengths(self, name: Hashable) -> Floats:
        """Tokens emitted, shape (R,)."""
        return np.array([float(len(each.tokens)) for each in self.decoded[name]])

    def calls(self, name: Hashable) -> Floats:
        """Target calls, shape (R,)."""
        return np.array([float(each.calls) for each in self.decoded[name]])

    def speedup(
        self, name: Hashable, expected: tuple[Floats, Floats] | None = None
    ) -> Interval[float]:
        """Plain over this time a token, 95 % by bootstrap over requests.

        ``expected`` seconds of each request, plain and this: where the prediction is for
        these very requests, how requests differ in it is no uncertainty of the measurement, so
        the interval is that of measured over expected, times expected.
        """
        figures = [self.seconds(PLAIN), self.lengths(PLAIN), self.seconds(name), self.lengths(name)]
        bootstrap = Bootstrap(len(figures[0]))

        def ratio(plain_s: Floats, plain: Floats, fast_s: Floats, fast: Floats) -> Floats:
            return np.asarray(plain_s / plain / (fast_s / fast))

        best = float(ratio(*(figure.sum() for figure in figures)))
        drawn = ratio(*(bootstrap.sums(figure) for figure in figures))
        if expected is not None:
            ordinary, fast = expected
            drawn /= bootstrap.ratios(ordinary, fast)
            drawn *= ordinary.sum() / fast.sum()
        return bootstrap.around(best, drawn)

    def block_timing(self, name: Hashable) -> BlockTiming:
        """What a block of this decoder yields, and where its time goes."""
        plain, fast = self.decoded[PLAIN], self.decoded[name]
        calls = self.calls(name).sum()
        return BlockTiming(
            tokens=float(self.lengths(name).sum() / calls),
            draft_s=sum(each.draft.seconds for each in fast) / calls,
            verify_s=sum(each.target.seconds for each in fast) / calls,
            overhead_s=sum(each.overhead_s for each in fast) / calls,
            plain_step_s=sum(each.seconds for each in plain) / float(self.lengths(PLAIN).sum()),
        )

    def same_text(self, name: Hashable) -> bool:
        """Whether every request has the text of plain decoding; so it must be at temperature 0."""
        pairs = zip(self.decoded[PLAIN], self.decoded[name], strict=True)
        return all(plain.tokens == fast.tokens for plain, fast in pairs)


def decode_interleaved(
    sets: Sequence[RequestSet],
    device: torch.device,
    seed: int,
    checkpoint: Checkpoint,
    advance: Callable[[], None] = lambda: None,
) -> list[Interleaved]:
    """Every request decoded with every decoder of its set.

    All decoders of a set are in mid-request at once, so each needs models with caches of its own.
    Requests that are in the ``checkpoint`` are not decoded again.
    """
    interleaved = [Interleaved({name: [] for name in each.decoders}) for each in sets]
    turns = _round_robin([len(each.prompts) for each in sets])
    with models_not_walked():
        for number, (index, request) in enumerate(turns):
            starts = [
                partial(
                    start,
                    sets[index].prompts[request],
                    generator(device, DECODING, seed, index, request, place),
                )
                for place, start in enumerate(sets[index].decoders.values())
            ]
            order = np.random.default_rng([DECODING, seed, number])
            decode = partial(_decode_side_by_side, starts, order)
            done = checkpoint.keep_json(f"{index}-{request}.json", decode, list[Decoded], _counter)
            for name, decoded in zip(sets[index].decoders, done, strict=True):
                interleaved[index].decoded[name].append(decoded)
            advance()
    return interleaved


def _counter(kind: type, found: Any) -> Counter[int]:
    """Widths of runs, as JSON has them."""
    return Counter({int(width): count for width, count in found.items()})


def _decode_side_by_side(
    starts: Sequence[Callable[[], Decoding]], order: np.random.Generator
) -> list[Decoded]:
    """Decode all to the end, ``_SLICE`` tokens at a time, in a new order each round."""
    decodings = [start() for start in starts]
    goal, unfinished = 0, list(range(len(decodings)))
    while unfinished:
        goal += _SLICE
        shuffled = order.permutation(unfinished).tolist()
        unfinished = sorted(number for number in shuffled if decodings[number].advance(goal))
    return [each.finish() for each in decodings]


def _round_robin(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """(set, request) in order, each set's requests spread evenly over the whole time."""
    pairs = [(index, request) for index, size in enumerate(sizes) for request in range(size)]
    return sorted(pairs, key=lambda pair: ((pair[1] + 0.5) / sizes[pair[0]], pair[0]))
