"""What a request takes of the step that it is sent in, from steps that an engine did under load."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsim.counts.steps import StreamedStep, StreamedSteps


def seconds_of_arrivals(streamed: Sequence[StreamedSteps]) -> float:
    """Seconds by which a step is longer for each request that is sent while it runs; 0 where nobody
    tells.
    """
    found = [_longer(each) for each in streamed]
    known = sum(tells for _, tells in found)
    return max(sum(longer_s for longer_s, _ in found) / known, 0.0) if known else 0.0


def _longer(streamed: StreamedSteps) -> tuple[float, float]:
    """How much longer steps without prompts are in which one request is sent, seconds, times how
    much that tells, and how much it tells; steps in which nobody is sent, as many decode, and the
    caches hold as much are what they are held against.

    Several are sent in few steps, and stalls are long enough to be among those.
    """
    groups: dict[int, tuple[list[StreamedStep], list[StreamedStep]]] = {}
    for step in streamed.steps:
        if not step.prompts and step.arrivals in (0, 1):
            groups.setdefault(step.decodes, ([], []))[step.arrivals].append(step)
    token_s = _of_caches([nobody for nobody, _ in groups.values() if nobody])
    longer_s = known = 0.0
    for nobody, one in groups.values():
        calm, seen = (sum(each.steps for each in some) for some in (nobody, one))
        if calm == len(nobody) or not seen:  # nobody tells how far single ones scatter
            continue
        (calm_s, calm_context), (seen_s, seen_context) = map(_means, (nobody, one))
        squares = sum(each.steps * (each.variance_s2 or 0.0) for each in nobody)
        by_chance_s = squares / (calm - len(nobody)) / calm_s
        by_caches_s = token_s * (seen_context - calm_context)
        tells = calm * seen / (calm + seen)
        longer_s += tells * (seen_s - calm_s - by_chance_s - by_caches_s)
        known += tells
    return longer_s, known


def _of_caches(groups: Sequence[Sequence[StreamedStep]]) -> float:
    """Seconds of a token in the caches, from steps of each group among themselves."""
    both = squares = 0.0
    for alike in groups:
        mean_s, mean_context = _means(alike)
        for step in alike:
            more = step.decode_context - mean_context
            both += step.steps * more * (step.seconds - mean_s)
            squares += step.steps * more**2
    return both / squares if squares else 0.0


def _means(steps: Sequence[StreamedStep]) -> tuple[float, float]:
    """Seconds of one of them, and tokens in its caches."""
    rows = [(each.seconds, each.decode_context) for each in steps]
    seconds, context = np.average(rows, axis=0, weights=[each.steps for each in steps]).tolist()
    return seconds, context
