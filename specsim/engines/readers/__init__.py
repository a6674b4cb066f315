"""What inference engines print of their drafts, recognised by its content.

A reader is one module with ``recognises(text)`` and ``read(text)`` and one line here.  The first
that recognises a text reads it, so benchmarks that pass an engine's own numbers through stand
before the engines.
"""

from __future__ import annotations

from specsim.checks import SpecsimError, UnsupportedError, did_you_mean
from specsim.engines.readers import (
    aiperf,
    guidellm,
    llama_cpp,
    sglang,
    speculation_profile,
    tensorrt_llm,
    vllm,
)
from specsim.engines.readers.reading import Reader, Reading

READERS: dict[str, Reader] = {
    "aiperf": aiperf,
    "guidellm": guidellm,
    "speculation-profile": speculation_profile,
    "tensorrt-llm": tensorrt_llm,
    "llama.cpp": llama_cpp,
    "vllm": vllm,
    "sglang": sglang,
}


def read_text(text: str, name: str, engine: str | None = None) -> list[Reading]:
    """All readings of a text, of which there is at least one.

    name : the file, for messages
    engine : the reader by its name in ``READERS``; by default the content decides
    """
    if engine is not None and engine not in READERS:
        raise UnsupportedError(
            f"engine {engine!r} is not read{did_you_mean(engine, READERS)} "
            f"(read: {', '.join(READERS)})"
        )
    reader = _reader(text) if engine is None else READERS[engine]
    if reader is None:
        raise UnsupportedError(
            f"{name}: nothing was recognised; looked for log lines, /metrics scrapes, benchmark "
            f"results and request statistics of {', '.join(READERS)}; give such a file, whole, or "
            "name its engine"
        )
    try:
        found = reader.read(text)
    except SpecsimError as error:
        raise type(error)(f"{name}: {error}") from None
    if not found:
        raise UnsupportedError(f"{name}: no number of {engine or 'drafts'} was found in it")
    return found


def _reader(text: str) -> Reader | None:
    return next((each for each in READERS.values() if each.recognises(text)), None)
