"""What inference engines are told of a draft length by load, each in its own words.

An engine is one module with a function ``write`` and one line here.  The names of options change
fast; each module says which version it was read from.
"""

from __future__ import annotations

from specsim.engines import llama_cpp, sglang, tensorrt_llm, transformers, vllm
from specsim.engines.schedule import Configuration, Engine, Schedule, gamma_at, largest, merged

ENGINES: dict[str, Engine] = {
    "vllm": Engine(vllm.write),
    "sglang": Engine(sglang.write, one_batch=True),
    "tensorrt-llm": Engine(tensorrt_llm.write),
    "llama.cpp": Engine(llama_cpp.write, one_batch=True),
    "transformers": Engine(transformers.write, one_batch=True, names_draft=False),
}

__all__ = [
    "ENGINES",
    "Configuration",
    "Engine",
    "Schedule",
    "gamma_at",
    "largest",
    "merged",
]
