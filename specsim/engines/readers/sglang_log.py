"""SGLang's log lines on decoding, as old as March 2025 and as new as 0.5.23.

"Decode batch, #running-req: 3, ..., accept len: 1.67, accept rate: 0.13, ..., gen throughput
(token/s): 183.10, ..." (srt/managers/scheduler_components/metrics_reporter.py).  The length has
the recovered or bonus token in all of them.  The rate was length / draft slots until April 2026
and is (length - 1) / drafts since (sgl-project/sglang pull request 23530), so it is not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median, median_low

from specsim.checks import InvalidArgumentError, SpecsimError
from specsim.counts.drafts import MeanLength
from specsim.counts.steps import StepTime
from specsim.engines.readers.figures import FIGURE, Printed, count
from specsim.engines.readers.notes import SAME_LINES
from specsim.engines.readers.reading import Reading, many

# Newer versions number the batch: "Decode batch [124], ...".
_LINE = re.compile(r"Decode batch\b(?P<fields>.*(?:#running-req|accept len).*)")
_RUNNING = re.compile(rf"#running-req:\s*({FIGURE})")
_LENGTH = re.compile(rf"accept len:\s*({FIGURE})")
_THROUGHPUT = re.compile(rf"gen throughput \(token/s\):\s*({FIGURE})")

_NOTES = (
    "each log line is a window since the line before; lines are weighted by their running requests",
    "the accept rate has two definitions by version and is not used; the draft length is not "
    "printed, so nothing is known by position",
)
# A window whose steps seem so many times as long as those of the usual one holds a rest.
_LONGEST_STEP = 3.0
_STEPS = (
    "step times are running requests times length / throughput of a window, which holds prompts "
    "and idle time too: an upper bound, tight where the server only decoded"
)


def recognises(text: str) -> bool:
    """Whether a text has such log lines."""
    return _LINE.search(text) is not None


def read(text: str) -> list[Reading]:
    """The mean length over all lines, and the step time of every number of running requests."""
    lengths: list[MeanLength] = []
    seconds: dict[tuple[int | None, int], list[float]] = {}
    texts: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.search(line)
        if found is None:
            continue
        texts.append(line)
        try:
            for gamma, running, length, took in _window(found["fields"]):
                if gamma is None:
                    lengths.append(MeanLength(None, length, running, "running requests"))
                if took:
                    seconds.setdefault((gamma, running), []).append(took)
        except SpecsimError as error:
            raise type(error)(f"line {number}: {error}") from None
    steps, rested = [], 0
    for (gamma, running), each in seconds.items():
        usual = median_low(each)
        busy = [took for took in each if took <= _LONGEST_STEP * usual]
        rested += len(each) - len(busy)
        steps.append(StepTime(gamma=gamma, batch=running, seconds=median(busy), steps=len(busy)))
    if not lengths and not steps:
        return []
    lines = len(lengths) or sum(len(each) for each in seconds.values())
    same = [SAME_LINES] * (len(set(texts)) < len(texts))
    return [
        Reading(
            engine="sglang",
            source=many(lines, "log line"),
            span="window",
            length=sum(lengths[1:], lengths[0]) if lengths else None,
            steps=tuple(steps),
            acceptance_law="greedy-drafts" if lengths else None,
            notes=(
                *_NOTES * bool(lengths),
                *[_STEPS] * bool(steps),
                *[f"{many(rested, 'window')} with rests in between left out"] * bool(rested),
                *same,
            ),
        )
    ]


def _window(fields: str) -> Iterator[tuple[int | None, int, float, float]]:
    """gamma, running requests, length and seconds of a step; nothing where none ran.

    gamma is 0 where no length is printed, as without speculation, and else not known.  Seconds are
    0 where no throughput is printed.
    """
    found = _RUNNING.search(fields)
    if found is None:
        raise InvalidArgumentError("the log line lacks '#running-req'; give it whole")
    running = count("#running-req", found[1])
    printed = _LENGTH.search(fields)
    length = Printed.of("accept len", printed[1]).value if printed else 1.0
    if not running or not length:
        return
    rate = _THROUGHPUT.search(fields)
    throughput = Printed.of("gen throughput", rate[1]).value if rate else 0.0
    took = running * length / throughput if throughput else 0.0
    yield (None if printed else 0), running, length, took
