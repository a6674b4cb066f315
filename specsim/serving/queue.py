"""The queue of those that wait, and the plan of a step (compiled)."""

from __future__ import annotations

import numpy as np

from specsim.serving.compiled import inlined, inner
from specsim.serving.engines.settings import EngineSettings
from specsim.serving.state import State


@inner
def append_waiting(state: State, request: int) -> None:
    """To the end."""
    replica = state.replica[0]
    state.queue[(replica.queue_first + replica.queued) % state.queue.size] = request
    replica.queued += 1


@inner
def prepend_waiting(state: State, request: int) -> None:
    """To the front."""
    replica = state.replica[0]
    replica.queue_first = (replica.queue_first - 1) % state.queue.size
    state.queue[replica.queue_first] = request
    replica.queued += 1


@inner
def pop_waiting(state: State) -> int:
    """The first."""
    replica = state.replica[0]
    request: int = state.queue[replica.queue_first]
    replica.queue_first = (replica.queue_first + 1) % state.queue.size
    replica.queued -= 1
    return request


@inner
def remove_waiting(state: State, request: int) -> None:
    """Wherever it is."""
    replica = state.replica[0]
    size, first = state.queue.size, replica.queue_first
    kept = 0
    for at in range(replica.queued):
        other = state.queue[(first + at) % size]
        if other != request:
            state.queue[(first + kept) % size] = other
            kept += 1
    replica.queued = kept


@inlined
def add_to_plan(state: State, request: int, tokens: int, drafts: int) -> None:
    """Have a step compute ``tokens`` of a request, of which the last ``drafts`` are verified."""
    turn = state.replica[0].turn
    place = state.plan[turn, state.steps[turn].size]
    place.request = request
    place.tokens = tokens
    place.drafts = drafts
    place.before = state.requests[request].computed
    state.steps[turn].size += 1


@inner
def first_scheduled(state: State, request: int, now: float, cached: int) -> None:
    """Remember when a request first ran, and how much of its prompt it found in the cache."""
    own = state.requests[request]
    if np.isnan(own.scheduled_s):
        own.scheduled_s = now
        own.cached = cached


@inlined
def count_planned(state: State, settings: EngineSettings, gamma: int) -> None:
    """Count as computed what is planned; who samples a token gets ``gamma`` drafts for the next."""
    turn = state.replica[0].turn
    size = state.steps[turn].size
    row, requests = state.plan[turn], state.requests
    for at in range(size):
        plan = row[at]
        own = requests[plan.request]
        own.computed += plan.tokens
        own.in_flight += plan.tokens
        known = own.prompt + own.emitted + own.placeholders
        samples = own.computed >= known
        plan.samples = samples
        if samples:
            own.drafts = gamma
            if settings.asynchronous:
                own.placeholders += 1 + plan.drafts
