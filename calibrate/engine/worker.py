"""vLLM's own functions, called in lines of JSON: run by the engine's own Python.

    python worker.py generate '{"model": "TARGET", "dtype": "float32", ...}'
    python worker.py bench

One line says that it is ready; then every line on the standard input is answered by one on the
standard output, and the end of the input ends it.  ``generate`` holds one ``LLM``, which takes the
options given:

    {"prompts": [[5, 7]], "sampling": [{"max_tokens": 8, "temperature": 0.0}]}
    {"texts": [[...]], "before": "...", "after": "...", "seconds": 0.1}

``before`` and ``after`` are the engine's counters, in the words of a server's ``/metrics``;
``seconds`` are of the one call of ``LLM.generate``.  ``bench`` is ``vllm bench serve`` again and
again, which takes ten seconds to load:

    {"words": ["--base-url", "http://127.0.0.1:8000", ...]}
    {"seconds": 12.3}

What goes wrong is answered by ``error``.  Whatever else is printed goes to the standard error.
Needs the standard library and vLLM alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def main(words: list[str]) -> None:
    """Answer until the input ends."""
    # What the engine and its processes print would come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = generating(json.loads(words[1])) if words[0] == "generate" else benchmarking()
    _say(answers, {"ready": True})
    for asked in map(json.loads, _lines()):
        try:
            _say(answers, answer(asked))
        except (Exception, SystemExit) as error:
            _say(answers, {"error": " ".join(str(error).split()) or type(error).__name__})


def generating(options: dict[str, Any]) -> Answer:
    """``LLM.generate`` of one engine."""
    from vllm import LLM, SamplingParams  # of the engine's own environment

    engine = LLM(**options, disable_log_stats=False)

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        prompts = [{"prompt_token_ids": prompt} for prompt in asked["prompts"]]
        # End-of-text does not end a request.
        sampling = [SamplingParams(ignore_eos=True, **each) for each in asked["sampling"]]
        before = counters()
        begun = time.perf_counter()
        outputs = engine.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - begun
        texts = [list(each.outputs[0].token_ids) for each in outputs]
        return {"texts": texts, "before": before, "after": counters(), "seconds": seconds}

    return answer


def benchmarking() -> Answer:
    """``vllm bench serve`` of the words that are asked."""
    from vllm.benchmarks import serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        parser = FlexibleArgumentParser()
        serve.add_cli_args(parser)
        parsed = parser.parse_args(asked["words"])
        begun = time.perf_counter()
        serve.main(parsed)
        return {"seconds": time.perf_counter() - begun}

    return answer


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
