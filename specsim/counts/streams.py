"""Steps of a server under load, told from when its clients got their tokens.

Every step of a request ends with one streamed chunk, and all requests of a step get theirs in the
same moment, so that what lies between two such moments is a step, whoever decoded or had a prompt
read in it.  A step counts only where all of its requests are seen in it and in the one before, and
none of their chunks has more tokens than a step gives, or came together with the next: servers that
lag join chunks, and clients that lag read several at once.

A request that arrives while a step runs waits for its end.  One that spends d seconds before all
steps becomes part of the first step that begins d after it was sent, or later; where requests are
sent at any moment of a step alike, the moment at which it could have begun is, in the mean, the
middle of the step that it waited for.  Its first chunk, with which an answer is begun, comes a
little later than the first of its step; that is outside of steps, too.  A server that sends others
their chunks meanwhile takes longer for it, and one that takes in several requests does so one after
another, so that it is told by how many those are.

All of this holds for a server that serves nobody else, reads every prompt in one step, admits every
request at once and streams every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np

from specsim.checks import Floats
from specsim.counts.steps import FrontendTime, StreamedStep, StreamedSteps

# Chunks closer together than this share of a short step are of one step; short is a quantile of the
# times between the chunks of a request.
_CLOSE = 0.5
_SHORT_STEP = 0.05
# Chunks of one request that a client read at once are apart by what it takes to read them,
# microseconds; no step is as short as this.
_AT_ONCE_S = 1e-4
# Spreads (median deviations, as of a normal law) from the median behind which a time is a stall.
_STALL, _NORMAL = 10.0, 0.6745


@dataclass(frozen=True)
class Stream:
    """A request as its client saw it, in seconds of one clock.

    prompt_tokens : of its prompt
    sent_s : when it was sent
    chunk_s : when each chunk came, rising
    chunk_tokens : how many tokens each had; None where the client does not tell: then each passes
        for one of a single step, and nobody knows what is in the caches
    counts_from_s : no step that begins before counts
    """

    prompt_tokens: int
    sent_s: float
    chunk_s: tuple[float, ...]
    chunk_tokens: tuple[int, ...] | None = None
    counts_from_s: float = -inf


class Chunk(NamedTuple):
    """One of a request.

    context : tokens in the cache of its request in this step; 0 where nobody tells
    joined : whether it is of more than one step
    """

    at_s: float
    request: int
    first: bool
    last: bool
    context: int
    joined: bool


class Moment(NamedTuple):
    """The end of a step: when its first chunk came, and the chunks by request.

    whole : whether all that had begun and were not done got a chunk of this step alone, and it
        counts
    """

    at_s: float
    chunks: dict[int, Chunk]
    whole: bool


class SingleStep(NamedTuple):
    """A step that was seen whole, in which somebody decoded.

    number : of the moment that ends it, among all
    earlier : the moment before its beginning; None where there is none
    began, ended : the moments between which it ran
    arrivals : requests that were sent while it ran
    """

    number: int
    earlier: Moment | None
    began: Moment
    ended: Moment
    arrivals: int

    @property
    def seconds(self) -> float:
        return self.ended.at_s - self.began.at_s

    @property
    def new(self) -> list[int]:
        """Numbers of the requests whose prompt it read."""
        return [number for number, chunk in self.ended.chunks.items() if chunk.first]

    @property
    def contexts(self) -> list[int]:
        """Tokens in the cache of each request that decoded."""
        return [chunk.context for chunk in self.ended.chunks.values() if not chunk.first]


def streamed_steps(streams: Sequence[Stream], gamma: int, repeat: int = 0) -> StreamedSteps:
    """The steps of a server with ``gamma`` draft tokens that served these requests and no others.

    Steps without a prompt are pooled by how many decoded and how many requests were sent
    meanwhile, as plain means, since the long ones are part of what requests wait for: in one row
    those with few tokens in the caches, and those with many in another.  Each other one is a row.
    """
    plain: dict[tuple[int, int], list[tuple[int, float]]] = {}
    rows, contexts = [], []
    delays: dict[tuple[int, int], list[_Delay]] = {}
    for step in single_steps(streams, gamma):
        new, known = step.new, step.contexts
        contexts += known
        if not new:
            alike = plain.setdefault((len(known), step.arrivals), [])
            alike.append((sum(known), step.seconds))
            continue
        tokens = sum(streams[number].prompt_tokens for number in new)
        rows.append(
            StreamedStep(
                *(len(known), len(new), tokens, step.seconds),
                decode_context=float(sum(known)),
                variance_s2=0.0,
                arrivals=step.arrivals,
            )
        )
        if of_step := _delays(step, streams):
            delays.setdefault((len(known), len(new)), []).extend(of_step)
    pooled = [
        row
        for (decodes, arrivals), several in sorted(plain.items())
        for row in _pooled(decodes, arrivals, several)
    ]
    return StreamedSteps(
        gamma,
        (*pooled, *rows),
        tuple(
            _frontend_time(each, decodes, prompts)
            for (decodes, prompts), each in sorted(delays.items())
        ),
        float(np.mean(contexts)) if contexts else 0.0,
        repeat,
    )


class _Delay(NamedTuple):
    """What a request spends outside of steps if it was sent in the middle of one.

    step_s : how long that took
    """

    seconds: float
    step_s: float


def _delays(step: SingleStep, streams: Sequence[Stream]) -> list[_Delay]:
    """Of the requests whose prompt a step read; none where it and the two before may not follow
    each other, since nobody decoded in all of them.
    """
    earlier, began, ended = step.earlier, step.began, step.ended
    if not (
        earlier
        and earlier.whole
        and ended.chunks.keys() & began.chunks.keys() & earlier.chunks.keys()
    ):
        return []
    middle_s, waited_s = (earlier.at_s + began.at_s) / 2, began.at_s - earlier.at_s
    later_s = {number: ended.chunks[number].at_s - ended.at_s for number in step.new}
    return [
        _Delay(middle_s - streams[number].sent_s + each_s, waited_s)
        for number, each_s in later_s.items()
    ]


def _frontend_time(delays: Sequence[_Delay], decodes: int, prompts: int) -> FrontendTime:
    """In the mean; of the variance, what comes of any moment of a step alike is taken off."""
    seconds, step_s = np.array(delays).T
    variance_s2 = _variance(seconds) - float(np.mean(step_s**2) / 12)
    return FrontendTime(float(seconds.mean()), seconds.size, decodes, prompts, variance_s2)


def _variance(seconds: Floats) -> float:
    """Of single ones; a stall counts as ten spreads, or it would be all that is told."""
    middle = np.median(seconds)
    far = _STALL * float(np.median(np.abs(seconds - middle))) / _NORMAL
    return float(np.clip(seconds, middle - far, middle + far).var())


def _pooled(
    decodes: int, arrivals: int, steps: Sequence[tuple[int, float]]
) -> Iterator[StreamedStep]:
    """Two halves of steps, with tokens in the caches and seconds of each, where those differ."""
    # Of as many tokens those are first that came first, however long they took.
    ordered = sorted(steps, key=itemgetter(0))
    middle = len(ordered) // 2 if ordered[0][0] < ordered[-1][0] else 0
    for half in filter(None, (ordered[:middle], ordered[middle:])):
        context, seconds = np.mean(half, axis=0).tolist()
        variance_s2 = _variance(np.array([each for _, each in half]))
        yield StreamedStep(decodes, 0, 0, seconds, len(half), context, variance_s2, arrivals)


def single_steps(streams: Sequence[Stream], gamma: int) -> Iterator[SingleStep]:
    """Those of a server with ``gamma`` draft tokens that served these requests and no others, in
    order of time.
    """
    moments = _moments(streams, gamma)
    sent = np.searchsorted(
        np.sort([each.sent_s for each in streams]),
        [each.at_s for each in moments],
        side="right",
    ).tolist()
    for number, (began, ended) in enumerate(pairwise(moments), start=1):
        decodes = any(not chunk.first for chunk in ended.chunks.values())
        if began.whole and ended.whole and decodes:
            earlier = moments[number - 2] if number > 1 else None
            yield SingleStep(number, earlier, began, ended, sent[number] - sent[number - 1])


def _moments(streams: Sequence[Stream], gamma: int) -> list[Moment]:
    """Chunks that came together, in order of time."""
    # Those of one request stay in their order, also where a client read several at once.
    chunks = sorted(
        (chunk for n, each in enumerate(streams) for chunk in _chunks(n, each, gamma)),
        key=attrgetter("at_s", "request"),
    )
    gaps: Floats = np.concatenate([np.diff(each.chunk_s) for each in streams])
    close = _CLOSE * float(np.quantile(gaps, _SHORT_STEP)) if gaps.size else 0.0
    groups: list[dict[int, Chunk]] = []
    late: set[int] = set()
    latest_s = -inf
    for chunk in chunks:
        again = groups[-1].get(chunk.request) if groups else None
        if again is not None and chunk.at_s - again.at_s < _AT_ONCE_S:
            # A client that was busy read both at once: nobody knows when the first one came.
            late |= {len(groups) - 1, len(groups)}
        if not groups or again is not None or chunk.at_s - latest_s > close:
            groups.append({})
        groups[-1][chunk.request] = chunk
        latest_s = chunk.at_s
    found = []
    running: set[int] = set()
    for place, group in enumerate(groups):
        running |= {number for number, chunk in group.items() if chunk.first}
        joined = place in late or any(chunk.joined for chunk in group.values())
        at_s = min(chunk.at_s for chunk in group.values())
        counts = all(streams[number].counts_from_s <= at_s for number in group)
        whole = counts and running == group.keys() and not joined
        found.append(Moment(at_s, group, whole))
        running -= {number for number, chunk in group.items() if chunk.last}
    return found


def _chunks(number: int, stream: Stream, gamma: int) -> list[Chunk]:
    """Of one request."""
    ends = len(stream.chunk_s) - 1
    if stream.chunk_tokens is None:
        return [
            Chunk(at_s, number, place == 0, place == ends, 0, False)
            for place, at_s in enumerate(stream.chunk_s)
        ]
    emitted = accumulate(stream.chunk_tokens, initial=0)
    return [
        Chunk(
            at_s,
            number,
            place == 0,
            place == ends,
            stream.prompt_tokens + before,
            # The first is of the step that read the prompt.
            tokens > (gamma + 1 if place else 1),
        )
        for place, (at_s, tokens, before) in enumerate(
            zip(stream.chunk_s, stream.chunk_tokens, emitted, strict=False)
        )
    ]
