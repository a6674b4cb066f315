"""Options of the commands that run models; what they say reaches a command as one argument."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from specsim.api.models import Measurement, Models
from specsim.commands._options import Decorator, Integer, IntegerRange, Number, Numbers, stack


def _collected(name: str, kind: type, options: Decorator) -> Decorator:
    """Options for the fields of a dataclass, which is handed on whole as the argument ``name``."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def collecting(*arguments: Any, **given: Any) -> Any:
            described = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            return command(*arguments, **{name: described}, **given)

        return options(collecting)

    return decorate


models_options = _collected(
    "models",
    Models,
    stack(
        click.option(
            "--target",
            default=Models.target,
            show_default=True,
            help="Target model: a folder, a Hub name, or a member of the embedded family.",
        ),
        click.option("--draft", default=Models.draft, show_default=True, help="Draft model."),
        click.option(
            "--device", default=None, help="cpu, cuda, ... [default: a GPU if there is one]"
        ),
        click.option(
            "--dtype",
            type=click.Choice(["float32", "bfloat16", "float16"]),
            default=None,
            help="Number type of the weights. [default: float32 on a CPU, bfloat16 elsewhere]",
        ),
        click.option(
            "--threads",
            type=Integer(1),
            default=None,
            help="CPU threads. [default: 1 for the embedded family, torch's choice otherwise]",
        ),
        click.option(
            "--trust-remote-code",
            is_flag=True,
            help="Run the code that comes with the models. Only for models you trust.",
        ),
    ),
)

measurement_options = _collected(
    "measurement",
    Measurement,
    stack(
        click.option(
            "--prompts",
            type=click.Path(path_type=Path),
            help="One a line, or .jsonl with the key prompt. [default: held-out modules]",
        ),
        click.option(
            "--temperature",
            type=Numbers(0),
            default="0,1",
            show_default=True,
            help="Temperatures.",
        ),
        click.option("--top-k", type=Integer(1), help="Keep the k most probable tokens."),
        click.option("--top-p", type=Number(0, 1), help="Keep the most probable tokens up to p."),
        click.option(
            "--requests",
            type=IntegerRange(1),
            default="32",
            show_default=True,
            help="Requests; one number, or one for each temperature.",
        ),
        click.option(
            "--prompt-tokens",
            type=Integer(1),
            default=Measurement.prompt_tokens,
            show_default=True,
            help="Tokens of a prompt, at most.",
        ),
        click.option(
            "--max-new-tokens",
            type=Integer(1),
            default=Measurement.max_new_tokens,
            show_default=True,
            help="Tokens to decode.",
        ),
        click.option(
            "--gamma-max",
            type=Integer(1),
            default=Measurement.gamma_max,
            show_default=True,
            help="Longest draft.",
        ),
        click.option(
            "--repeats",
            type=Integer(1),
            default=Measurement.repeats,
            show_default=True,
            help="Times that every run is timed.",
        ),
        click.option(
            "--seed",
            type=Integer(),
            default=Measurement.seed,
            show_default=True,
            help="Random seed.",
        ),
    ),
)


def typed() -> str:
    """The command as it was typed, for the record."""
    return shlex.join(["specsim", *sys.argv[1:]])
