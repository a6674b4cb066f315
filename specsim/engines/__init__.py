"""What inference engines are told of a draft length by load, each in its own words.

An engine is one module with a function ``write`` and one line here.  The names of options change
fast; each module says which version it was read from.
"""

from __future__ import annotations

from specsim.checks import UnsupportedError, did_you_mean
from specsim.engines import llama_cpp, sglang, tensorrt_llm, transformers, vllm
from specsim.engines.schedule import Configuration, Engine, Schedule, gamma_at, largest, merged

ENGINES: dict[str, Engine] = {
    "vllm": Engine(vllm.write),
    "sglang": Engine(sglang.write, one_batch=True),
    "tensorrt-llm": Engine(tensorrt_llm.write),
    "llama.cpp": Engine(llama_cpp.write, one_batch=True),
    "transformers": Engine(transformers.write, one_batch=True, names_draft=False),
}


def engine_named(name: str) -> Engine:
    """The engine of that name."""
    if name not in ENGINES:
        raise UnsupportedError(
            f"engine {name!r} is not known{did_you_mean(name, ENGINES)} "
            f"(known: {', '.join(ENGINES)})"
        )
    return ENGINES[name]
