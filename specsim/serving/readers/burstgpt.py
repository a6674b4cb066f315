"""BurstGPT's traces in CSV (HPMLL/BurstGPT), which ``vllm bench serve`` takes as a dataset, too.

Columns: Timestamp (s), Model, Request tokens, Response tokens, Total tokens, Log Type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsim.serving.readers.records import Record, RecordedRequests, from_the_first
from specsim.serving.requests import WorkloadError


def recognises(first: Record) -> bool:
    """By the names of its columns."""
    return {"Timestamp", "Request tokens", "Response tokens"} <= set(first.values)


def read(records: Sequence[Record]) -> RecordedRequests:
    """All requests that were answered; a failed one has 0 response tokens."""
    answered = [each for each in records if each.tokens("Response tokens", low=0)]
    if not answered:
        raise WorkloadError("no request was answered (Response tokens is 0 everywhere)")
    failed = len(records) - len(answered)
    return RecordedRequests(
        format="burstgpt",
        prompt_tokens=np.array([each.tokens("Request tokens") for each in answered]),
        output_tokens=np.array([each.tokens("Response tokens") for each in answered]),
        arrival_s=from_the_first(answered, "Timestamp"),
        notes=(f"{failed} failed requests (0 response tokens) are left out",) if failed else (),
    )
