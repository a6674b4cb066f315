"""Results of ``vllm bench serve --save-result --save-detailed``, as the client saw them.

Lists by request (vllm/benchmarks/serve.py): ``input_lens``, ``output_lens`` (0 where it failed),
``start_times`` of a clock, ``ttfts`` and, for each, ``itls``, all in seconds.  The last token comes
when all gaps are over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.serving.logs.request_log import RequestLog
from specsim.serving.readers.records import Record
from specsim.serving.requests import Requests, WorkloadError

_LISTS = ("input_lens", "output_lens", "start_times", "ttfts", "itls")


def recognises(first: Record) -> bool:
    """By its lists of lengths, or by the mean that every such result has."""
    return bool({"input_lens", "output_lens", "mean_ttft_ms"} & set(first.values))


def read(records: Sequence[Record]) -> RequestLog:
    """The requests that were answered, in the order of their start."""
    if len(records) > 1:
        raise WorkloadError(f"{len(records)} results in one file; give one")
    lists = {key: _list(records[0], key) for key in _LISTS}
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
    answered.sort(key=lambda each: each.seconds("start_times"))
    at = {each.place: place for place, each in enumerate(sent)}
    start = np.array([each.seconds("start_times") for each in answered])
    arrival = start - start[0]
    first = arrival + [each.seconds("ttfts") for each in answered]
    gaps = [_gaps(each) for each in answered]
    notes = ["times are the client's: network and tokenizer are in them"]
    if failed := len(sent) - len(answered):
        notes.append(f"{failed} failed requests (output_lens 0) are left out, and their load, too")
    limit = records[0].values.get("max_concurrency")
    if isinstance(limit, int) and limit > 0:
        notes.append(
            f"the client waited for answers (at most {limit} requests at any time), and its "
            "requests are sent here when it sent them: a slower prediction meets more of a queue "
            "than it would have had"
        )
    return RequestLog(
        format="vllm-bench",
        requests=Requests(
            arrival,
            np.array([each.tokens("input_lens") for each in answered]),
            np.array([each.tokens("output_lens") for each in answered]),
        ),
        first_token_s=first,
        last_token_s=first + [math.fsum(each) for each in gaps],
        names=tuple(each.place for each in answered),
        itl_s=np.array([gap for each in gaps for gap in each]),
        itl_request=np.repeat(np.arange(len(gaps)), [len(each) for each in gaps]),
        missing={"queue": "a client does not see when a request is first scheduled"},
        notes=tuple(notes),
        places=np.array([at[each.place] for each in answered]),
        sent=len(sent),
    )


def _gaps(record: Record) -> list[float]:
    gaps = record.get("itls")
    if not isinstance(gaps, list):
        raise WorkloadError(f"{record.place}: itls must be a list, got {str(gaps)[:40]}")
    return [
        Record(f"{record.place}, gap {n}", {"itl": gap}).seconds("itl")
        for n, gap in enumerate(gaps, start=1)
    ]


def _list(record: Record, key: str) -> list[Any]:
    value = record.values.get(key)
    if value is None and key == "start_times" and "ttfts" in record.values:
        raise WorkloadError(
            "start_times is missing: this version of vllm bench serve does not write when requests "
            "were sent; take a newer one"
        )
    if value is None:
        raise WorkloadError(
            f"{key} is missing: times of every request are written by vllm bench serve "
            "--save-result --save-detailed"
        )
    if not isinstance(value, list):
        raise WorkloadError(f"{key} must be a list, got {str(value)[:40]}")
    return value
