"""Options that several commands share, and the types that turn words into checked numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from specsim.checks import InvalidArgumentError, integer, integer_range, number, numbers

if TYPE_CHECKING:
    from specsim.batching.workload import Load, Shapes

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Checked(click.ParamType[Any]):
    """Turns the words of an option into a checked value; the message names the option."""

    name = "number"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        option = parameter.opts[0] if parameter else "value"
        return self.check(option, value.strip())

    def check(self, option: str, word: str) -> Any:
        raise NotImplementedError


class Number(_Checked):
    """One finite number in [low, high]."""

    def __init__(self, low: float, high: float = float("inf")) -> None:
        self.low, self.high = low, high

    def check(self, option: str, word: str) -> float:
        return number(option, word, low=self.low, high=self.high)


class Numbers(_Checked):
    """One number or a comma list, all in [low, high]."""

    name = "number[,number...]"

    def __init__(self, low: float, high: float = float("inf")) -> None:
        self.low, self.high = low, high

    def check(self, option: str, word: str) -> tuple[float, ...]:
        words = [part.strip() for part in word.split(",")] if word else []
        return tuple(numbers(option, words, low=self.low, high=self.high).tolist())


class Integer(_Checked):
    """One whole number >= low."""

    name = "whole number"

    def __init__(self, low: int = 0) -> None:
        self.low = low

    def check(self, option: str, word: str) -> int:
        return integer(option, word, low=self.low)


class IntegerRange(_Checked):
    """Whole numbers: ``4``, a comma list ``1,2,4``, a range ``1:16``, or both ``1:4,8``."""

    name = "n|n,n|first:last"

    def __init__(self, low: int = 0) -> None:
        self.low = low

    def check(self, option: str, word: str) -> tuple[int, ...]:
        return tuple(integer_range(option, word, low=self.low))


def format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--format``, on every command that prints a result."""
    from specsim.report.tables import FORMATS

    return click.option(
        "--format",
        "output_format",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to print the result.",
    )(command)


def stack(*options: Decorator) -> Decorator:
    """Several options as one decorator, listed in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


verify_options = stack(
    click.option(
        "--verify-slope",
        type=Number(0),
        help="v(n) = 1 + SLOPE (n - 1): cost of a target run on n tokens. [default: 0]",
    ),
    click.option(
        "--verify-cost", type=Numbers(0), help="v(1),v(2),... as measured, instead of a slope."
    ),
    click.option(
        "--overhead",
        type=Number(0),
        help="Host time of a block, in target runs. [default: 0]",
    ),
)

alpha_option = click.option(
    "--alpha",
    type=Numbers(0, 1),
    help="Acceptance rate, or alpha_1,alpha_2,... by position (the last one holds on).",
)

cost_options = stack(
    alpha_option,
    click.option("--c", type=Number(0), help="Cost of a draft run, in target runs."),
    click.option(
        "--c-ops",
        type=Number(0),
        help="Operations per token, draft / target. [default: 0, the target's own only]",
    ),
    click.option(
        "--c-memory",
        type=Number(0),
        help="Bytes read per run, draft / target. [default: 0, the target's own only]",
    ),
    verify_options,
)

profile_options = stack(
    click.option(
        "--profile",
        type=click.Path(path_type=Path),
        help="Profile written by specsim calibrate, instead of numbers.",
    ),
    click.option(
        "--temperature",
        type=Number(0),
        help="Which of the profile's temperatures. [default: all]",
    ),
)


# What runs cost at a load with nothing measured, or how they ran where it was.
machine_options = stack(
    click.option(
        "--target",
        metavar="SHAPE",
        help="Target model by its shape: a shipped one, or a config.json. No measurement needed.",
    ),
    click.option("--draft", metavar="SHAPE", help="Draft model by its shape."),
    click.option("--accelerator", metavar="NAME", help="Accelerator that both models run on."),
    click.option(
        "--mode",
        type=click.Choice(["eager", "compiled"]),
        help="Which of the profile's run times in batches. [default: compiled, if measured]",
    ),
)

load_options = stack(
    click.option(
        "--batch",
        type=IntegerRange(1),
        help="Requests that share iterations, one or many. "
        "[default: as in the profile, or 1,2,4,...,256]",
    ),
    click.option(
        "--context",
        type=IntegerRange(),
        help="Tokens in the cache of each request. [default: as in the profile, or 512,4096]",
    ),
    machine_options,
)


def read_shapes(target: str | None, draft: str | None, accelerator: str | None) -> Shapes | None:
    """The models and the machine that ``machine_options`` say, if they say any."""
    from specsim.batching.workload import Shapes

    if target is None and draft is None and accelerator is None:
        return None
    if target is None or draft is None or accelerator is None:
        named = {"target": target, "draft": draft, "accelerator": accelerator}
        missing = next(name for name, value in named.items() if value is None)
        raise InvalidArgumentError(
            f"--{missing} is missing; give --target, --draft and --accelerator, or --profile"
        )
    return Shapes(target, draft, accelerator)


def read_load(batch: Sequence[int] | None, context: Sequence[int] | None) -> Load | None:
    """The batches and contexts that ``load_options`` say, if they say any."""
    from specsim.batching.workload import Load

    return None if batch is None and context is None else Load(batch, context)


def check_figure(figure: Path | None) -> None:
    """Before anything is worked out, refuse a picture that could not be written."""
    if figure is not None and (figure.suffix != ".png" or not figure.parent.is_dir()):
        raise InvalidArgumentError(f"--figure {figure} must be a .png in a folder that exists")


def refuse_given(names: Iterable[str], reason: str) -> None:
    """Refuse options that were typed but have no meaning here, rather than ignore them."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-").replace("output-", "")
            raise InvalidArgumentError(f"{option} {reason}")
