"""What vLLM prints of its drafts."""

from __future__ import annotations

from specsim.engines.readers import prometheus
from specsim.engines.readers.reading import Reading

_PREFIX = "vllm"


def recognises(text: str) -> bool:
    """Whether a text is of vLLM."""
    return prometheus.has_counters(text, _PREFIX)


def read(text: str) -> list[Reading]:
    """All readings of a text."""
    return prometheus.read_scrapes(text, _PREFIX, "vllm", "greedy-drafts")
