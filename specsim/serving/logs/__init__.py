"""Request logs of engines and of their clients, recognised by their content.

A reader is one module with ``recognises(records)`` and ``read(records)`` and one line here.
"""

from __future__ import annotations

from pathlib import Path

from specsim.checks import SpecsimError
from specsim.serving.logs import guidellm, llmservingsim, vllm_bench
from specsim.serving.logs.request_log import LogReader, RequestLog
from specsim.serving.readers.records import records_of
from specsim.serving.requests import WorkloadError

LOGS: dict[str, LogReader] = {
    "vllm-bench": vllm_bench,
    "llmservingsim": llmservingsim,
    "guidellm": guidellm,
}


def read_log(path: Path) -> RequestLog:
    """What was measured of each request; WorkloadError of one line names the file and the place."""
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise WorkloadError(f"log {path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise WorkloadError(f"log {path}: not a text in UTF-8") from None
    try:
        return read_log_text(text)
    except SpecsimError as error:
        raise WorkloadError(f"log {path}: {error}") from None


def read_log_text(text: str) -> RequestLog:
    """The same of a text."""
    records = records_of(text)
    if not records:
        raise WorkloadError("no request in it")
    for reader in LOGS.values():
        if reader.recognises(records[0]):
            return reader.read(records)
    raise WorkloadError(
        f"{records[0].place}: no format is recognised by its keys ({', '.join(records[0].values)}):"
        " read are results of vllm bench serve --save-detailed, LLMServingSim's requests.jsonl and "
        "GuideLLM's benchmarks.json"
    )
