"""Workloads in files, recognised by their content.

A reader is one module with ``recognises(records)`` and ``read(records)`` and one line here.  The
first that recognises the first record of a file reads it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from specsim.files import file_digest
from specsim.serving.readers import (
    azure,
    burstgpt,
    llmservingsim,
    mooncake,
    texts,
    token_counts,
    vllm_bench,
)
from specsim.serving.readers.records import (
    RecordedRequests,
    RecordReader,
    read_file,
    read_recognised,
    records_of,
)
from specsim.serving.requests import WorkloadError

READERS: dict[str, RecordReader[RecordedRequests]] = {
    "azure": azure,
    "burstgpt": burstgpt,
    "mooncake": mooncake,
    "llmservingsim": llmservingsim,
    "vllm-bench": vllm_bench,
    "token-counts": token_counts,
}


def read_workload(path: Path, tokenize: texts.Tokenize | None = None) -> RecordedRequests:
    """The requests of a file; WorkloadError of one line names it, and the line that is wrong.

    tokenize : counts the tokens of its texts, which then take the place of counts
    """
    found = read_file(path, "workload", partial(read_records, tokenize=tokenize))
    return replace(found, file=str(path), sha256=file_digest(path))


def read_records(text: str, tokenize: texts.Tokenize | None = None) -> RecordedRequests:
    """The requests of a text."""
    if tokenize is not None:
        records = records_of(text)
        if not records:
            raise WorkloadError("no request in it")
        return texts.read(records, tokenize)
    return read_recognised(
        text,
        READERS.values(),
        "Azure's and BurstGPT's CSV, Mooncake's, Qwen-Bailian's and LLMServingSim's JSONL, results "
        "of vllm bench serve --save-detailed, JSON or JSONL with token counts, such as prompt_len "
        "and output_len, and with a tokenizer texts, such as ShareGPT's",
    )
