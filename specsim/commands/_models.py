"""Options of the commands that run models; what they say reaches a command as one argument."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import click

from specsim.acceptance import ACCEPTANCE_LAWS
from specsim.api.models import Measurement, Models
from specsim.commands._options import (
    PATH,
    Decorator,
    Integer,
    IntegerRange,
    Number,
    Numbers,
    option,
    stack,
)

_MODELS = {
    "target": (str, "Target model: a folder, a Hub name, or a member of the embedded family."),
    "draft": (str, "Draft model; prompt-lookup (ngram) is none, and copies from the text."),
    "device": (str, "cpu, cuda, ... [default: a GPU if there is one]"),
    "dtype": (
        click.Choice(["float32", "bfloat16", "float16"]),
        "Number type of the weights. [default: float32 on a CPU, bfloat16 elsewhere]",
    ),
    "threads": (
        Integer(1),
        "CPU threads. [default: 1 for the embedded family, otherwise found by a short trial]",
    ),
    "trust_remote_code": (
        bool,
        "Run the code that comes with the models. Only for models you trust.",
    ),
}
_MEASUREMENT = {
    "prompts": (PATH, "One a line, or .jsonl with the key prompt. [default: held-out modules]"),
    "temperature": (Numbers(0), "Temperatures."),
    "top_k": (Integer(1), "Keep the k most probable tokens."),
    "top_p": (Number(0, 1), "Keep the most probable tokens up to p."),
    "requests": (IntegerRange(1), "Requests; one number, or one for each temperature."),
    "prompt_tokens": (Integer(1), "Tokens of a prompt, at most."),
    "max_new_tokens": (Integer(1), "Tokens to decode."),
    "gamma_max": (Integer(1), "Longest draft."),
    "repeats": (Integer(1), "Passes in which every draft length is timed once."),
    "spread_minutes": (
        Number(0),
        "Minutes over which the passes are spread, so that they see more of a shared machine.",
    ),
    "seed": (Integer(), "Random seed."),
    "acceptance_law": (
        click.Choice(ACCEPTANCE_LAWS),
        "How drafts are accepted in the profile's rates; its trace answers for every law.",
    ),
}


def _fields_of(name: str, kind: type, described: Mapping[str, tuple[Any, str]]) -> Decorator:
    """An option for each field of a dataclass, which a command gets whole as argument ``name``.

    described : by field the type of its option, and the help; defaults are the dataclass's own
    """

    def made(field: str, value: Any, help_text: str) -> Decorator:
        default = getattr(kind, field)
        if isinstance(default, tuple):  # as it is typed
            default = ",".join(f"{each:g}" for each in default)
        more = {"is_flag": True} if value is bool else {"default": default}
        return option("--" + field.replace("_", "-"), value, help_text, **more)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def collecting(*arguments: Any, **given: Any) -> Any:
            whole = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            return command(*arguments, **{name: whole}, **given)

        return stack(*(made(field, *words) for field, words in described.items()))(collecting)

    return decorate


models_options = _fields_of("models", Models, _MODELS)
measurement_options = _fields_of("measurement", Measurement, _MEASUREMENT)
sampling_options = stack(
    *(option(f"--{name.replace('_', '-')}", *_MEASUREMENT[name]) for name in ("top_k", "top_p"))
)
