"""Steps of a server under load, told from when its clients got their tokens.

Every step of a request ends with one streamed chunk, and all requests of a step get theirs in the
same moment, so that what lies between two such moments is a step, whoever decoded or had a prompt
read in it.  A step counts only where all of its requests are seen in it and in the one before.

A request that arrives while a step runs waits for its end.  With d seconds of it outside of all
steps, it becomes part of the first step that begins d after it was sent, or later; where requests
are sent at any moment of a step alike, the moment at which it could have begun is, in the mean, the
middle of the step that it waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from specsim.checks import Floats, UnsupportedError
from specsim.counts.steps import StreamedStep, StreamedSteps

# Chunks of one step lie closer together than this share of a short step.
_SHORT_STEP = 0.02
_CLOSE = 0.5
# More tokens of a chunk than a step can have, in the mean, as a factor.
_JOINED = 1.1


@dataclass(frozen=True)
class Stream:
    """A request as its client saw it, in seconds of one clock.

    prompt_tokens, tokens : of its prompt and of the answer
    sent_s : when it was sent
    chunk_s : when each chunk came, one for every step; rising
    """

    prompt_tokens: int
    tokens: int
    sent_s: float
    chunk_s: tuple[float, ...]


class _Moment(NamedTuple):
    """The end of a step: when its first chunk came, and the numbers of the requests in it."""

    at_s: float
    requests: frozenset[int]


def streamed_steps(streams: Sequence[Stream], gamma: int, repeat: int = 0) -> StreamedSteps:
    """The steps of a server that served these requests and no others, none of which had to wait for
    its turn.

    Steps without a prompt are pooled by how many decoded, as plain means, since the long ones are
    part of what requests wait for; each other one is a row.
    """
    _check_chunks(streams, gamma)
    moments = _moments(streams)
    first, last = _ends(moments)
    # All that have begun and are not done get a chunk in every step, unless they were preempted.
    whole = [
        all(number in moment.requests for number in _running(first, last, place))
        for place, moment in enumerate(moments)
    ]
    plain: dict[int, list[float]] = {}
    rows, delays = [], []
    for place, (before, moment) in enumerate(pairwise(moments), start=1):
        new = [number for number in moment.requests if first[number] == place]
        decodes = len(moment.requests) - len(new)
        if not (whole[place - 1] and whole[place] and decodes):
            continue
        seconds = moment.at_s - before.at_s
        if not new:
            plain.setdefault(decodes, []).append(seconds)
            continue
        tokens = sum(streams[number].prompt_tokens for number in new)
        rows.append(StreamedStep(decodes, len(new), tokens, seconds))
        # Somebody decoded in this step and in the one before, so that both follow each other.
        if place > 1 and before.requests & moments[place - 2].requests & moment.requests:
            middle = (before.at_s + moments[place - 2].at_s) / 2
            delays += [middle - streams[number].sent_s for number in new]
    pooled = [
        StreamedStep(decodes, 0, 0, float(np.mean(seconds)), len(seconds))
        for decodes, seconds in sorted(plain.items())
    ]
    delay_s = max(float(np.mean(delays)), 0.0) if delays else 0.0
    return StreamedSteps(gamma, (*pooled, *rows), delay_s, len(delays), repeat)


def _check_chunks(streams: Sequence[Stream], gamma: int) -> None:
    """Refuse what was not streamed step by step; servers that lag join a few chunks."""
    chunks = sum(len(each.chunk_s) for each in streams)
    tokens = sum(each.tokens for each in streams)
    if tokens > _JOINED * (gamma + 1) * chunks:
        raise UnsupportedError(
            f"chunks have {tokens / chunks:.1f} tokens in the mean, and a step with {gamma} draft "
            f"tokens has at most {gamma + 1}: the engine must stream every step (--stream-interval "
            "1)"
        )


def _moments(streams: Sequence[Stream]) -> list[_Moment]:
    """Chunks that came together, in order of time."""
    chunks = sorted((at, number) for number, each in enumerate(streams) for at in each.chunk_s)
    gaps: Floats = np.concatenate([np.diff(each.chunk_s) for each in streams])
    close = _CLOSE * float(np.quantile(gaps, _SHORT_STEP)) if gaps.size else 0.0
    found: list[_Moment] = []
    begun, seen, latest = 0.0, set[int](), -np.inf
    for at, number in chunks:
        if seen and (number in seen or at - latest > close):
            found.append(_Moment(begun, frozenset(seen)))
            seen = set()
        if not seen:
            begun = at
        seen.add(number)
        latest = at
    if seen:
        found.append(_Moment(begun, frozenset(seen)))
    return found


def _ends(moments: Sequence[_Moment]) -> tuple[dict[int, int], dict[int, int]]:
    """The places of the first and of the last chunk of every request."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, moment in enumerate(moments):
        for number in moment.requests:
            first.setdefault(number, place)
            last[number] = place
    return first, last


def _running(first: dict[int, int], last: dict[int, int], place: int) -> list[int]:
    return [number for number, start in first.items() if start <= place <= last[number]]
