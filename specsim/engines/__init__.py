"""What inference engines are told of a draft length by load, each in its own words.

An engine is one module with an ``ENGINE`` and one line here.  The names of options change fast;
each module says which version it was read at, and so does every result.
"""

from __future__ import annotations

from specsim.checks import UnsupportedError, did_you_mean
from specsim.engines import llama_cpp, sglang, tensorrt_llm, transformers, vllm
from specsim.engines.drafting import (
    METHODS,
    Configuration,
    Deployed,
    Drafting,
    Engine,
    Method,
    Order,
    Tree,
    method_named,
)
from specsim.engines.ranges import fewest_ranges
from specsim.engines.schedule import Schedule, gamma_at, largest, merged

ENGINES: dict[str, Engine] = {
    "vllm": vllm.ENGINE,
    "sglang": sglang.ENGINE,
    "tensorrt-llm": tensorrt_llm.ENGINE,
    "llama.cpp": llama_cpp.ENGINE,
    "transformers": transformers.ENGINE,
}


def engine_named(name: str) -> Engine:
    """The engine of that name."""
    if name not in ENGINES:
        raise UnsupportedError(
            f"engine {name!r} is not known{did_you_mean(name, ENGINES)} "
            f"(known: {', '.join(ENGINES)})"
        )
    return ENGINES[name]
