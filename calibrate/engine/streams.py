"""Steps of servers under load: clients that send one request after another, from one of them to as
many as are decoded together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calibrate.engine.asked import Asked
from calibrate.engine.client import Client, EngineClient
from calibrate.engine.load_client import stream
from calibrate.engine.prompts import piece
from calibrate.engine.sets import rest
from specsim.checkpoint import Checkpoint
from specsim.counts.steps import StreamedSteps
from specsim.counts.streamed_law import batch_levels
from specsim.counts.streams import Stream, streamed_steps

# Requests of each client, and at least so many together.
_EACH, _LEAST = 4, 8
# A client waits up to so long before its next request, and up to so many steps, so that requests
# come at any moment of one.  The most clients wait for steps alone: of as many that wait for longer
# hardly ever all decode, and steps of the largest batch are what a saturated server does.
_WAIT_S, _WAIT_STEPS = 0.1, 4.0
# A server that has rested is slower at first: in the serving study steps of the first quarter of a
# second took 4 % more than those after three seconds on one day and 9 % on another, on which those
# of the second took 3 % more (``benchmarks/loaded_steps.py``).  Of a short load no more than this
# share is left out.
_COLD_S, _COLD_SHARE = 0.5, 0.25
# Outputs go from this share of the recorded text to all of it.
_SHORTEST = 0.125


def time_streams(
    clients: Mapping[int, Client],
    asked: Asked,
    tokenizer: Any,
    clients_most: int,
    context: int,
    repeat: int,
    seed: int,
    checkpoint: Checkpoint,
    behind_each: Callable[[], None] = lambda: None,
) -> list[StreamedSteps]:
    """What clients of the servers of all draft lengths see of their steps; none of engines that do
    not stream.  Repeats take every other number of clients by turns, and always the most.  Machines
    drift over seconds, so that so many clients load all servers one after another, in random order,
    before others do.

    Prompts are pieces of what the profile's prompts are together, in the mean as long as those;
    outputs are parts of the recorded texts.  Prompts are sent as text, as users send them, so that
    what a server takes to tokenize them is part of what a request spends outside of steps.

    tokenizer : of the models
    clients_most : clients at once, up to
    context : tokens of a request, at most
    checkpoint : keeps a repeat that is done
    behind_each : called behind each load
    """
    order = random.Random(f"streams {seed} {repeat}")
    servers = [
        (gamma, client) for gamma, client in clients.items() if isinstance(client, EngineClient)
    ]
    # With one client alone no prompt is read beside another request.
    most = max(clients_most, 2)
    levels = batch_levels(most)
    levels = sorted({*levels[repeat % 2 :: 2], most})

    def measured() -> list[StreamedSteps]:
        streams: dict[int, list[Stream]] = {gamma: [] for gamma, _ in servers}
        for together in levels:
            order.shuffle(servers)
            for gamma, client in servers:
                rest()
                wait_s = _wait_s(streams[gamma], together == most)
                ramp_s = _lasted_s(streams[gamma])
                streams[gamma] += _load(
                    client, asked, tokenizer, together, context, wait_s, ramp_s, order
                )
                behind_each()
        return [streamed_steps(each, gamma, repeat) for gamma, each in streams.items()]

    kept: list[StreamedSteps] = checkpoint.keep_json(
        f"streams-{repeat}.json", measured, list[StreamedSteps]
    )
    return kept


def _wait_s(streams: Sequence[Stream], are_most: bool) -> float:
    """Longer than the steps of before; of the most clients not much longer."""
    gaps = [gap for each in streams for gap in np.diff(each.chunk_s)]
    if not gaps:
        return _WAIT_S
    steps_s = _WAIT_STEPS * float(np.median(gaps))
    return steps_s if are_most else max(_WAIT_S, steps_s)


def _lasted_s(streams: Sequence[Stream]) -> float:
    """A request of before, in the mean."""
    return float(np.mean([each.chunk_s[-1] - each.sent_s for each in streams])) if streams else 0.0


def _load(
    client: EngineClient,
    asked: Asked,
    tokenizer: Any,
    together: int,
    context: int,
    wait_s: float,
    ramp_s: float,
    order: random.Random,
) -> list[Stream]:
    """So many clients at once, who wait up to ``wait_s``.

    They begin one after another over ``ramp_s``, as they go on later.  While a server takes in
    requests that come all at once, it is late with its chunks, and steps with a prompt, which are
    then most of them, look longer.
    """
    # A server puts a BOS token before every text itself.
    first = tokenizer.bos_token_id
    text = [token for prompt in asked.prompts for token in prompt if token != first]
    longest = 2 * len(text) // len(asked.prompts) - 1
    prompts, tokens = [], []
    for _ in range(max(_EACH * together, _LEAST)):
        recorded = order.choice(asked.tokens)
        tokens.append(order.randint(max(round(_SHORTEST * recorded), 2), recorded))
        room = context - tokens[-1]
        some = piece(text, order.randint(2, max(min(longest, room), 2)), order)
        prompts.append(_as_text(some, tokenizer, room))
    sampling = asked.check.workload.measured.sampling
    waits_s = [wait_s * order.random() for _ in prompts]
    for number in range(together):
        waits_s[number] += ramp_s * number / together
    found = stream(client, prompts, tokens, sampling, together, waits_s)
    begun_s = min(each.sent_s for each in found)
    lasted_s = max(each.chunk_s[-1] for each in found) - begun_s
    warm_s = begun_s + min(_COLD_S, _COLD_SHARE * lasted_s)
    return [replace(each, counts_from_s=warm_s) for each in found]


def _as_text(tokens: Sequence[int], tokenizer: Any, room: int) -> str:
    """These tokens as a text.  Where the text has more of them than there is room for, as it may
    when it is read again, it is cut.
    """
    text: str = tokenizer.decode(tokens)
    while len(tokens) > 1 and len(tokenizer(text, verbose=False)["input_ids"]) > room:
        tokens = tokens[1:]
        text = tokenizer.decode(tokens)
    return text
