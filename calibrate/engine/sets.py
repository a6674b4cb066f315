"""Sets of requests that servers of an engine decode, timed in repeats over all settings.

Machines drift, so servers of all draft lengths run side by side and decode the same set one after
the other, plain decoding twice as often; sets of a repeat come in random order, and so do the draft
lengths of each.  Of sets in one repeat the ratio of seconds is what is kept.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from calibrate.engine.asked import Asked
from calibrate.engine.client import Client, counted, counter
from calibrate.models.busy import CpuTimes
from specsim.checkpoint import Checkpoint
from specsim.counts.drafts import DraftCounts

# Of each batch in a repeat, if nothing is said.  Sets of 16 requests have more steps than sets of
# one, and still stand for a few seconds of a machine that may stall for as long.
_SETS = 4
_WARM_TOKENS = 8
# Workers of vLLM in processes of their own look out for work for a second after their last step,
# each with all of a core (distributed/device_communicators/shm_broadcast.py), which the next server
# would lack.  Others rest at once.
_RESTED_S, _LOOK_S = 1.3, 0.1
_RESTING_CORES = 0.2
_FIRST_TOKENS_S = "vllm:time_to_first_token_seconds_sum"


@dataclass(frozen=True)
class TimedSet:
    """One set of requests, sent at once to the server of one draft length.

    requests : their numbers among those that are asked
    seconds : from sending to the last answer
    first_s : until the first token, mean over the requests
    rounds : that the server counted; None without drafts
    texts : of the requests, above temperature 0; None where they are known
    """

    gamma: int
    batch: int
    requests: tuple[int, ...]
    seconds: float
    first_s: float
    rounds: float | None
    texts: list[list[int]] | None = None


def request_sets(batch: int, requests: int, start: int, sets: int = _SETS) -> list[tuple[int, ...]]:
    """So many sets of one batch, from request ``start`` on and in a circle if they are too few."""
    return [
        tuple((start + number * batch + place) % requests for place in range(batch))
        for number in range(sets)
    ]


def count_drafts(
    clients: Mapping[int, Client], asked: Asked, together: int, checkpoint: Checkpoint
) -> list[DraftCounts]:
    """What the servers count of their drafts over all requests, by draft length, shortest first."""
    sampling = asked.check.workload.measured.sampling

    def measured() -> list[DraftCounts]:
        found = []
        for gamma, client in clients.items():
            done = client.complete(asked.prompts, asked.tokens, sampling, together)
            if gamma:
                # Counters tell the length only where every round has all of its drafts.
                counts = counted(done.before, done.after, client.where)
                found.append(replace(counts, gamma=gamma))
        return found

    every: list[DraftCounts] = checkpoint.keep_json("counts.json", measured, list[DraftCounts])
    return every


def timed_repeats(
    clients: Mapping[int, Client],
    asked: Asked,
    sets_of: Callable[[int], Mapping[int, Sequence[tuple[int, ...]]]],
    repeats: range,
    seed: int,
    checkpoint: Checkpoint,
    advance: Callable[[int], None] = lambda repeat: None,
    behind_each: Callable[[], None] = lambda: None,
) -> list[list[TimedSet]]:
    """All sets on the servers of all draft lengths, repeat by repeat; ``advance`` behind each.

    clients : by draft length, 0 among them
    sets_of : of a repeat, by batch
    repeats : their numbers
    checkpoint : keeps each repeat that is done
    behind_each : called behind each set
    """
    for client in clients.values():
        _warm(client, asked, sets_of(0))
    found = []
    for repeat in repeats:
        settings = _in_order(sets_of(repeat), (0, *clients), random.Random(f"{seed} {repeat}"))

        def measured(order: Sequence[tuple[int, int, tuple[int, ...]]] = settings) -> object:
            done = []
            for gamma, batch, requests in order:
                done.append(time_set(clients[gamma], asked, gamma, batch, requests))
                behind_each()
            return done

        found.append(checkpoint.keep_json(_name(repeat), measured, list[TimedSet]))
        advance(repeat)
    return found


def _in_order(
    sets: Mapping[int, Sequence[tuple[int, ...]]], gammas: Sequence[int], order: random.Random
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Draft length, batch and requests of each set of a repeat, those of one set beside each other:
    what slows the machine for half a minute slows all of them.

    order : of a seed of the repeat's own, so that a run that goes on has the order of one that was
        not killed
    """
    blocks = [(batch, requests) for batch, several in sets.items() for requests in several]
    order.shuffle(blocks)
    return [
        (gamma, batch, requests)
        for batch, requests in blocks
        for gamma in order.sample(gammas, len(gammas))
    ]


def timed_by_starts(
    clients: Callable[[], AbstractContextManager[Mapping[int, Client]]],
    asked: Asked,
    sets_of: Callable[[int], Mapping[int, Sequence[tuple[int, ...]]]],
    repeats: int,
    starts: int,
    seed: int,
    checkpoint: Checkpoint,
    advance: Callable[[int], None] = lambda repeat: None,
    behind_each: Callable[[], None] = lambda: None,
) -> list[list[TimedSet]]:
    """The same on servers that are started anew ``starts`` times, each time for as many repeats as
    nearly as can be: servers of one configuration are not equally fast.

    clients : starts them, and stops them again; called only where there is something to time
    """
    found = []
    ends = [repeats * number // starts for number in range(starts + 1)]
    for block in map(range, ends, ends[1:]):
        kept = all(_name(repeat) in checkpoint for repeat in block)
        with nullcontext({}) if kept else clients() as running:
            found += timed_repeats(
                running, asked, sets_of, block, seed, checkpoint, advance, behind_each
            )
    return found


def _name(repeat: int) -> str:
    """Of the item of a checkpoint."""
    return f"repeat-{repeat}.json"


def begun_seed(seed: int, repeats: int, checkpoint: Checkpoint, *, check: bool) -> int:
    """Of the random numbers of engines that go on with a run: of those after a kill another one,
    or they would draw what was drawn before.

    check : whether they judge what other engines were timed for, of the same seed maybe
    """
    names = ("counts.json", *map(_name, range(repeats)))
    done = sum(name in checkpoint for name in names)
    return 2000 * seed + 1000 * check + done


def time_set(
    client: Client, asked: Asked, gamma: int, batch: int, requests: tuple[int, ...]
) -> TimedSet:
    """Send a set at once and wait for all of it."""
    rest()
    done = client.complete(
        [asked.prompts[number] for number in requests],
        [asked.tokens[number] for number in requests],
        asked.check.workload.measured.sampling,
        len(requests),
    )
    first_s = counter(done.after, _FIRST_TOKENS_S, client.where)
    first_s -= counter(done.before, _FIRST_TOKENS_S, client.where)
    rounds = counted(done.before, done.after, client.where).rounds if gamma else None
    texts = None if asked.check.sampling.greedy else done.texts
    return TimedSet(gamma, batch, requests, done.seconds, first_s / len(requests), rounds, texts)


def rest(look: Callable[[], CpuTimes] = CpuTimes.now) -> None:
    """Wait until the servers that were asked before rest, as long as that takes at most.

    look : what the processors have done so far
    """
    before = look()
    end_s = before.at_s + _RESTED_S
    while before.at_s < end_s:
        time.sleep(_LOOK_S)
        now = look()
        if now.own_s - before.own_s < _RESTING_CORES * (now.at_s - before.at_s):
            return
        before = now


def _warm(client: Client, asked: Asked, sets: Mapping[int, Sequence[tuple[int, ...]]]) -> None:
    """A few tokens of every batch, whose requests end one after another: the first runs of a server
    are slow, each width anew.
    """
    sampling = asked.check.workload.measured.sampling
    for requests, *_ in sets.values():
        prompts = [asked.prompts[number] for number in requests]
        tokens = [
            min(_WARM_TOKENS + place, asked.tokens[number]) for place, number in enumerate(requests)
        ]
        client.complete(prompts, tokens, sampling, len(prompts))
