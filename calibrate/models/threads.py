"""How many threads of a CPU a model's plain steps are fastest with, found by a short trial.

As many threads as cores are rarely best: a step waits for the slowest of them, small products are
not worth sharing out, and a core that another program uses holds all of them up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch

from calibrate.decode.encoder_decoder import cached_model
from calibrate.models.place import MOST_THREADS
from specsim.api.progress import Progress, note, quiet
from specsim.checkpoint import Checkpoint

# The most that is tried.
_MOST = MOST_THREADS
# More threads must be faster by this share: a tie is broken by noise, and differently next time.
_CLEARLY = 0.1
_SECONDS, _ROUNDS = 1.5, 15
_CONTEXT = 32


def set_fastest_threads(model: Any) -> int:
    """Set the number of threads that a plain step of ``model`` is fastest with, and return it.

    Takes less than two seconds unless a step takes tenths of one.  OMP_NUM_THREADS is the most
    that is tried, so 1 there leaves nothing to try.
    """
    counts = tried_threads()
    if len(counts) == 1:
        torch.set_num_threads(_MOST)
        return _MOST
    cached = cached_model(model)
    cached.prefill([0] * min(_CONTEXT, cached.context // 2))
    token = torch.zeros((1, 1), dtype=torch.long, device=cached.device)

    @torch.inference_mode()
    def step() -> None:
        cached.read(token)
        cached.forget(1)

    found = fewest_of_the_fastest(_timed(step, counts))
    torch.set_num_threads(found)
    return found


def tried_threads() -> list[int]:
    """The numbers of threads among which ``set_fastest_threads`` finds one."""
    return [count for count in (1, 2, 4, 8, 16, 32, 64) if count < _MOST] + [_MOST]


def fewest_of_the_fastest(seconds: Mapping[int, Sequence[float]]) -> int:
    """The smallest number of threads that no larger one beats clearly.

    seconds : of the same step, by number of threads
    """
    medians = {count: median(seconds[count]) for count in sorted(seconds)}
    best = min(medians.values())
    return next(count for count, each in medians.items() if (1 - _CLEARLY) * each <= best)


def keep_threads(checkpoint: Checkpoint, progress: Progress = quiet) -> int:
    """Those of the run's first part, which are set again: a trial may find others next time, and
    run times of two numbers of threads are not to be mixed.

    Says so as a note of ``progress`` where there are others now, asked for or found.
    """
    now = torch.get_num_threads()
    threads: int = checkpoint.keep_json("threads.json", lambda: now)
    if threads != now:
        note(
            progress,
            f"goes on with threads {threads}, as it began, not {now}; to measure with {now}, "
            f"remove {checkpoint.folder} and start again",
        )
    torch.set_num_threads(threads)
    return threads


def _timed(
    step: Callable[[], None], counts: Sequence[int], seconds: float = _SECONDS
) -> dict[int, list[float]]:
    """Seconds of steps with each number of threads, in turns, after one that starts the threads."""
    found: dict[int, list[float]] = {count: [] for count in counts}
    began = time.perf_counter()
    for number in range(_ROUNDS):
        for count in counts:
            torch.set_num_threads(count)
            step()
            before = time.perf_counter()
            step()
            found[count].append(time.perf_counter() - before)
        if number and time.perf_counter() - began > seconds:
            break
    return found
