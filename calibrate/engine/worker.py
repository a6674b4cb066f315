"""One ``vllm.LLM`` that is asked in lines of JSON: run by the engine's own Python.

    python worker.py '{"model": "TARGET", "dtype": "float32", ...}'

The only argument is what ``LLM`` takes.  One line says that it is ready; then every line on the
standard input is answered by one on the standard output, and the end of the input ends it:

    {"prompts": [[5, 7]], "sampling": [{"max_tokens": 8, "temperature": 0.0}]}
    {"texts": [[...]], "before": "...", "after": "...", "seconds": 0.1}

``before`` and ``after`` are the engine's counters, in the words of a server's ``/metrics``;
``seconds`` are of the one call of ``LLM.generate``.  What goes wrong is answered by ``error``.
Whatever else is printed goes to the standard error.  Needs the standard library and vLLM alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO


def main(words: list[str]) -> None:
    """Answer until the input ends."""
    # What the engine and its processes print would come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from vllm import LLM, SamplingParams  # of the engine's own environment

    engine = LLM(**json.loads(words[0]), disable_log_stats=False)
    _say(answers, {"ready": True})
    for asked in map(json.loads, _lines()):
        try:
            _say(answers, answer(engine, SamplingParams, asked))
        except Exception as error:
            _say(answers, {"error": " ".join(str(error).split()) or type(error).__name__})


def answer(engine: Any, sampling_params: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """What one request line is answered."""
    prompts = [{"prompt_token_ids": prompt} for prompt in asked["prompts"]]
    # End-of-text does not end a request.
    sampling = [sampling_params(ignore_eos=True, **each) for each in asked["sampling"]]
    before = counters()
    begun = time.perf_counter()
    outputs = engine.generate(prompts, sampling, use_tqdm=False)
    seconds = time.perf_counter() - begun
    texts = [list(each.outputs[0].token_ids) for each in outputs]
    return {"texts": texts, "before": before, "after": counters(), "seconds": seconds}


def counters() -> str:
    """All counters of this process, as a server prints them."""
    from prometheus_client import generate_latest

    return str(generate_latest().decode())


def _lines() -> Iterator[str]:
    """The input, line by line as it comes."""
    while line := sys.stdin.readline():
        yield line


def _say(answers: TextIO, content: dict[str, Any]) -> None:
    print(json.dumps(content), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
