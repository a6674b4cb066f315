"""What vLLM prints: scrapes, log lines, results of benchmarks, metrics of requests."""

from __future__ import annotations

from specsim.engines.readers import (
    prometheus,
    vllm_bench,
    vllm_forward,
    vllm_log,
    vllm_requests,
)
from specsim.engines.readers.reading import Reading

_PREFIX = "vllm"
_FORMS = (vllm_bench, vllm_forward, vllm_requests, vllm_log)


def recognises(text: str) -> bool:
    """Whether a text is of vLLM."""
    return prometheus.has_counters(text, _PREFIX) or any(form.recognises(text) for form in _FORMS)


def read(text: str) -> list[Reading]:
    """All readings of a text, of every form that is in it."""
    found: list[Reading] = []
    if prometheus.has_counters(text, _PREFIX):
        # vLLM drafts greedily unless draft_sample_method says otherwise.
        found += prometheus.read_scrapes(text, _PREFIX, "vllm", "greedy-drafts")
    for form in _FORMS:
        if form.recognises(text):
            found += form.read(text)
    return found
