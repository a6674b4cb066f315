"""How long prompts of some lengths take on servers of an engine that have nothing else to do."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import chain, cycle, islice

from calibrate.engine.asked import Asked
from calibrate.engine.client import Client, counter
from calibrate.engine.sets import rest
from specsim.checkpoint import Checkpoint
from specsim.counts.steps import PromptTime

# Prompts of each length in a repeat.
_EACH = 3
_PREFILL_S = "vllm:request_prefill_time_seconds_sum"


def time_prompts(
    clients: Mapping[int, Client],
    asked: Asked,
    lengths: Sequence[int],
    repeat: int,
    seed: int,
    checkpoint: Checkpoint,
) -> list[PromptTime]:
    """Prompts of every length on the servers of all draft lengths, one after another, server by
    server in random order; texts are pieces of what the profile's prompts are together.  The first
    of each length on a server is slow and does not count.

    checkpoint : keeps a repeat that is done
    """
    order = random.Random(f"prompts {seed} {repeat}")
    gammas = list(clients)
    order.shuffle(gammas)
    text = list(chain.from_iterable(asked.prompts))

    def measured() -> list[PromptTime]:
        found = []
        for gamma in gammas:
            rest()
            counted = _EACH * list(lengths)
            order.shuffle(counted)
            times = [
                _time(clients[gamma], asked, gamma, piece(text, length, order), repeat)
                for length in (*lengths, *counted)
            ]
            found += times[len(lengths) :]
        return found

    found: list[PromptTime] = checkpoint.keep_json(
        f"prompts-{repeat}.json", measured, list[PromptTime]
    )
    return found


def piece(text: Sequence[int], length: int, order: random.Random) -> list[int]:
    """Of a text that begins again at its end."""
    start = order.randrange(len(text))
    return list(islice(cycle(text), start, start + length))


def _time(
    client: Client, asked: Asked, gamma: int, prompt: Sequence[int], repeat: int
) -> PromptTime:
    done = client.complete([prompt], [1], asked.check.workload.measured.sampling, 1)
    seconds = counter(done.after, _PREFILL_S, client.where)
    seconds -= counter(done.before, _PREFILL_S, client.where)
    return PromptTime(gamma, len(prompt), seconds, done.seconds, repeat)
