"""Workloads in files, recognised by their content.

A reader is one module with ``recognises(records)`` and ``read(records)`` and one line here.  The
first that recognises the first record of a file reads it.
"""

from __future__ import annotations

from pathlib import Path

from specsim.checks import SpecsimError
from specsim.serving.readers import (
    azure,
    burstgpt,
    llmservingsim,
    mooncake,
    token_counts,
    vllm_bench,
)
from specsim.serving.readers.records import RecordedRequests, WorkloadReader, records_of
from specsim.serving.requests import WorkloadError

READERS: dict[str, WorkloadReader] = {
    "azure": azure,
    "burstgpt": burstgpt,
    "mooncake": mooncake,
    "llmservingsim": llmservingsim,
    "vllm-bench": vllm_bench,
    "token-counts": token_counts,
}


def read_workload(path: Path) -> RecordedRequests:
    """The requests of a file; WorkloadError of one line names it, and the line that is wrong."""
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise WorkloadError(f"workload {path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise WorkloadError(f"workload {path}: not a text in UTF-8") from None
    try:
        return read_records(text)
    except SpecsimError as error:
        raise WorkloadError(f"workload {path}: {error}") from None


def read_records(text: str) -> RecordedRequests:
    """The requests of a text."""
    records = records_of(text)
    if not records:
        raise WorkloadError("no request in it")
    for reader in READERS.values():
        if reader.recognises(records[0]):
            return reader.read(records)
    raise WorkloadError(
        f"{records[0].place}: no format is recognised by its keys ({', '.join(records[0].values)}):"
        " read are Azure's and BurstGPT's CSV, Mooncake's and LLMServingSim's JSONL, results of "
        "vllm bench serve --save-detailed, and JSON or JSONL with token counts, such as prompt_len "
        "and output_len"
    )
