"""Options that say what is asked of a server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from specsim.checks import InvalidArgumentError, integer
from specsim.commands._options import PATH, Integer, Number, Numbers, option, stack

if TYPE_CHECKING:
    from specsim.api.serving_setup import Gamma
    from specsim.serving.workload import ServingWorkload

_LENGTHS = {"metavar": "TOKENS|LAW"}
_OPTIONS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "workload": (
        PATH,
        "File of requests: Azure, BurstGPT, Mooncake, LLMServingSim, a result of vllm bench serve "
        "--save-detailed, JSONL with token counts, or texts such as ShareGPT's (--tokenizer).",
        {},
    ),
    "tokenizer": (str, "Model whose tokens the file's texts are counted in.", {"metavar": "MODEL"}),
    "rate": (Number(), "Requests per second; what a file's times are stretched to.", {}),
    "arrivals": (
        str,
        "poisson, gamma:BURSTINESS, constant or schedule:SECONDS=RATE,... "
        "[default: poisson, or the file's times]",
        {"metavar": "NAME[:...]"},
    ),
    "concurrency": (Integer(1), "Requests at any time, in place of a rate.", {}),
    "prompt": (
        str,
        "Tokens of a prompt: N, uniform:LOW,HIGH, lognormal:MEAN,SIGMA[,HIGH] or file:PATH.",
        _LENGTHS,
    ),
    "output": (str, "Tokens of an output, in the same words.", _LENGTHS),
    "requests": (
        Integer(1),
        "How many. [default: 1,000, of a plan as many as it needs, or all of the file]",
        {},
    ),
    "duration": (Number(0), "Seconds in which they arrive, instead.", {}),
    "scale": (Number(0), "Factor of the file's rate.", {}),
    "scale_prompt": (Number(0), "Factor of the file's prompts.", {}),
    "scale_output": (Number(0), "Factor of the file's outputs.", {}),
    "window": (Numbers(0), "first,last seconds of the file that are taken.", {}),
}
workload_options = stack(
    *(
        option(f"--{name.replace('_', '-')}", kind, help_text, **more)
        for name, (kind, help_text, more) in _OPTIONS.items()
    )
)

_RANGE = re.compile(r"(\d+)(?:-(\d+))?=(\d+)")


def read_workload(given: dict[str, Any]) -> ServingWorkload:
    """What ``workload_options`` say, taken out of what was given."""
    from specsim import workload

    said = {name: given.pop(name) for name in _OPTIONS}
    window = said.pop("window")
    if window is not None and len(window) != 2:
        raise InvalidArgumentError(f"--window must be first,last, got {len(window)} numbers")
    duration_s = said.pop("duration")
    return workload(said.pop("workload"), duration_s=duration_s, window_s=window, **said)


def read_gamma(words: str | None) -> Gamma:
    """A number, ``table``, ``adaptive`` or ranges of batches."""
    if words is None:
        return None
    if words == "table":
        return "table"
    kind, _, rest = words.partition(":")
    if kind == "adaptive":
        from specsim.serving.adaptive_steps import AdaptiveSteps

        return AdaptiveSteps.read(rest) if rest else AdaptiveSteps.usual()
    if "=" not in words:
        return integer("--gamma", words)
    found = []
    for part in words.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidArgumentError(
                "--gamma must be N, table, adaptive[:FILE] or FIRST-LAST=N,... such as "
                f"1-16=5,17-64=3, got {part!r}"
            )
        first, last, gamma = match.groups()
        found.append((int(first), int(last or first), int(gamma)))
    return found
