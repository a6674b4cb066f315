"""GuideLLM's ``benchmarks.json`` (vllm-project/guidellm, schemas/request_stats.py), as its client
saw them: of every answered request ``request_start_time`` and ``request_latency`` in seconds,
``time_to_first_token_ms``, ``inter_token_latency_ms`` (its mean, which is TPOT) and token counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specsim.serving.logs.request_log import RequestLog
from specsim.serving.readers.records import Record
from specsim.serving.requests import Requests, WorkloadError

_MS = 1e-3
_FIRST = "time_to_first_token_ms"


def recognises(first: Record) -> bool:
    """By its list of benchmarks."""
    return isinstance(first.values.get("benchmarks"), list)


def read(records: Sequence[Record]) -> RequestLog:
    """The requests that were answered, in the order of their start."""
    if len(records) != 1:
        raise WorkloadError(
            f"{len(records)} documents in one file, of other loads each; keep one of them"
        )
    benchmarks = records[0].values["benchmarks"]
    if len(benchmarks) != 1:
        raise WorkloadError(
            f"{len(benchmarks)} benchmarks in one file, of other loads each; keep one of them in "
            "its list"
        )
    groups = _mapping("benchmark 1", benchmarks[0]).get("requests")
    groups = _mapping("benchmark 1: requests", groups)
    answered = _records(groups, "successful")
    if not answered:
        raise WorkloadError("no request was answered (requests.successful is empty)")
    notes = ["times are the client's: network and tokenizer are in them"]
    empty = [each for each in answered if not each.values.get("output_tokens")]
    whole = [each for each in answered if each.values.get("output_tokens")]
    streamed = [each for each in whole if each.values.get(_FIRST) is not None]
    unseen = [each for each in whole if streamed and each.values.get(_FIRST) is None]
    if lost := {each.place for each in (*empty, *unseen)}:
        answered = [each for each in answered if each.place not in lost]
        notes.append(
            f"{len(lost)} requests without output tokens or the time of their first token are left "
            "out, and their load, too"
        )
    if not answered:
        raise WorkloadError("no answered request has output tokens (output_tokens)")
    answered.sort(key=lambda each: each.seconds("request_start_time"))
    start = np.array([each.seconds("request_start_time") for each in answered])
    arrival = start - start[0]
    outputs = np.array([each.tokens("output_tokens") for each in answered])
    missing = {
        "itl": "the log has the mean gap of each request alone, which is its TPOT",
        "queue": "a client does not see when a request is first scheduled",
    }
    first = None
    last = arrival + [each.seconds("request_latency") for each in answered]
    if not streamed:
        missing["ttft"] = missing["tpot"] = "answers were not streamed: no time of a first token"
    else:
        first = arrival + [each.seconds(_FIRST, _MS) for each in answered]
        more = [
            each.seconds("inter_token_latency_ms", _MS) * (tokens - 1) if tokens > 1 else 0.0
            for each, tokens in zip(answered, outputs.tolist(), strict=True)
        ]
        last = first + more
    unanswered = sum(len(_records(groups, name)) for name in ("incomplete", "errored"))
    if unanswered:
        notes.append(f"{unanswered} requests without an answer are left out, and their load, too")
    return RequestLog(
        format="guidellm",
        requests=Requests(
            arrival, np.array([each.tokens("prompt_tokens") for each in answered]), outputs
        ),
        first_token_s=first,
        last_token_s=last,
        names=tuple(str(each.values.get("request_id", each.place)) for each in answered),
        missing=missing,
        notes=tuple(notes),
    )


def _mapping(place: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise WorkloadError(f"{place} must be a JSON object, got {str(value)[:40]}")
    return value


def _records(groups: Mapping[str, Any], name: str) -> list[Record]:
    found = groups.get(name) or []
    if not isinstance(found, list):
        raise WorkloadError(f"requests.{name} must be a list, got {str(found)[:40]}")
    return [
        Record(f"{name} request {n}", _mapping(f"{name} request {n}", each))
        for n, each in enumerate(found, start=1)
    ]
