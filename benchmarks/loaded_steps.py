"""Steps of a server under load beside what was timed before, and how slow its seconds are.

    python -m benchmarks.loaded_steps studies/measured/serving/profile.json

Of every run of the serving study with one draft length, over what the timing of its pass says of as
many decodes, prompts and arrivals, less one: by draft length, steps without a prompt and steps with
some, by how many requests are in them. Then those with a prompt again, by how many steps before the
same load had one of the same width, the tokens that a step runs at once. Then steps that begin so
many seconds behind the first request of a load, over those of later than three, each over what it
was to take; how far windows of so many seconds scatter about the mean of their load (standard
deviation); how far off whole loads are (root mean square) by the timing of their pass, by that and
the one before, and by all until then; and how many plain steps of the largest batch a timing has of
each draft length.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specsim.counts.file import read_acceptance
from specsim.counts.steps import StreamedStep, StreamedSteps
from specsim.counts.streamed_costs import StreamedCosts
from specsim.counts.streams import single_steps
from studies.serving import settings
from studies.serving.bench import streams_of
from studies.serving.files import LoadFiles
from studies.serving.settings import Setting
from studies.serving.steps import tells_steps

_BATCHES = (4, 12, 15, settings.MAX_NUM_SEQS)
_WINDOWS_S = (1, 2, 4)
# Seconds of a load: at first, and when it has long begun.
_FIRST_S, _LATE_S = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0), 3.0
# Timings that tell what comes: so many of the last ones.
_POOLED = (1, 2, settings.PASSES)
# Steps since one of the same width; beyond them, or never in this load, is another row.
_SINCE = (32, 128)
# Fewer steps do not tell what a second is like.
_FEWEST = 20


class Seen(NamedTuple):
    """A step: when it began, since its load did, how long it took, and was to take.

    width : tokens that it ran at once
    reads : whether any are of a prompt
    """

    at_s: float
    requests: int
    width: int
    reads: bool
    seconds: float
    expected_s: float


def steps_of(files: LoadFiles, setting: Setting, number: int) -> list[tuple[float, StreamedStep]]:
    """Those of a run that were seen whole, and when they began, since their load did."""
    streams = streams_of(json.loads(files.run(setting, number).read_text()))
    gamma, begun_s = setting.drafting.policy.gamma_max, min(each.sent_s for each in streams)
    found = []
    for each in single_steps(streams, gamma):
        prompts = [streams[number].prompt_tokens for number in each.new]
        counts = len(each.contexts), len(prompts), sum(prompts)
        step = StreamedStep(*counts, each.seconds, arrivals=each.arrivals)
        found.append((each.began.at_s - begun_s, step))
    return found


def beside(
    steps: Sequence[tuple[float, StreamedStep]], gamma: int, costs: StreamedCosts
) -> list[Seen]:
    """The same beside what they were to take."""
    return [
        Seen(
            *(at_s, step.requests, step.decodes * (gamma + 1) + step.prompt_tokens),
            *(step.prompts > 0, step.seconds, costs.expected_s(gamma, step)),
        )
        for at_s, step in steps
    ]


def by_recency(loads: list[list[Seen]]) -> list[tuple[int, float]]:
    """How many steps with a prompt there are of each row of ``_SINCE`` and beyond, and how much
    longer they took than they were to.
    """
    sums = np.zeros((len(_SINCE) + 1, 3))
    for steps in loads:
        last: dict[int, int] = {}
        for number, each in enumerate(steps):
            if each.reads:
                since = number - last.get(each.width, -_SINCE[-1])
                sums[np.searchsorted(_SINCE, since, side="right")] += (
                    1,
                    each.seconds,
                    each.expected_s,
                )
            last[each.width] = number
    return [(int(count), float(s / expected_s - 1)) for count, s, expected_s in sums]


def windows(steps: list[Seen], width_s: float) -> Iterator[tuple[int, float]]:
    """The number of each, and its steps over what they were to take, in the mean of the load."""
    sums: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for each in steps:
        sums[int(each.at_s // width_s)].append((each.seconds, each.expected_s))
    whole = np.sum([(each.seconds, each.expected_s) for each in steps], axis=0)
    for number, some in sums.items():
        if len(some) >= _FEWEST:
            seconds, expected_s = np.sum(some, axis=0)
            yield number, float(seconds / expected_s / (whole[0] / whole[1]) - 1)


def at_first(loads: list[list[Seen]], low_s: float, high_s: float) -> float:
    """Steps that begin between these seconds, over those of loads that have long begun, less 1."""
    seconds = expected_s = 0.0
    for steps in loads:
        late = [(each.seconds, each.expected_s) for each in steps if each.at_s >= _LATE_S]
        if not late:
            continue
        late_s, late_expected_s = np.sum(late, axis=0)
        some = [each for each in steps if low_s <= each.at_s < high_s]
        seconds += sum(each.seconds for each in some) * late_expected_s / late_s
        expected_s += sum(each.expected_s for each in some)
    return float(seconds / expected_s - 1)


def log_longer(steps: list[Seen]) -> float:
    """How much longer those of a load took than they were to, as a logarithm."""
    seconds, expected_s = np.sum([(each.seconds, each.expected_s) for each in steps], axis=0)
    return float(np.log(seconds / expected_s))


def main() -> None:
    files = LoadFiles(Path(sys.argv[1]))
    runs: dict[str, list[list[Seen]]] = defaultdict(list)
    full: dict[int, list[int]] = defaultdict(list)
    logs: dict[int, list[float]] = defaultdict(list)
    timings: list[list[StreamedSteps]] = []
    for number in range(settings.PASSES):
        streamed = read_acceptance(files.timed(number)).streamed_steps()
        timings.append(streamed)
        several = {
            last: StreamedCosts(tuple(chain.from_iterable(timings[-last:]))) for last in _POOLED
        }
        costs = several[1]
        for gamma, law in costs.laws.items():
            alike = [each for one in streamed if one.gamma == gamma for each in one.steps]
            largest = [each for each in alike if each.decodes == law.batches[-1]]
            full[gamma].append(sum(each.steps for each in largest if not each.prompts))
        for setting in settings.SETTINGS:
            if tells_steps(setting.drafting):
                steps, gamma = steps_of(files, setting, number), setting.drafting.policy.gamma_max
                runs[setting.drafting.name].append(beside(steps, gamma, costs))
                for last, of_last in several.items():
                    logs[last].append(log_longer(beside(steps, gamma, of_last)))
    ends = "".join(f"{f'..{each}':>8}" for each in _BATCHES)
    print(f"{'over what was timed':24}{ends}")
    for name, loads in sorted(runs.items()):
        for reads in (False, True):
            print(f"{name:8}{'with a prompt' if reads else 'plain':16}", end="")
            for low, high in pairwise((0, *_BATCHES)):
                some = np.array(
                    [
                        (each.seconds, each.expected_s)
                        for steps in loads
                        for each in steps
                        if each.reads == reads and low < each.requests <= high
                    ]
                )
                seconds, expected_s = some.sum(axis=0)
                print(f"{seconds / expected_s - 1:+8.3f}", end="")
            print()
    print("with a prompt, by steps since the same width")
    for name, loads in sorted(runs.items()):
        rows = by_recency(loads)
        below = "".join(
            f"  below {each}: {longer:+.3f} of {count}"
            for each, (count, longer) in zip(_SINCE, rows, strict=False)
        )
        print(f"{name:8}{below}  longer ago, or never: {rows[-1][1]:+.3f} of {rows[-1][0]}")
    every = [steps for loads in runs.values() for steps in loads]
    print(f"at first, over later than {_LATE_S:g} s, of {len(every)} loads")
    for low_s, high_s in pairwise(_FIRST_S):
        print(f"{low_s:6.2f} to {high_s:.2f} s {at_first(every, low_s, high_s):+.3f}")
    for width_s in _WINDOWS_S:
        off = [each for steps in every for _, each in windows(steps, width_s)]
        print(f"windows of {width_s} s scatter by {np.std(off):.3f}")
    for last, values in logs.items():
        found = np.sqrt(np.mean(np.square(values)))
        print(f"loads are {found:.3f} off by the last {last} timings")
    for gamma, counts in sorted(full.items()):
        print(
            f"k{gamma}: {min(counts)} to {max(counts)} plain steps of the largest batch in a timing"
        )


if __name__ == "__main__":
    main()
