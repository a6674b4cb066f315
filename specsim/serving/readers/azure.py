"""Azure's traces of LLM inference: ``TIMESTAMP,ContextTokens,GeneratedTokens`` in CSV.

Azure/AzurePublicDataset, ``data/AzureLLMInferenceTrace_*.csv`` of 2023 and the week of 2024.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from specsim.checks import Floats
from specsim.serving.readers.records import Record, RecordedRequests, in_order
from specsim.serving.requests import WorkloadError

_KEYS = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}
# Of years that nanoseconds reach to, without a zone, which numpy would take with a warning.
_MOMENT = re.compile(r"(1[7-9]|2[01])\d\d-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,9})?)?)?")


def recognises(first: Record) -> bool:
    """By the names of its columns."""
    return set(first.values) >= _KEYS


def read(records: Sequence[Record]) -> RecordedRequests:
    """All requests; the first arrives at 0."""
    return RecordedRequests(
        format="azure",
        prompt_tokens=np.array([each.tokens("ContextTokens") for each in records]),
        output_tokens=np.array([each.tokens("GeneratedTokens") for each in records]),
        arrival_s=in_order(records, _seconds(records)),
    )


def _seconds(records: Sequence[Record]) -> Floats:
    times = np.empty(len(records), "datetime64[ns]")
    for at, record in enumerate(records):
        word = str(record.get("TIMESTAMP")).removesuffix("+00:00")
        try:
            if not _MOMENT.fullmatch(word):
                raise ValueError
            times[at] = np.datetime64(word, "ns")
        except ValueError:  # such as the 31st of February
            raise WorkloadError(
                f"{record.place}: TIMESTAMP must be a date and time, of UTC where it has a zone, "
                f"got {word[:40]!r}"
            ) from None
    seconds: Floats = (times - times[0]).astype(np.int64) * 1e-9
    return seconds
