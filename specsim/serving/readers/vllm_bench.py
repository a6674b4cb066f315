"""Results of ``vllm bench serve --save-result --save-detailed``: what a benchmark really sent.

Lists by request: ``input_lens``, ``output_lens`` (0 where it failed) and, in newer
versions, ``start_times`` of a clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.serving.readers.records import Record, RecordedRequests
from specsim.serving.requests import WorkloadError


def recognises(first: Record) -> bool:
    """By its lists of lengths."""
    return {"input_lens", "output_lens"} <= set(first.values)


def read(records: Sequence[Record]) -> RecordedRequests:
    """The requests that were answered, in the order of their start."""
    if len(records) > 1:
        raise WorkloadError(f"{len(records)} results in one file; give one")
    lists = {key: _list(records[0], key) for key in ("input_lens", "output_lens")}
    timed = "start_times" in records[0].values
    if timed:
        lists["start_times"] = _list(records[0], "start_times")
    if len({len(each) for each in lists.values()}) > 1:
        said = ", ".join(f"{len(each)} {key}" for key, each in lists.items())
        raise WorkloadError(f"the lists must be of equal length, got {said}")
    sent = [
        Record(f"request {n}", dict(zip(lists, values, strict=True)))
        for n, values in enumerate(zip(*lists.values(), strict=True), start=1)
    ]
    answered = [each for each in sent if each.tokens("output_lens", low=0)]
    if not answered:
        raise WorkloadError("no request was answered (output_lens is 0 everywhere)")
    if timed:
        answered.sort(key=lambda each: each.seconds("start_times"))
    times = np.array([each.seconds("start_times") for each in answered]) if timed else None
    failed = len(sent) - len(answered)
    return RecordedRequests(
        format="vllm-bench",
        prompt_tokens=np.array([each.tokens("input_lens") for each in answered]),
        output_tokens=np.array([each.tokens("output_lens") for each in answered]),
        arrival_s=None if times is None else times - times[0],
        notes=(f"{failed} failed requests (output_lens 0) are left out",) if failed else (),
    )


def _list(record: Record, key: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list):
        raise WorkloadError(f"{key} must be a list, got {str(value)[:40]}")
    return value
