"""What TensorRT-LLM prints of its drafts: statistics of iterations and of requests."""

from __future__ import annotations

from specsim.engines.readers import tensorrt_llm_iterations, tensorrt_llm_requests
from specsim.engines.readers.documents import is_json
from specsim.engines.readers.reading import Reading

_FORMS = (tensorrt_llm_iterations, tensorrt_llm_requests)


def recognises(text: str) -> bool:
    """Whether a text has statistics of TensorRT-LLM."""
    return is_json(text) and any(form.recognises(text) for form in _FORMS)


def read(text: str) -> list[Reading]:
    """All readings of a text, of every form that is in it."""
    return [each for form in _FORMS for each in form.read(text)]
