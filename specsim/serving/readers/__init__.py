"""Workloads in files, recognised by their content.

A reader is one module with ``recognises(records)`` and ``read(records)`` and one line here.  The
first that recognises the first record of a file reads it.
"""

from __future__ import annotations

from pathlib import Path

from specsim.serving.readers import (
    azure,
    burstgpt,
    llmservingsim,
    mooncake,
    token_counts,
    vllm_bench,
)
from specsim.serving.readers.records import (
    RecordedRequests,
    RecordReader,
    read_file,
    read_recognised,
)

READERS: dict[str, RecordReader[RecordedRequests]] = {
    "azure": azure,
    "burstgpt": burstgpt,
    "mooncake": mooncake,
    "llmservingsim": llmservingsim,
    "vllm-bench": vllm_bench,
    "token-counts": token_counts,
}


def read_workload(path: Path) -> RecordedRequests:
    """The requests of a file; WorkloadError of one line names it, and the line that is wrong."""
    return read_file(path, "workload", read_records)


def read_records(text: str) -> RecordedRequests:
    """The requests of a text."""
    return read_recognised(
        text,
        READERS.values(),
        "Azure's and BurstGPT's CSV, Mooncake's and LLMServingSim's JSONL, results of vllm bench "
        "serve --save-detailed, and JSON or JSONL with token counts, such as prompt_len and "
        "output_len",
    )
