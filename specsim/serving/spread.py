"""How sure a figure of a simulated run is: over replications, or over batches of one run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import hypot
from multiprocessing import parent_process
from typing import TypeVar

import numpy as np

from specsim.checks import Floats, integer
from specsim.intervals import Interval, t_quantile
from specsim.serving.metrics import Figures, Measured

Outcome = TypeVar("Outcome")

# Processes that share replications.
MOST_WORKERS = 256


def replicate(
    task: Callable[[int], Outcome],
    count: int,
    workers: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """What ``task`` gives for replications 0, 1, ...; the same whatever the number of workers.

    task : with more than one worker it goes to other processes, so it must be picklable
    advance : called behind each
    """

    def told(outcomes: Iterable[Outcome]) -> list[Outcome]:
        found = []
        for each in outcomes:
            found.append(each)
            advance()
        return found

    count = integer("replications", count, low=1)
    workers = integer("workers", workers, low=1, high=MOST_WORKERS)
    if min(workers, count) == 1:
        return told(map(task, range(count)))
    with ProcessPoolExecutor(min(workers, count), initializer=_end_with_parent) as pool:
        return told(pool.map(task, range(count)))


def _end_with_parent() -> None:
    """Of a worker: end once the process that asked is gone, killed maybe, for which it would wait
    for ever: all workers hold both ends of the pipe that tasks come by.
    """

    parent = parent_process()
    assert parent is not None, "of a worker"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def intervals(runs: Sequence[Measured]) -> dict[str, Interval[float]]:
    """Every figure with its 95 % interval.

    Of several replications, which are independent, the figure is their mean and the interval
    Student's.  Of one run the figure is the run's own: the interval of a mean is Student's over the
    means of consecutive batches, that of a percentile from batches drawn with replacement
    (specsim.serving.resampling).  Batches are nearly independent where one is long against the time
    that a queue remembers.  Without either the ends are nan.
    """
    if len(runs) > 1:
        samples: Sequence[Figures] = [each.figures for each in runs]
        return {name: _student(_mean(samples, name), samples, name) for name in samples[0]}
    (run,) = runs
    found = {name: _student(value, run.batches, name) for name, value in run.figures.items()}
    for name, (low, high) in run.percentile_ends.items():
        best = run.figures[name]
        found[name] = Interval(min(low, best), best, max(high, best))
    return found


def widened(
    figures: Mapping[str, Interval[float]], run: Figures, others: Sequence[Figures]
) -> dict[str, Interval[float]]:
    """Intervals that also hold how far figures of one run move where something else is not what it
    is taken for: as chance knows nothing of it, half widths add up in squares.

    run, others : figures as it is taken for, and at its ends, of the same requests and luck
    """
    found = {}
    for name, value in figures.items():
        moved = [each[name] - run[name] for each in others]
        below = hypot(value.best - value.low, min(*moved, 0.0))
        above = hypot(value.high - value.best, max(*moved, 0.0))
        found[name] = _within(name, value.best - below, value.best, value.best + above)
    return found


def _within(name: str, low: float, best: float, high: float) -> Interval[float]:
    """No figure is below 0, and no share above 1."""
    return Interval(max(low, 0.0), best, min(high, 1.0) if name == "good_share" else high)


def _mean(samples: Sequence[Figures], name: str) -> float:
    known = _known(samples, name)
    return float(known.mean()) if known.size else float("nan")


def _known(samples: Sequence[Figures], name: str) -> Floats:
    values = np.array([each.get(name, np.nan) for each in samples], dtype=np.float64)
    return values[~np.isnan(values)]


def _student(best: float, samples: Sequence[Figures], name: str) -> Interval[float]:
    known = _known(samples, name)
    if known.size < 2 or np.isnan(best):
        return Interval(float("nan"), best, float("nan"))
    width = t_quantile(0.95, known.size - 1) * float(known.std(ddof=1) / np.sqrt(known.size))
    return _within(name, best - width, best, best + width)
