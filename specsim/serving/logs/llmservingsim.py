"""LLMServingSim's ``requests.jsonl`` (casys-kaist/LLMServingSim, bench): what vLLM itself noted.

``arrival_time`` is of the wall's clock, ``queued_ts``, ``scheduled_ts``, ``first_token_ts`` and
``last_token_ts`` are of a clock of the engine's, all in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsim.checks import Floats
from specsim.serving.logs.request_log import RequestLog, check_order
from specsim.serving.readers.records import Record
from specsim.serving.requests import Requests, WorkloadError


def recognises(first: Record) -> bool:
    """By the names of the lengths and of a time."""
    return {"input_toks", "output_toks"} <= set(first.values) and any(
        key.endswith("_ts") for key in first.values
    )


def read(records: Sequence[Record]) -> RequestLog:
    """All requests.

    The two clocks are put beside each other where they come closest: no request is queued before it
    arrives.
    """
    queued = _times(records, "queued_ts")
    if queued is None:
        raise WorkloadError(f"{records[0].place}: queued_ts is missing")
    wall = _times(records, "arrival_time")
    arrival = queued if wall is None else wall - float((wall - queued).max())
    order = np.argsort(arrival, kind="stable")
    records = [records[at] for at in order]
    begin = float(arrival[order[0]])
    arrival = arrival[order] - begin
    times = {
        name: None if (found := _times(records, f"{name}_ts")) is None else found - begin
        for name in ("scheduled", "first_token", "last_token")
    }
    missing = {"itl": "the log has no time of the tokens between the first and the last"}
    if times["scheduled"] is None:
        missing["queue"] = "scheduled_ts is missing"
    if times["first_token"] is None:
        missing["ttft"] = missing["tpot"] = "first_token_ts is missing"
    if times["last_token"] is None:
        missing["tpot"] = missing["e2e"] = "last_token_ts is missing"
    check_order([each.place for each in records], arrival, *times.values())
    return RequestLog(
        format="llmservingsim",
        requests=Requests(
            arrival,
            np.array([each.tokens("input_toks") for each in records]),
            np.array([each.tokens("output_toks") for each in records]),
        ),
        first_token_s=times["first_token"],
        last_token_s=times["last_token"],
        scheduled_s=times["scheduled"],
        names=tuple(str(each.values.get("request_id", each.place)) for each in records),
        missing=missing,
    )


def _times(records: Sequence[Record], key: str) -> Floats | None:
    """Seconds; None where the first record has none."""
    if key not in records[0].values:
        return None
    return np.array([each.seconds(key) for each in records])
