"""What SGLang prints of its drafts: log lines, /server_info, benchmark results, requests."""

from __future__ import annotations

from specsim.engines.readers import sglang_log, sglang_requests, sglang_server
from specsim.engines.readers.reading import Reading

_FORMS = (sglang_server, sglang_requests, sglang_log)


def recognises(text: str) -> bool:
    """Whether a text is of SGLang."""
    return any(form.recognises(text) for form in _FORMS)


def read(text: str) -> list[Reading]:
    """All readings of a text, of every form that is in it."""
    return [each for form in _FORMS if form.recognises(text) for each in form.read(text)]
