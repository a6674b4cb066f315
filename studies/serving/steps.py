"""Steps of the servers under load, told from when the benchmark got its chunks."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate
from typing import Any

import msgspec

from specsim.counts.file import AcceptanceFile, read_acceptance, timed_streams
from specsim.counts.steps import StreamedSteps
from specsim.counts.streams import Stream, streamed_steps
from studies.serving import settings
from studies.serving.files import LoadFiles
from studies.serving.settings import Drafting, Setting, fixed


def tells_steps(drafting: Drafting) -> bool:
    """Not where draft lengths change with the batch, or requests are preempted: there chunks do not
    tell what a step did.
    """
    return len(drafting.schedule) <= 1 and drafting.blocks is None


def loaded_steps(said: dict[str, Any], drafting: Drafting) -> StreamedSteps:
    """Those of a run of ``vllm bench serve`` whose requests were all seen.

    The benchmark does not say how many tokens a chunk has, so that chunks which a server joined
    pass for one step's, and contexts are not known.
    """
    streams = []
    names = ("input_lens", "start_times", "ttfts", "itls")
    for prompt, sent_s, ttft_s, itl_s in zip(*(said[name] for name in names), strict=True):
        chunks = tuple(accumulate(itl_s, initial=sent_s + ttft_s))
        streams.append(Stream(prompt, sent_s, chunks, (1,) * len(chunks)))
    return replace(streamed_steps(streams, drafting.policy.gamma_max, 0), context=0.0)


def own_steps(files: LoadFiles, number: int) -> AcceptanceFile | None:
    """The file of steps that were timed before a pass, with those of the pass in their place, and
    what requests spent outside of them at the lightest rate of its round, where they do not wait;
    None where some draft length was not served, or steps were not timed under load.
    """
    lightest = min(settings.RATES, key=settings.RATES.__getitem__)
    found = []
    for drafting in map(fixed, (0, *settings.GAMMAS)):
        seen = [_seen(files, drafting, rate, number) for rate in settings.RATES]
        served = [each for each in seen if each is not None]
        alone = [
            _seen(files, drafting, lightest, each) for each in (number, *settings.round_of(number))
        ]
        outside = next((each for each in alone if each is not None), None)
        if not served or outside is None:
            return None
        for repeat, steps in enumerate(served):
            # Where others wait, a request is not outside of steps only.
            spent = (outside.frontend_s, outside.requests) if repeat == 0 else (0.0, 0)
            own = replace(steps, repeat=repeat, frontend_s=spent[0], requests=spent[1])
            found.append(timed_streams(own))
    timed = read_acceptance(files.timed(number))
    # Sets that were timed are of a larger batch than the pass may have, and not the pass's own.
    return msgspec.structs.replace(timed, streamed=found, steps=[]) if timed.streamed else None


def _seen(files: LoadFiles, drafting: Drafting, rate: str, number: int) -> StreamedSteps | None:
    run = files.run(Setting(drafting, rate), number)
    return loaded_steps(json.loads(run.read_text()), drafting) if run.is_file() else None
