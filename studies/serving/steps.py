"""Steps of the servers under load, told from when the benchmark got its chunks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from specsim.counts.file import AcceptanceFile, read_acceptance, timed_streams
from specsim.counts.steps import FrontendTime, StreamedStep, StreamedSteps
from specsim.counts.streams import streamed_steps
from studies.serving import settings
from studies.serving.bench import streams_of
from studies.serving.files import LoadFiles
from studies.serving.settings import Drafting, Setting, fixed


def tells_steps(drafting: Drafting) -> bool:
    """Not where draft lengths change with the batch, or requests are preempted: there chunks do not
    tell what a step did.
    """
    return len(drafting.schedule) <= 1 and drafting.blocks is None


def loaded_steps(said: dict[str, Any], drafting: Drafting) -> StreamedSteps:
    """Those of a run of ``vllm bench serve`` whose requests were all seen."""
    return streamed_steps(streams_of(said), drafting.policy.gamma_max, 0)


def own_steps(files: LoadFiles, rate: str, number: int) -> AcceptanceFile | None:
    """The file of steps that were timed before a pass, with those of its load at a rate in their
    place.

    Steps without prompts of batches that this rate never had are those of the pass's other rates,
    by as much longer as its own are at batches that both had: machines drift.  What requests spend
    outside of steps is that of the whole pass, of those beside whom so few decoded that nobody
    waited for a place.

    None where some draft length was not served at the rate, or steps were not timed under load.
    """
    found = []
    for drafting in map(fixed, (0, *settings.GAMMAS)):
        of_pass = {
            name: seen
            for name in settings.RATES
            if (seen := _seen(files, Setting(drafting, name), number)) is not None
        }
        own = of_pass.get(rate)
        if own is None or not own.steps:
            return None
        known = [step for step in own.steps if not step.prompts]
        for name, seen in of_pass.items():
            steps = seen.steps if name == rate else _beside(seen, known)
            found.append(replace(seen, steps=steps, frontends=_at_once(seen)))
    timed = read_acceptance(files.timed(number))
    if not timed.streamed:
        return None
    streamed = [timed_streams(replace(each, repeat=at)) for at, each in enumerate(found)]
    # Sets that were timed are of a larger batch than the load may have, and not the load's own.
    return msgspec.structs.replace(timed, streamed=streamed, steps=[])


def _at_once(seen: StreamedSteps) -> tuple[FrontendTime, ...]:
    """Of requests that did not wait for a place: beside others, a request that waits for one is not
    outside of steps only.
    """
    most = settings.MAX_NUM_SEQS // 2
    return tuple(each for each in seen.frontends if (each.decodes or 0) < most)


def _beside(seen: StreamedSteps, known: Sequence[StreamedStep]) -> tuple[StreamedStep, ...]:
    """Steps without prompts of other batches than are known, on the machine of those."""
    plain = [each for each in seen.steps if not each.prompts]
    here, there = _in_peace(known), _in_peace(plain)
    both = here.keys() & there.keys()
    # Weighed by how many were seen there.
    here_s = sum(there[each][1] * here[each][0] for each in both)
    there_s = sum(there[each][1] * there[each][0] for each in both)
    longer = here_s / there_s if both else 1.0
    batches = {each.requests for each in known}
    return tuple(
        replace(
            each,
            seconds=longer * each.seconds,
            variance_s2=None if each.variance_s2 is None else longer**2 * each.variance_s2,
        )
        for each in plain
        if each.requests not in batches
    )


def _in_peace(steps: Sequence[StreamedStep]) -> dict[int, tuple[float, int]]:
    """Mean seconds of steps without prompts in which nobody was sent, and how many, by requests."""
    sums: dict[int, tuple[float, int]] = {}
    for step in steps:
        if not step.arrivals:
            seconds, count = sums.get(step.requests, (0.0, 0))
            sums[step.requests] = seconds + step.steps * step.seconds, count + step.steps
    return {requests: (seconds / count, count) for requests, (seconds, count) in sums.items()}


def _seen(files: LoadFiles, setting: Setting, number: int) -> StreamedSteps | None:
    run = files.run(setting, number)
    return loaded_steps(json.loads(run.read_text()), setting.drafting) if run.is_file() else None
