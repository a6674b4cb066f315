"""SGLang's mean acceptance length over a server's life: /server_info, and bench_serving.

``internal_states[i].avg_spec_accept_length`` of /server_info is cumulative, one for each
data-parallel rank; the benchmark's "Accept length" (``accept_length`` in its JSONL) is read from
there at its end (sgl-project/sglang issue 4759, pull request 13376; sglang/bench_serving.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from specsim.checks import UnsupportedError
from specsim.counts.drafts import MeanLength
from specsim.counts.steps import StepTime
from specsim.engines.readers.documents import Object, is_json, objects
from specsim.engines.readers.figures import Printed, count
from specsim.engines.readers.notes import (
    BATCH_IS_A_MAXIMUM,
    LIFE_MEAN,
    PROMPTS_UNKNOWN,
    RANDOM_PROMPTS,
)
from specsim.engines.readers.reading import Reading

_MEAN = "avg_spec_accept_length"
_RANKS = "data-parallel ranks are averaged as if each had drafted as often"
_HEADER = "Serving Benchmark Result"
_FIELD = re.compile(r"\s*(?P<label>[A-Z][^:]*?):\s+(?P<word>\S+)\s*")
_LABELS = {
    "Backend": "backend",
    "Accept length": "accept_length",
    "Max request concurrency": "max_concurrency",
    "Successful requests": "completed",
    "Median ITL (ms)": "median_itl_ms",
}


def recognises(text: str) -> bool:
    """Whether a text is /server_info or a result of SGLang's benchmark."""
    if is_json(text):
        return f'"{_MEAN}"' in text or '"accept_length"' in text
    return _HEADER in text and re.search(r"^\s*Backend:\s+sglang", text, re.MULTILINE) is not None


def read(text: str) -> list[Reading]:
    """One reading for each server and each result."""
    if not is_json(text):
        return [_result(each, "output of bench_serving") for each in _blocks(text)]
    found = objects(text)
    results = [each for each in found if "accept_length" in each]
    if results:  # a result may hold the server's own information, which is the same number
        return [_result(each, "result of bench_serving") for each in results]
    return [_server(each) for each in found if isinstance(each.get("internal_states"), list)]


def _server(info: Object) -> Reading:
    states = [each for each in info["internal_states"] if isinstance(each, dict)]
    means = [each[_MEAN] for each in states if each.get(_MEAN) is not None]
    if not means:
        raise UnsupportedError(f"no internal state has {_MEAN}; nothing was drafted yet")
    gamma = _chain(info) if _chain(info) is not None else _chain(states[0])
    first, *others = (
        MeanLength(gamma, Printed.of(_MEAN, each).value, 1, "ranks") for each in means
    )
    return Reading(
        engine="sglang",
        source="/server_info",
        span="server",
        length=sum(others, first),
        acceptance_law="greedy-drafts",
        notes=(LIFE_MEAN, *[_RANKS] * bool(others)),
    )


def _chain(info: Object) -> int | None:
    """Draft tokens of a round where the drafts are a chain: steps, with one candidate each."""
    steps, width = info.get("speculative_num_steps"), info.get("speculative_eagle_topk")
    slots = info.get("speculative_num_draft_tokens")
    if steps is None or width not in (1, None):
        return None
    steps = count("speculative_num_steps", steps)
    if slots is not None and count("speculative_num_draft_tokens", slots) != steps + 1:
        return None
    return steps or None


def _blocks(text: str) -> Iterator[Object]:
    """Figures of every block of a console, by their key in the JSONL."""
    found: Object = {}
    for line in text.splitlines():
        if _HEADER in line:
            if found:
                yield found
            found = {}
        field = _FIELD.fullmatch(line)
        if field is not None and field["label"] in _LABELS:
            key = _LABELS[field["label"]]
            if key in found:
                raise UnsupportedError(
                    f"{field['label']!r} comes twice in one block; give every block with its title"
                )
            found[key] = field["word"]
    if found:
        yield found


def _result(result: Object, source: str) -> Reading:
    length = _length(result.get("accept_length"), result)
    steps: tuple[StepTime, ...] = ()
    if length is None and result.get("max_concurrency") and result.get("median_itl_ms"):
        batch = count("max_concurrency", result["max_concurrency"])
        if result.get("completed") is not None:
            batch = min(batch, count("completed", result["completed"]))
        seconds = Printed.of("median_itl_ms", result["median_itl_ms"]).value / 1000
        if batch and seconds:
            steps = (StepTime(gamma=0, batch=batch, seconds=seconds),)
    if length is None and not steps:
        raise UnsupportedError(
            "the result has neither an acceptance length nor the ITL at a --max-concurrency"
        )
    dataset = result.get("dataset_name", result.get("dataset"))
    is_random = isinstance(dataset, str) and dataset.startswith("random")
    prompts = RANDOM_PROMPTS if is_random else PROMPTS_UNKNOWN
    notes = [LIFE_MEAN] * (length is not None)
    notes += [prompts] * (length is not None and (is_random or dataset is None))
    notes += [BATCH_IS_A_MAXIMUM] * len(steps)
    return Reading(
        engine="sglang",
        source=source,
        span="server" if length is not None else "run",
        length=length,
        steps=steps,
        acceptance_law=None if length is None else "greedy-drafts",
        notes=tuple(notes),
    )


def _length(word: Any, result: Object) -> MeanLength | None:
    if word is None:
        return None
    info = result.get("server_info")
    gamma = _chain(info) if isinstance(info, dict) else None
    return MeanLength(gamma, Printed.of("accept_length", word).value, 1, "results")
