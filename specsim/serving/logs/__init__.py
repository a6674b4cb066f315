"""Request logs of engines and of their clients, recognised by their content.

A reader is one module with ``recognises(records)`` and ``read(records)`` and one line here.
"""

from __future__ import annotations

from pathlib import Path

from specsim.serving.logs import guidellm, llmservingsim, vllm_bench
from specsim.serving.logs.request_log import RequestLog
from specsim.serving.readers.records import RecordReader, read_file, read_recognised

LOGS: dict[str, RecordReader[RequestLog]] = {
    "vllm-bench": vllm_bench,
    "llmservingsim": llmservingsim,
    "guidellm": guidellm,
}


def read_log(path: Path) -> RequestLog:
    """What was measured of each request; WorkloadError of one line names the file and the place."""
    return read_file(path, "log", read_log_text)


def read_log_text(text: str) -> RequestLog:
    """The same of a text."""
    return read_recognised(
        text,
        LOGS.values(),
        "results of vllm bench serve --save-detailed, LLMServingSim's requests.jsonl and "
        "GuideLLM's benchmarks.json",
    )
