"""Options that several commands share, and the types that turn words into checked numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from specsim.checks import InvalidArgumentError, integer, integer_range, number, numbers

if TYPE_CHECKING:
    from specsim.cost import VerifyCost

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
        default=0.0,
        help="Host time of a block, in target runs. [default: 0]",
    ),
)

cost_options = stack(
    click.option(
        "--alpha",
        type=Numbers(0, 1),
        help="Acceptance rate, or alpha_1,alpha_2,... by position (the last one holds on).",
    ),
    click.option("--c", type=Number(0), help="Cost of a draft run, in target runs."),
    click.option(
        "--c-ops",
        type=Number(0),
        default=0.0,
        help="Operations per token, draft / target. [default: 0, the target's own only]",
    ),
    click.option(
        "--c-memory",
        type=Number(0),
        default=0.0,
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


def refuse_given(names: Iterable[str], reason: str) -> None:
    """Refuse options that were typed but have no meaning here, rather than ignore them."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-").replace("output-", "")
            raise InvalidArgumentError(f"{option} {reason}")


def read_verify(given: Mapping[str, Any]) -> VerifyCost:
    """The verification cost that ``verify_options`` say."""
    from specsim.cost import LinearVerify, MeasuredVerify

    if given["verify_cost"] is None:
        return LinearVerify(given["verify_slope"] or 0.0)
    if given["verify_slope"] is not None:
        raise InvalidArgumentError("--verify-slope and --verify-cost exclude each other")
    return MeasuredVerify(given["verify_cost"])


def from_numbers(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of ``specsim.evaluate`` from the words of ``cost_options``."""
    for name in ("alpha", "c"):
        if given[name] is None:
            raise InvalidArgumentError(f"--{name} is missing; give --alpha and --c, or --profile")
    read_verify(given)
    return {name: value for name, value in given.items() if value is not None}


def workloads(path: Path, temperature: float | None, given: dict[str, Any]) -> list[Any]:
    """The profile's settings; numbers beside a profile are refused rather than ignored."""
    from specsim.optimizers.workload import Workload
    from specsim.profiles import read_profile

    refuse_given(given, "and --profile exclude each other")
    return Workload.all_of(read_profile(path), path, temperature)
